"""Extraction: after a turn the model reads it for what to remember, as a durable job beside the runs, one at a time.

The job is stored in the transaction that ends the run. Each attempt is counted before the model is asked, and its
memories are stored in the transaction that deletes the job: after a crash it is tried once more, and a run brings its
memories at most once. What is extracted from a conversation with untrusted text is marked like all that it brought.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.budget.budgets import RequestDenied
from app.budget.kinds import BudgetSpent
from app.budget.side_query import DATA_RULE, SideQuery, ends_of
from app.core.events import AgentEvent, RunFinished, ToolFinished
from app.core.labels import Labels
from app.core.messages import Message, in_words
from app.log.event_writer import EventWriter
from app.memory.call_memory import OwnMemory
from app.memory.memories import Memories, Source
from app.models.endpoints.model_registry import UnknownModel
from app.policy.current_rights import principal_named
from app.storage.changes import Change, StoreFailed
from app.storage.memories import EXTRACTION, MemoryJob, MemoryJobDone
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.storage.store import Store
from app.transcript.conversation import Conversation
from app.transcript.run_request import UNASKED, NotFound
from app.transcript.run_totals import RunTotals
from tools.base.access import KINDS
from tools.base.pause_check import Paused

TRIES = 2
MOST_WAITING = 1_000  # jobs; older ones are dropped
MOST_FOUND, LONGEST = 5, 400  # memories of one turn, and characters of each
MOST_READ = 8_000  # characters of a turn
MOST_OF_CALL = 200  # characters of the arguments of a call
MOST_ENDS = 500  # the last calls of a session of which is looked whether they failed
MOST_TOKENS = 800
PAUSE_S = 30.0  # after the store has failed
RULE = f"""\
You keep the memory of an assistant. Read the turn of a conversation and list what will still matter in later ones. \
Of the person: facts, preferences, events, notes, only what the person has said. Of the work: an event that says what \
was done if the assistant has called tools, and a lesson where a way failed and another worked, or the person \
corrected the assistant. Nothing general, no secrets, nothing that is known already. Answer with a JSON array of at \
most {MOST_FOUND} objects such as {{"kind": "preference", "text": "Prefers short answers."}}, kind being one of \
{", ".join(KINDS)}, each text one sentence that is understood alone, in the person's language. Answer [] if there is \
nothing. {DATA_RULE}"""
_log = logging.getLogger(__name__)


def leave_job(
    memory: OwnMemory | None,
    row: RunRow,
    conversation: Conversation | None,
    terminal: AgentEvent,
    put: Callable[[Change], None],
) -> Callable[[], None]:
    """Put the job of an ended run that a person asked for and did not cancel; call the result once it is stored."""
    if memory is None or not memory.extracts or conversation is None or UNASKED in json.loads(row.policy):
        return _nothing
    if not isinstance(terminal, RunFinished) or terminal.reason == "cancelled":
        return _nothing
    begins, ends = conversation.begins, len(conversation.messages)
    put(
        MemoryJob(
            run=row.id, owner=row.principal, session=row.session, begins=begins, ends=ends, tries=0, created=row.created
        )
    )
    return memory.memories.jobs.set


def _nothing() -> None:
    """No job was left."""


class Extraction(Struct):
    """Works through the jobs while the server runs."""

    store: Store
    memories: Memories
    query: Callable[[Principal, Labels], SideQuery]  # about data with these labels; raises UnknownModel
    journal: EventWriter
    unpaused: Callable[[], Awaitable[None]]

    async def run_forever(self) -> None:
        while True:
            self.memories.jobs.clear()
            try:
                await self.work()
                await self.memories.jobs.wait()
            except StoreFailed as failure:
                _log.warning("turns not read for memories, retrying later: %s", failure)
                await asyncio.sleep(PAUSE_S)

    async def work(self) -> None:
        """Work through all jobs that there are. Raises StoreFailed."""
        while (surplus := await self.store.memory_job_count() - MOST_WAITING) > 0:
            await self.store.write([MemoryJobDone(job.run) for job in await self.store.memory_jobs(surplus)])
        while jobs := await self.store.memory_jobs(1):
            await self.unpaused()
            await self._attempt(jobs[0])

    async def _attempt(self, job: MemoryJob) -> None:
        if job.tries >= TRIES:
            _log.warning("run %s was not read for memories: it was tried %d times", job.run, job.tries)
            await self.store.write([MemoryJobDone(job.run)])
            return
        await self.store.write([replace(job, tries=job.tries + 1)])  # before the model is asked: a kill costs one try
        try:
            await self._extract(job)
        except Paused:
            await self.store.write([job])
        except (BudgetSpent, RequestDenied, UnknownModel, NotFound) as reason:
            _log.info("run %s was not read for memories: %s", job.run, reason)
            await self.store.write([MemoryJobDone(job.run)])

    async def _extract(self, job: MemoryJob) -> None:
        messages = (await self.store.messages(job.session))[: job.ends]
        turn = _from_the_person(messages[job.begins :], job.created)
        said = "\n\n".join(in_words(one) for one in turn if one.role == "user")
        if not said.strip():  # or the session is gone
            await self.store.write([MemoryJobDone(job.run)])
            return
        labels = frozenset(row.label for row in await self.store.session_labels([job.session]))
        found = await self.memories.search(job.owner, said, MOST_FOUND, labels=labels)
        # No untrusted ones, which the model might take for what the person has written:
        known = [one.row.text for one in found if one.row.label_names <= labels and not one.row.untrusted]
        failed = await self._failed_calls(job.session)
        data = {
            "The turn": ends_of(_as_text(turn, failed), MOST_READ),
            "Known already": "\n".join(known) or "(nothing)",
        }
        side = self.query(await principal_named(self.store, job.owner), labels)
        conversation = self._conversation(job)
        answer = await side.ask(RULE, data, side.reply(), RunTotals(), conversation, most_tokens=MOST_TOKENS)
        await self.journal.flush()
        if answer.trouble:
            _log.warning("run %s was not read for memories: the model %s", job.run, answer.trouble)
            return
        untrusted = any(message.untrusted for message in messages)
        source = Source(
            EXTRACTION, session=job.session, run=job.run, message=job.begins, untrusted=untrusted, labels=labels
        )
        rows = self.memories.rows_of(job.owner, drafts_in(answer.reply.shown), source)
        await self.memories.add_with(job.owner, rows, MemoryJobDone(job.run))

    async def _failed_calls(self, session: str) -> frozenset[str]:
        rows = await self.store.events_of(session, ToolFinished.type, MOST_ENDS)
        return frozenset(end["call"] for end in (json.loads(row.data) for row in rows) if not end["ok"])

    def _conversation(self, job: MemoryJob) -> Conversation:
        """A conversation of nothing, under whose run the query is metered."""
        journal = self.journal
        return Conversation(
            job.session, [], lambda *_: None, journal.put, journal.flush, redactor=journal.redactor, run=job.run
        )


def _from_the_person(turn: Sequence[Message], asked: float) -> Sequence[Message]:
    """The turn from the message that began its run; what the server has put before it is no word of a person."""
    first = next((at for at, one in enumerate(turn) if one.role == "user" and one.at == asked), 0)
    return turn[first:]


def _as_text(turn: Sequence[Message], failed: Container[str]) -> str:
    """The words of the person and of the assistant, its calls and which of them failed; results are none of these."""
    lines = list[tuple[str, str]]()
    for one in turn:
        lines.append(("Person", in_words(one)) if one.role == "user" else ("Assistant", one.shown or ""))
        for call in one.calls:
            source = "Call that failed" if call.id in failed else "Call"
            lines.append((source, f"{call.name} {json.dumps(call.arguments)[:MOST_OF_CALL]}"))
    return "\n\n".join(f"{source}: {text}" for source, text in lines if text)


def drafts_in(answer: str) -> list[tuple[str, str]]:
    """The texts and kinds of an answer; none if it is not what was asked for."""
    try:
        rows: Any = json.loads(answer[answer.find("[") : answer.rfind("]") + 1])
    except (ValueError, RecursionError):
        return []
    found = [one for one in rows if isinstance(one, dict)] if isinstance(rows, list) else []
    texts = [(one.get("text"), one.get("kind")) for one in found[:MOST_FOUND]]
    return [(text, str(kind)) for text, kind in texts if isinstance(text, str) and len(text) <= LONGEST]

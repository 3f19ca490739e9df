"""Transcripts as sessions: their messages and, for each turn, the log of a run that has ended.

All of it is untrusted, as conversations from elsewhere are on the lanes: the session is tainted, and its texts are
known again in others. Calls are history: each has exactly one result, and none is ever made. A transcript is known by
its id: what it has more than before goes into the same session, if nothing else has happened there since.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from secrets import token_hex
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.core import events
from app.core.attachments import File, as_fields, image_event
from app.core.messages import Message, Role, dump
from app.models.wire.call_ids import takes_plain
from app.models.wire.client_history import settled
from app.models.wire.openai.history import INTERRUPTED
from app.runs.agent import Agent
from app.runs.run_options import RunOptions
from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.principals import Principal
from app.storage.runs import EventRow, KeyRow, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.transcript.conversation import Conversation
from app.transcript.run_request import IMPORTED, RunRequest, is_open_to
from app.transcript.titles import NAMELESS, title_of
from app.transcript.unfit_arguments import unfit
from routes.lanes.content import sent_file_of
from routes.lanes.reading import Node
from routes.lanes.responses.history import History
from routes.protocol.errors import Refused
from routes.services import Services
from routes.transcripts.formats import RESULTS, Entry, Item, Skipped, Transcript

NAME = "import\n"  # no Idempotency-Key of a request begins so: theirs are printable
APART_S = 1e-5  # between two runs


class Importer(Struct, frozen=True):
    """Imports of one principal from one format."""

    services: Services
    principal: Principal
    source: str
    skipped: Skipped

    async def put(self, one: Transcript) -> dict[str, Any] | None:
        """Return the session and its `state`: `new`, `grown` or `unchanged`; None if no message can be read.

        Raises Refused, StoreFailed, and what composing an agent raises.
        """
        store, runs = self.services.store, self.services.runs
        name = f"{NAME}{self.source}\n{one.id or _digest(one.entries[:1])}"
        async with runs.peers.lock("key", f"{self.principal.name}\n{name}"):
            key = await store.key(self.principal.name, name)
            run = await store.run(key.run) if key else None
            if run and is_open_to(run, self.principal):
                async with runs.peers.lock("session", run.session):
                    session, mark = await runs.session(run.session, self.principal), json.loads(run.policy)[IMPORTED]
                    known, new = one.entries[: mark["entries"]], one.entries[mark["entries"] :]
                    is_same = await asyncio.to_thread(_digest, known) == mark["digest"]
                    if is_same and not new:
                        return {"session": session.id, "title": session.title, "state": "unchanged", "messages": 0}
                    [newest] = await store.last_runs(session.id, None, 1)
                    # A late result is none for its call, which has been settled.
                    if is_same and newest.id == run.id and new[0].item.get("type") not in RESULTS:
                        return await self._put(one, name, session, len(known), newest.created)
            return await self._put(one, name)

    async def _put(
        self, one: Transcript, name: str, session: SessionRow | None = None, begins: int = 0, last: float = 0.0
    ) -> dict[str, Any] | None:
        """Store the entries from `begins` on, in a session after its run of the time `last`, or in a new one."""
        services, owner, now = self.services, self.principal.name, time.time()
        messages, files = await asyncio.to_thread(messages_of, one.entries[begins:], self.skipped)
        if not messages:
            return None
        agent = await services.factory.agent(self.principal, RunOptions(), session.id if session else None)
        changes, state = list[Change](), "grown" if session else "new"
        if session is None:
            words = [one.title, *(message.text for message in messages if message.role == "user"), NAMELESS]
            title = services.redactor.redact(next(filter(None, map(title_of, words))))
            created = min(messages[0].at or now, now)
            session = SessionRow(f"ses_{token_hex(10)}", owner, created, title, updated=now)
            changes.append(session)
        earlier = await services.store.messages(session.id)
        conversation = Conversation(
            session.id,
            [*earlier],
            lambda *_: None,
            changes.append,
            partial(asyncio.sleep, 0),
            redactor=services.redactor,
        )
        await _append(conversation, agent, messages, files)
        digest = await asyncio.to_thread(_digest, one.entries)
        row = RunRow(
            "",
            session=session.id,
            principal=owner,
            model=services.redactor.redact(one.model) or agent.provider.model,
            state="",
            created=last,
            policy=agent.policy_with(json.dumps({IMPORTED: {"entries": len(one.entries), "digest": digest}})),
        )
        rows = await asyncio.to_thread(list, rows_of(row, conversation.messages, len(earlier), now))
        run = next(one for one in reversed(rows) if isinstance(one, RunRow))
        audit = AuditRow(now, owner, f"import {session.id}", state, why=f"from {self.source}", by=owner)
        await services.store.write([*changes, *rows, KeyRow(owner, name, "", run.id, now), audit])
        services.runs.notifier.notify(session.id)
        added = len(conversation.messages) - len(earlier)
        return {"session": session.id, "title": session.title, "state": state, "messages": added}


async def _append(conversation: Conversation, agent: Agent, messages: Sequence[Message], files: Sequence[File]) -> None:
    """Redact the messages, and mark their texts so that they are known again."""
    if marks := agent.scope.marks:
        marks.tool = lambda _: None  # a tool of ours with the same name has not given these results
        await marks.enter(conversation, RunRequest("", history=messages, outside=True))
    for file in files:
        conversation.keep_file(file)
    for message in messages:
        if marks and message.role == "assistant":  # in a file, anybody may have written it
            marks.watch(Message("user", message.text, untrusted=True))
        conversation.append(message)
        await asyncio.sleep(0)


def messages_of(entries: Sequence[Entry], skipped: Skipped) -> tuple[list[Message], list[File]]:
    """The messages, each call with one result, and their files. `cut` marks results of calls that have failed."""
    found, files = list[Message](), list[File]()
    for entry in entries:
        try:
            messages, sent = _read(entry.item)
        except (Refused, RecursionError) as problem:
            skipped.add(entry.line, getattr(problem, "message", "It is nested too deeply."))
            continue
        has_failed = entry.item.get("status") == "incomplete"
        found += [replace(one, at=entry.at, cut=has_failed and one.role == "tool") for one in messages]
        files += sent
    whole = settled(found, takes_plain, keeps_files=True)
    return [replace(one, untrusted=True, sender="client" if one.role == "user" else "") for one in whole], files


def _read(item: Item) -> tuple[Sequence[Message], Sequence[File]]:
    """Raises Refused."""
    if item.get("type") == "image_generation_call":
        file = sent_file_of(Node(item), "result")
        return [Message("assistant", "", attachments=(file.attachment,))], [file]
    history = History.of(Node({"input": [item]}))
    for call in (call for message in history.messages for call in message.calls):
        if problem := unfit(call.arguments):
            raise Refused(400, "invalid_request", problem)
    return history.messages, history.files


def rows_of(row: RunRow, messages: Sequence[Message], begin: int, now: float) -> Iterator[Change]:
    """The runs of the messages from `begin` on, behind that of `row`, with their messages and logs.

    A run begins with words of the person behind an answer. It is later than the one before, and not in the future.
    """
    is_first = [one.role == "user" and messages[at - 1].role != "user" for at, one in enumerate(messages)]
    starts = [begin, *(at for at in range(begin + 1, len(messages)) if is_first[at])]
    for number, (start, end) in enumerate(pairwise([*starts, len(messages)])):
        turn, latest = messages[start:end], now - (len(starts) - number) * APART_S
        created = max(row.created + APART_S / 10, min(turn[0].at or latest, latest))
        ended = max(created, min(turn[-1].at or latest, latest))
        state = "answered" if turn[-1].role == "assistant" and not turn[-1].calls else "cancelled"
        row = replace(row, id=f"run_{token_hex(10)}", created=created, ended=ended, state=state)
        yield row
        for at, one in enumerate(turn, start):
            sent = (created if at == start else one.at) if one.role == "user" else None
            yield MessageRow(row.session, at, row.id, dump(replace(one, cut=False, at=sent)))
        for seq, event in enumerate(events_of(row, turn), 1):
            yield EventRow(row.id, seq, event.type, events.encode(event))


def events_of(row: RunRow, turn: Sequence[Message]) -> Iterator[events.AgentEvent]:
    """The log of a run that has had these messages."""
    yield events.RunStarted(row.id, row.session, row.model, [], {})
    rounds, calls, text, asked = 0, 0, "", row.created
    for at, one in enumerate(turn):
        if one.role == "assistant":
            rounds, calls, text, asked = rounds + 1, calls + len(one.calls), one.text, one.at or asked
            yield events.RoundStarted(rounds)
        yield from EVENTS[one.role](one, asked) if at or one.role != "user" else ()
    yield events.RunFinished(
        row.state, text, rounds, calls, {"prompt_tokens": 0, "completion_tokens": 0, "measured": False}
    )


def _of_reply(one: Message, _: float) -> Iterator[events.AgentEvent]:
    yield from [events.ReasoningDelta(one.reasoning)] if one.reasoning else []
    yield from [events.TextDelta(one.text)] if one.text else []
    yield from [image_event(File(picture, b"")) for picture in one.attachments]
    yield from [events.ToolStarted(call.id, call.name, dict(call.arguments), call.dialect) for call in one.calls]


def _of_result(one: Message, asked: float) -> Iterator[events.AgentEvent]:
    if one.call is None:
        yield from _of_words(one, asked)
        return
    yield from [image_event(File(picture, b""), one.call) for picture in one.attachments]
    is_fine, took_s = not one.cut and one.text != INTERRUPTED, max(0.0, (one.at or asked) - asked)
    yield events.ToolFinished(one.call, one.name or "", is_fine, one.text, round(took_s, 3))


def _of_words(one: Message, _: float) -> Iterator[events.AgentEvent]:
    yield events.MessageAdded(one.text, list(map(as_fields, one.attachments)) or None)


EVENTS: Mapping[Role, Callable[[Message, float], Iterator[events.AgentEvent]]] = {
    "assistant": _of_reply,
    "tool": _of_result,
    "user": _of_words,
}


def _digest(entries: Sequence[Entry]) -> str:
    digest = hashlib.sha256()
    for entry in entries:  # one by one: others have their turn
        digest.update(json.dumps(entry.item).encode())
    return digest.hexdigest()

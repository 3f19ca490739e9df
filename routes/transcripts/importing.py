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
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from app.core.attachments import File, as_fields, image_event
from app.core.events import (
    AgentEvent,
    MessageAdded,
    ReasoningDelta,
    RoundStarted,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    encode,
)
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


class Imported(Struct):
    """`state`: `new`, `grown` or `unchanged`; `messages` are those that have come in now."""

    session: str
    title: str
    state: str
    messages: int
    left_out: int


class Importer(Struct, frozen=True):
    """Imports of one principal from one format."""

    services: Services
    principal: Principal
    source: str
    skipped: Skipped

    async def put(self, one: Transcript) -> Imported | None:
        """Return None if no message can be read. Raises Refused, StoreFailed, and what composing an agent raises."""
        store, runs = self.services.store, self.services.runs
        name = f"{NAME}{self.source}\n{one.id or _digest(one.entries[:1])}"
        async with runs.peers.lock("key", f"{self.principal.name}\n{name}"):
            key = await store.key(self.principal.name, name)
            run = await store.run(key.run) if key else None
            if run and is_open_to(run, self.principal):
                async with runs.peers.lock("session", run.session):
                    session, mark = await runs.session(run.session, self.principal), json.loads(run.policy)[IMPORTED]
                    known, new = one.entries[: mark["entries"]], one.entries[mark["entries"] :]
                    is_same = _digest(known) == mark["digest"]
                    if is_same and not new:
                        return Imported(session.id, session.title, "unchanged", 0, one.left_out)
                    [newest] = await store.last_runs(session.id, None, 1)
                    # A late result is none for its call, which has been settled.
                    if is_same and newest.id == run.id and new[0].item.get("type") not in RESULTS:
                        return await self._put(one, name, session, len(known), newest.created)
            return await self._put(one, name)

    async def _put(
        self, one: Transcript, name: str, session: SessionRow | None = None, begins: int = 0, last: float = 0.0
    ) -> Imported | None:
        """Store the entries from `begins` on, in a session after its run of the time `last`, or in a new one."""
        services, owner, now = self.services, self.principal.name, time.time()
        messages, files = messages_of(one.entries[begins:], self.skipped)
        if not messages:
            return None
        agent = await services.factory.agent(self.principal, RunOptions(), session and session.id)
        changes, state = list[Change](), "grown"
        if session is None:
            words = [one.title, *(message.text for message in messages if message.role == "user"), NAMELESS]
            title = services.redactor.redact(next(filter(None, map(title_of, words))))
            created = min(messages[0].at or now, now)
            session, state = SessionRow(f"ses_{token_hex(10)}", owner, created, title, updated=now), "new"
            changes.append(session)
        earlier = await services.store.messages(session.id)
        conversation = Conversation(session.id, [*earlier], _ignore, changes.append, _flush, redactor=services.redactor)
        await _append(conversation, agent, messages, files)
        mark = {"from": self.source, "entries": len(one.entries), "digest": _digest(one.entries)}
        row = RunRow(
            "",
            session=session.id,
            principal=owner,
            model=services.redactor.redact(one.model[:256]) or agent.provider.model,
            state="answered",
            created=last,
            policy=agent.policy_with(json.dumps({IMPORTED: mark})),
        )
        position, turns = len(earlier), list(turns_of(conversation.messages[len(earlier) :]))
        for left, turn in zip(range(len(turns), 0, -1), turns, strict=True):
            row = _run_of(row, turn, now - left * APART_S)
            changes += rows_of(row, turn, position)
            position += len(turn)
        changes.append(KeyRow(owner, name, "", row.id, now))
        changes.append(AuditRow(now, owner, f"import {session.id}", state, why=f"from {self.source}", by=owner))
        await services.store.write(changes)
        services.runs.notifier.notify(session.id)
        return Imported(session.id, session.title, state, position - len(earlier), one.left_out)


async def _append(conversation: Conversation, agent: Agent, messages: Sequence[Message], files: Sequence[File]) -> None:
    """Redact the messages, and mark their texts so that they are known again."""
    marks = agent.scope.marks
    if marks:
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
        cut = entry.item.get("status") == "incomplete"
        found += [replace(one, at=entry.at, cut=cut and one.role == "tool") for one in messages]
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


def turns_of(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The messages of each run: the next one begins with words of the person behind an answer."""
    begin = 0
    for at, one in enumerate(messages):
        if one.role == "user" and at > begin and messages[at - 1].role != "user":
            yield messages[begin:at]
            begin = at
    yield messages[begin:]


def _run_of(row: RunRow, turn: Sequence[Message], latest: float) -> RunRow:
    """The run of a turn, behind the one of `row`; `latest` is the last time that it may have."""
    created = max(row.created + APART_S / 10, min(turn[0].at or latest, latest))
    ended = max(created, min(turn[-1].at or latest, latest))
    state = "answered" if turn[-1].role == "assistant" and not turn[-1].calls else "cancelled"
    return replace(row, id=f"run_{token_hex(10)}", created=created, ended=ended, state=state)


def rows_of(row: RunRow, turn: Sequence[Message], position: int) -> Iterator[Change]:
    yield row
    for at, one in enumerate(turn):
        time_of = (row.created if at == 0 else one.at) if one.role == "user" else None
        yield MessageRow(row.session, position + at, row.id, dump(replace(one, cut=False, at=time_of)))
    for number, event in enumerate(events_of(row, turn), 1):
        yield EventRow(row.id, number, event.type, encode(event))


def events_of(row: RunRow, turn: Sequence[Message]) -> Iterator[AgentEvent]:
    """The log of a run that has had these messages."""
    yield RunStarted(row.id, row.session, row.model, [], {})
    replies = [one for one in turn if one.role == "assistant"]
    for at, one in enumerate(turn):
        yield from [RoundStarted(replies.index(one) + 1)] if one.role == "assistant" else []
        yield from EVENTS[one.role](one) if at or one.role != "user" else ()
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "measured": False}
    calls = sum(len(one.calls) for one in replies)
    yield RunFinished(row.state, replies[-1].text if replies else "", len(replies), calls, usage)


def _of_reply(one: Message) -> Iterator[AgentEvent]:
    yield from [ReasoningDelta(one.reasoning)] if one.reasoning else []
    yield from [TextDelta(one.text)] if one.text else []
    yield from [image_event(File(picture, b"")) for picture in one.attachments]
    yield from [ToolStarted(call.id, call.name, dict(call.arguments), call.dialect) for call in one.calls]


def _of_result(one: Message) -> Iterator[AgentEvent]:
    yield from [image_event(File(picture, b""), one.call) for picture in one.attachments]
    if one.call:
        yield ToolFinished(one.call, one.name or "", not one.cut and one.text != INTERRUPTED, one.text, 0.0)
    else:
        yield from _of_words(one)


def _of_words(one: Message) -> Iterator[AgentEvent]:
    yield MessageAdded(one.text, list(map(as_fields, one.attachments)) or None)


EVENTS: Mapping[Role, Callable[[Message], Iterator[AgentEvent]]] = {
    "assistant": _of_reply,
    "tool": _of_result,
    "user": _of_words,
}


def _digest(entries: Sequence[Entry]) -> str:
    return hashlib.sha256(json.dumps([entry.item for entry in entries]).encode()).hexdigest()


def _ignore(_: int, message: Message) -> None:
    """Keep nothing yet: which run a message is of is known when all of them are."""


async def _flush() -> None:
    """Wait for nothing: all is written at once, at the end."""

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
from collections import Counter
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
from app.models.wire.call_ids import CallIds, takes_plain
from app.models.wire.client_history import settled
from app.models.wire.openai.history import INTERRUPTED
from app.provenance.run_marks import RunMarks
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
from routes.lanes.content import content_of, sent_file_of
from routes.lanes.reading import Node
from routes.lanes.responses.history import History
from routes.protocol.errors import Refused
from routes.services import Services
from routes.transcripts.formats import RESULTS, TOO_DEEP, UNREADABLE, Entry, Item, Skipped, Transcript, word_of

NAME = "import\n"  # no Idempotency-Key of a request begins so: theirs are printable
APART_S = 1e-5  # between two runs
PART = 1 << 20  # bytes of items that are stored at a time
LONGEST_TURN = 4 << 20  # that is stored whole
LONGEST_TEXT = 4 << 20  # characters of a message
LOOKED_AT = 200  # messages that marks of later ones are made with


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
        first = one.id or hashlib.sha256(one.entries[0].item).hexdigest()
        name = f"{NAME}{self.source}\n{first}"
        async with runs.peers.lock("key", f"{self.principal.name}\n{name}"):
            key = await store.key(self.principal.name, name)
            run = await store.run(key.run) if key else None
            if run and is_open_to(run, self.principal):
                async with runs.peers.lock("session", run.session):
                    session, mark = await runs.session(run.session, self.principal), json.loads(run.policy)[IMPORTED]
                    count = min(mark["entries"], len(one.entries))
                    known, *parts = await asyncio.to_thread(parts_of, one.entries, count)
                    if known.mark == mark and not parts:
                        return _fields(session, "unchanged", 0)
                    [newest] = await store.last_runs(session.id, None, 1)
                    # A late result is none for its call, which has been settled.
                    if known.mark == mark and newest.id == run.id and one.entries[count].kind not in RESULTS:
                        return await self._put(one, name, session, parts, newest)
            created = time.time()
            session = SessionRow(f"ses_{token_hex(10)}", self.principal.name, created, "", updated=created)
            async with runs.peers.lock("session", session.id):
                return await self._put(one, name, session, await asyncio.to_thread(parts_of, one.entries))

    async def _put(
        self, one: Transcript, name: str, session: SessionRow, parts: Sequence[Part], newest: RunRow | None = None
    ) -> dict[str, Any] | None:
        """Store these parts behind the newest run of a session, or in a new one: one by one, and each is whole."""
        services, owner = self.services, self.principal.name
        earlier = [*await services.store.messages(session.id)] if newest else []
        stored, added, ids = len(earlier), 0, CallIds(takes_plain)
        for call in (call for message in earlier for call in message.calls):
            ids.take(call.id)
        del earlier[1:-LOOKED_AT]
        created = newest.created if newest else 0.0
        for part in parts:
            entries = one.entries[part.begin : part.end]
            messages, files = await asyncio.to_thread(messages_of, entries, self.skipped, ids)
            if not messages:
                continue
            now, changes = time.time(), list[Change]()
            if not stored:
                session = replace(session, created=min(messages[0].at or now, now), title=self._title(one, messages))
                changes.append(session)
            agent = await services.factory.agent(self.principal, RunOptions(), session.id if stored else None)
            conversation = Conversation(
                session.id,
                earlier,
                lambda *_: None,
                changes.append,
                partial(asyncio.sleep, 0),
                redactor=services.redactor,
            )
            await _append(conversation, agent.scope.marks, messages, files)
            if labels := agent.scope.labels:
                await labels.enter(conversation, set(one.labels) & set(labels.services.policy.names))
            row = RunRow(
                "",
                session=session.id,
                principal=owner,
                model=services.redactor.redact(one.model) or agent.provider.model,
                state="",
                created=created,
                policy=agent.policy_with(json.dumps({IMPORTED: part.mark})),
            )
            rows = await asyncio.to_thread(list, rows_of(row, conversation.messages[-len(messages) :], stored, now))
            run = next(row for row in reversed(rows) if isinstance(row, RunRow))
            why = f"{len(messages)} messages from {self.source}"
            audit = AuditRow(now, owner, f"import {session.id}", "grown" if stored else "new", why=why, by=owner)
            await services.store.write([*changes, *rows, KeyRow(owner, name, "", run.id, now), audit])
            earlier = conversation.messages
            del earlier[1:-LOOKED_AT]
            stored, added, created = stored + len(messages), added + len(messages), run.created
        if not stored:
            return None
        services.runs.notifier.notify(session.id)
        return _fields(session, "new" if newest is None else "grown" if added else "unchanged", added)

    def _title(self, one: Transcript, messages: Sequence[Message]) -> str:
        words = [one.title, *(message.text for message in messages if message.role == "user"), NAMELESS]
        return self.services.redactor.redact(next(filter(None, map(title_of, words))))


def _fields(session: SessionRow, state: str, added: int) -> dict[str, Any]:
    return {"session": session.id, "title": session.title, "state": state, "messages": added}


class Part(Struct, frozen=True):
    """Entries that are stored together; `mark` knows all up to their end."""

    begin: int
    end: int
    mark: dict[str, Any]


def parts_of(entries: Sequence[Entry], known: int = -1) -> list[Part]:
    """Entries in parts that begin with a turn and leave no call without its result; of `known` ones the first."""
    results = Counter(entry.call for entry in entries if entry.kind in RESULTS)
    digest, parts, begin, size, open_calls = hashlib.sha256(), list[Part](), 0, 0, set[str]()
    for at, entry in enumerate([*entries, None]):
        may_end = size > LONGEST_TURN or (size > PART and not open_calls and entry and entry.kind == "user")
        is_end = entry is None or (may_end and entry.kind not in RESULTS)
        if at == known or (at > known and is_end and at > begin):
            parts.append(Part(begin, at, {"entries": at, "digest": digest.hexdigest()}))
            begin, size = at, 0
        if entry:
            digest.update(entry.item)
            size += len(entry.item)
            if entry.kind in RESULTS:
                results[entry.call] -= 1
                open_calls.discard(entry.call)
            elif entry.call and results[entry.call] > 0:
                open_calls.add(entry.call)
    return parts


async def _append(
    conversation: Conversation, marks: RunMarks | None, messages: Sequence[Message], files: Sequence[File]
) -> None:
    """Redact the messages, and mark their texts so that they are known again."""
    if marks:
        marks.tool = lambda _: None  # a tool of ours with the same name has not given these results
        await marks.enter(conversation, RunRequest("", outside=True))
        await marks.expect({one.call or one.text: one.text for one in messages})
    for file in files:
        conversation.keep_file(file)
    for message in messages:
        if marks and message.role == "assistant":  # the writer of a file is unknown
            marks.watch(Message("user", message.text, untrusted=True))
        conversation.append(message)
        await asyncio.sleep(0)


def messages_of(
    entries: Sequence[Entry], skipped: Skipped, ids: CallIds | None = None
) -> tuple[list[Message], list[File]]:
    """The messages, each call with one result, and their files. `cut` marks results of calls that have failed.

    `ids` are those of the calls before.
    """
    found, files = list[Message](), list[File]()
    for entry in entries:
        item = json.loads(entry.item)
        try:
            messages, sent = _read(item, entry.line, skipped)
        except (Refused, RecursionError) as problem:
            skipped.add(entry.line, getattr(problem, "message", TOO_DEEP))
            continue
        has_failed = item.get("status") == "incomplete"
        found += [replace(one, at=entry.at, cut=has_failed and one.role == "tool") for one in messages]
        files += sent
    whole = settled(found, takes_plain, keeps_files=True, ids=ids)
    return [replace(one, untrusted=True, sender="client" if one.role == "user" else "") for one in whole], files


def _read(item: Item, line: int, skipped: Skipped) -> tuple[Sequence[Message], Sequence[File]]:
    """The messages of an item; a part of one that cannot be read is named in its place. Raises Refused."""
    try:
        return _messages(item)
    except Refused as problem:
        readable = {name: _readable(item[name]) for name in ("content", "output") if isinstance(item.get(name), list)}
        found = _messages({**item, **readable})
        skipped.add(line, problem.message)
        return found


def _readable(parts: Sequence[Any]) -> list[Any]:
    found = list[Any]()
    for part in parts:
        try:
            content_of(Node({"content": [part]}), "content")
            found.append(part)
        except Refused:
            name = word_of(part.get("filename") or part.get("type")) if isinstance(part, dict) else ""
            found.append({"type": "input_text", "text": UNREADABLE.format(name or "part")})
    return found


def _messages(item: Item) -> tuple[Sequence[Message], Sequence[File]]:
    """Raises Refused."""
    if item.get("type") == "image_generation_call":
        file = sent_file_of(Node(item), "result")
        return [Message("assistant", "", attachments=(file.attachment,))], [file]
    history = History.of(Node({"input": [item]}))
    for call in (call for message in history.messages for call in message.calls):
        if problem := unfit(call.arguments):
            raise Refused(400, "invalid_request", problem)
    if any(len(one.text) + len(one.reasoning) > LONGEST_TEXT for one in history.messages):
        raise Refused(400, "too_long", f"It has more than {LONGEST_TEXT:,} characters.")
    return history.messages, history.files


def rows_of(row: RunRow, messages: Sequence[Message], stored: int, now: float) -> Iterator[Change]:
    """The runs of messages, behind that of `row`, with their messages, behind those `stored`, and their logs.

    A run begins with words of the person behind an answer. It is later than the one before, and not in the future.
    """
    starts = [0, *(at for at, (a, b) in enumerate(pairwise(messages), 1) if b.role == "user" != a.role)]
    for number, (start, end) in enumerate(pairwise([*starts, len(messages)])):
        turn, latest = messages[start:end], now - (len(starts) - number) * APART_S
        created = max(row.created + APART_S / 10, min(turn[0].at or latest, latest))
        ended = max(created, min(turn[-1].at or latest, latest))
        state = "answered" if turn[-1].role == "assistant" and not turn[-1].calls else "cancelled"
        row = replace(row, id=f"run_{token_hex(10)}", created=created, ended=ended, state=state)
        yield row
        for at, one in enumerate(turn):
            sent = (one.at if at else created) if one.role == "user" else None
            yield MessageRow(row.session, stored + start + at, row.id, dump(replace(one, cut=False, at=sent)))
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

"""The session that a request of the agent belongs to.

Clients of these formats send their whole conversation, or the id of a run, and no session. It is found by that id, by a
call that was handed over, by the client's own name for the thread, or by the messages before the last answer; else it
is a new one, which begins with the client's messages. A session that is found has them, tool calls of the server
included, and gets only what is new. If the client goes on from an earlier point, it gets a new session with the history
up to there.

In a new session, answers that no run has given (`claims`) are untrusted. Where an answer is missing, the client
may have put its sense into other words: then the session is tainted if the one that had it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from app.core.attachments import Attachment, File
from app.core.events import TextDelta
from app.core.messages import AskedCall, Message
from app.core.profile_spec import modes_in
from app.storage.changes import StoreFailed
from app.storage.files.reading import Files
from app.storage.principals import Principal
from app.storage.runs import KeyRow, RunRow
from app.storage.store import Store
from app.transcript.run_request import LANE, UNASKED, CallResult, RunRequest, is_of_app, is_open_to, mark_of
from routes.lanes.answer import Answer
from routes.lanes.claims import claims_of
from routes.lanes.event_text import fields_of
from routes.lanes.lane import LaneRequest
from routes.lanes.models import conversation_of
from routes.lanes.responses.response import COMPACTION
from routes.protocol.errors import Refused
from routes.services import Services

PAGE = 512  # events of a log read at a time
MOST_BEGINNINGS = 64  # of a client's history, that are looked up
MOST_SESSIONS = 4  # that a changed history is made of, as far as they are read
BESIDE_LOOP = 256 << 10  # characters, from which on a history is read beside the event loop
EACH = 200  # characters that take as long as the message around them
LONGEST = 1024  # characters of a thread's name that every database can look up
NEWEST = 16  # runs of a session in which its last one that a client has started is looked for
# No Idempotency-Key of a request can be one of these: theirs are printable.
CALL, THREAD, PREFIX, RUN = "call\n", "thread\n", "prefix\n", "run\n"


class Split(Struct, frozen=True):
    """A conversation: `before` the last answer, the `answer`, and what is `new` since then."""

    before: Sequence[Message]
    answer: Sequence[Message]
    new: Sequence[Message]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Split:
        end = next((at for at in range(len(messages), 0, -1) if messages[at - 1].role == "assistant"), 0)
        begin = end
        while begin and messages[begin - 1].role == "assistant":
            begin -= 1
        return cls(messages[:begin], messages[begin:end], messages[end:])


class LaneSessions(Struct, frozen=True):
    """The sessions of one principal, as the requests of a lane find them."""

    store: Store
    files: Files
    principal: Principal
    lane: str
    labelled: bool = False  # sessions may have labels, which a new one with their messages takes over

    @classmethod
    def of(cls, services: Services, principal: Principal, lane: str) -> Self:
        return cls(services.store, services.factory.files, principal, lane, services.factory.labels is not None)

    async def turn(self, request: LaneRequest) -> RunRequest:
        """The beginning of a run: a session that exists and the new messages, or a new one and its history.

        Raises Refused if `previous` does not exist, StoreFailed.
        """
        messages = conversation_of(request)
        found_by = self._names(request, messages)
        turn = await self._turn(request, messages)
        if request.conversation:
            turn = await self._keyed(turn, request.conversation)
        labels = await self.labels_of(request) if turn.session is None else ()
        return replace(turn, untrusted=turn.untrusted or request.untrusted, found_by=found_by, labels=labels)

    async def _keyed(self, turn: RunRequest, key: str) -> RunRequest:
        """Begin the run in the session of a conversation's key, which goes on from its end. Raises Refused."""
        session = await self._keyed_session(key)
        if session and turn.session != session:
            message = "The request goes on from another conversation, or has nothing new for the one of its key. "
            raise Refused(422, "invalid_request", f"{message}Send new messages, or another key.", param="conversation")
        return replace(turn, conversation=key)

    async def _keyed_session(self, key: str) -> str | None:
        return await self.store.keyed_session(self.principal.keeper, key, self.principal.name)

    async def _sessions(self, request: LaneRequest, names: Sequence[str]) -> list[str]:
        """Return the sessions of runs with these names, and of the run that the request names."""
        keys = await self.store.keys(self.principal.name, names)
        runs = [*[await self.store.run(key.run) for key in keys], await self.named_run(request)]
        return sorted({run.session for run in runs if run})

    async def labels_of(self, request: LaneRequest) -> Sequence[str]:
        """Return the labels of the sessions that a request continues, or whose beginning it sends.

        Raises Refused, StoreFailed.
        """
        if not self.labelled:
            return ()
        messages = conversation_of(request)
        ends = [at for at, one in enumerate(messages, 1) if one.role != "assistant"]
        calls = [f"{CALL}{one.call}" for one in messages if one.call]
        sessions = await self._sessions(request, [*prefix_names(messages, ends), *calls[-MOST_BEGINNINGS:]])
        return sorted({row.label for row in await self.store.session_labels(sessions)})

    async def _turn(self, request: LaneRequest, messages: Sequence[Message]) -> RunRequest:
        run = None if request.branches else await self._earlier_run(request, Split.of(messages))
        if run is None:
            return await self._unmatched(request, messages)
        new = await self._unsent(run, Split.of(messages).new)
        turn = _continued(run.session, new, request.files)
        if not turn.results and not turn.message.strip() and not turn.files:  # a continuation of the answer itself
            return await self._unmatched(request, messages)
        return turn if await self._is_last(run) else await self._forked(run, new, request.files)

    async def _unmatched(self, request: LaneRequest, messages: Sequence[Message]) -> RunRequest:
        """A new session with the client's history, in which answers that no run has given are marked."""
        turn = _begun(messages, request.files)
        if any(message.role == "assistant" for message in messages):
            known = await self._with_given_ids(turn.history, request)
            turn = replace(turn, history=await self._checked(known))
        untrusted = turn.untrusted or await self._lacks_untrusted(request, messages)
        return replace(turn, untrusted=untrusted)

    async def _checked(self, history: Sequence[Message]) -> Sequence[Message]:
        """The history, with the answers marked that no run has given."""
        is_long = sum(len(one.text) + len(one.reasoning) + EACH for one in history) > BESIDE_LOOP
        claims = await asyncio.to_thread(claims_of, history) if is_long else claims_of(history)
        names = {name for claim in claims for name in claim.all_names}
        known = {key.key for key in await self.store.keys(self.principal.name, sorted(names))}
        return [message for claim in claims for message in claim.judged(known)]

    async def _lacks_untrusted(self, request: LaneRequest, messages: Sequence[Message]) -> bool:
        """Return True if an answer is missing that stands in a tainted session: other messages may tell of it."""
        spoken = [(end, one.role) for end, one in enumerate(messages, 1) if _is_of_dialogue(one)]
        ends = [end for (end, role), (_, following) in pairwise(spoken) if role == following == "user"]
        if not ends:
            return False
        half = MOST_BEGINNINGS // 2
        looked_up = ends if len(ends) <= MOST_BEGINNINGS else [*ends[:half], *ends[-half:]]
        sessions = await self._sessions(request, prefix_names(messages, looked_up))
        return any([await self.store.tainted(session) for session in sessions])

    async def _with_given_ids(self, history: Sequence[Message], request: LaneRequest) -> Sequence[Message]:
        """Return the history with the ids that models' servers gave its calls, as far as sessions here have them.

        The client knows those of the agent, and has changed its history: else its session would have been found.
        """
        if not any(message.calls for message in history):
            return history
        names = [f"{CALL}{one.call}" for one in history if one.call][-MOST_BEGINNINGS:]
        given = dict[tuple[str, str], AskedCall]()
        for session in (await self._sessions(request, names))[:MOST_SESSIONS]:
            messages = (await self.store.session_state(session)).messages
            given |= {(call.id, call.name): call for one in messages for call in one.calls if call.given}
        return [replace(one, calls=tuple(_as_given(call, given) for call in one.calls)) for one in history]

    async def _unsent(self, run: RunRow, new: Sequence[Message]) -> Sequence[Message]:
        """The messages behind that of the run: without an answer, because the run failed, it counts as new again."""
        if len(new) < 2:
            return new
        sent = await self.store.request_of(run.session, run.id)
        known = [at for at, one in enumerate(new[:-1], 1) if sent and (one.role, one.text) == (sent.role, sent.text)]
        return new[known[-1] :] if known else new

    async def history(self, run: str) -> RunRequest:
        """The conversation up to the end of a run, with its files. Raises Refused."""
        row = await self.previous(run)
        messages = await self.store.messages_until(row.session, row.id)
        return RunRequest("", history=messages, imported=await self._files_of(messages))

    async def previous(self, run: str) -> RunRow:
        row = await self.store.run(run)
        is_mine = row is not None and is_open_to(row, self.principal)
        # Without a log its response was deleted, and others of its session were not.
        if row is None or not is_mine or (row.ended is not None and not await self.store.events(row.id, 0, 1)):
            problem = "There is no such previous response, or it is not kept. Send the whole conversation instead."
            raise Refused(400, "previous_response_not_found", problem, param="previous_response_id")
        if COMPACTION in (mark_of(row, LANE) or {}).get("echo", {}):
            problem = "The previous response is a compaction. Send its item as input instead."
            raise Refused(400, "invalid_request", problem, param="previous_response_id")
        return row

    async def named_run(self, request: LaneRequest) -> RunRow | None:
        """The run that a request names, or the last one of the conversation or thread that it names. Raises Refused."""
        if request.previous:
            return await self.previous(request.previous)
        if request.conversation:
            session = await self._keyed_session(request.conversation)
            return await self._last_asked(session) if session else None
        return await self._named(self._thread(request.thread)) if request.thread else None

    async def returned_run(self, request: LaneRequest) -> RunRow | None:
        """The run that a request returns to, which an earlier one began under the same name."""
        return await self._named(self._run(request)) if request.run and request.thread else None

    async def remember_call(self, call: str, run: str, now: float) -> None:
        """Let the session be found by a call that is handed over. Raises StoreFailed."""
        await self.store.write([KeyRow(self.principal.name, f"{CALL}{call}", "", run, now)])

    def _names(self, request: LaneRequest, messages: Sequence[Message]) -> Sequence[str]:
        if request.thread:
            return self._thread(request.thread), *([self._run(request)] if request.run else ())
        return () if request.previous or request.conversation else (prefix_name(messages),)

    def _thread(self, thread: str) -> str:
        short = thread if len(thread) < LONGEST else hashlib.sha256(thread.encode()).hexdigest()
        return f"{THREAD}{self.lane}\n{short}"

    def _run(self, request: LaneRequest) -> str:
        named = f"{self.lane}\n{request.thread}\n{request.run}"
        return f"{RUN}{hashlib.sha256(named.encode()).hexdigest()}"

    async def _earlier_run(self, request: LaneRequest, split: Split) -> RunRow | None:
        for message in split.new if not request.previous else ():
            if message.call and (run := await self._named(f"{CALL}{message.call}")):
                return run
        if request.previous or request.conversation or request.thread:
            return await self.named_run(request)
        if not split.answer:
            return None
        run = await self._named(prefix_name(split.before))
        return run if run and await self._answered(run, split.answer) else None

    async def _named(self, name: str) -> RunRow | None:
        key = await self.store.key(self.principal.name, name)
        run = await self.store.run(key.run) if key else None  # deleted with its session, perhaps
        return run if run and is_open_to(run, self.principal) else None

    async def _answered(self, run: RunRow, answer: Sequence[Message]) -> bool:
        """Return True if these messages are what the run answered, white space aside.

        Some clients that stream keep text of which it turned out later that it was a thought.
        """
        found, streamed, after = Answer(), list[str](), 0
        while rows := await self.store.events(run.id, after, PAGE):
            for row in rows:
                found.add(row)
                streamed += [fields_of(row)["text"]] if row.type == TextDelta.type else []
            after = rows[-1].seq
        given = _bare("".join(message.text for message in answer))
        return given in (_bare(found.text), _bare("".join(streamed)))

    async def _is_last(self, run: RunRow) -> bool:
        """Return True unless a client has gone on in the session; runs that the server has begun do not count."""
        last = await self._last_asked(run.session)
        return last is None or last.id == run.id

    async def _last_asked(self, session: str) -> RunRow | None:
        """Return the last run that a client has begun in a session, of its newest ones."""
        newest = await self.store.last_runs(session, None, NEWEST, apps=False)
        asked = (row for row in newest if not (is_of_app(row) or json.loads(row.policy).get(UNASKED)))
        return next(asked, None)

    async def _forked(self, run: RunRow, new: Sequence[Message], files: Sequence[File]) -> RunRequest:
        earlier = await self.history(run.id)
        turn, origin = _begun(new, files), await self.store.session(run.session)
        return replace(
            turn,
            history=[*earlier.history, *turn.history],
            imported=[*earlier.imported, *turn.imported],
            modes=modes_in(origin.options) if origin else {},
        )

    async def _files_of(self, messages: Iterable[Message]) -> list[File]:
        """The stored files that messages refer to; one that is gone is left out."""
        found = list[File]()
        for attachment in _attachments(messages):
            try:
                found.append(File(attachment, await self.files.read(attachment.sha256)))
            except StoreFailed:
                continue
        return found


def _as_given(call: AskedCall, given: Mapping[tuple[str, str], AskedCall]) -> AskedCall:
    known = given.get((call.id, call.name))
    if known is None or call.given:
        return call
    return replace(call, given=known.given, giver=known.giver, written=known.written or call.written)


def prefix_name(messages: Sequence[Message]) -> str:
    """A name for a conversation up to a point: its texts, calls and files; no instructions and no thoughts.

    Clients change the former from turn to turn, and leave the latter out.
    """
    return prefix_names(messages, [len(messages)])[0]


def prefix_names(messages: Sequence[Message], ends: Sequence[int]) -> list[str]:
    """The names up to these points, which are in order: to the last ones, if there are many."""
    digest, names, wanted = hashlib.sha256(), list[str](), set(ends[-MOST_BEGINNINGS:])
    for end in range(len(messages) + 1):
        if end and (one := messages[end - 1]).role != "system":
            calls = [[call.id, call.name, call.arguments] for call in one.calls]
            parts = [one.role, one.text.strip(), calls, one.call, [file.sha256 for file in one.attachments]]
            digest.update(json.dumps(parts, sort_keys=True).encode())
        if end in wanted:
            names.append(f"{PREFIX}{digest.hexdigest()}")
    return names


def _is_of_dialogue(message: Message) -> bool:
    """Return False for instructions, and for an answer that says nothing: neither is the answer to a question."""
    return message.role != "system" and bool(message.role != "assistant" or message.calls or message.text.strip())


def _begun(messages: Sequence[Message], files: Sequence[File]) -> RunRequest:
    """A new session: the messages behind the last answer or result are the new one, the others its history."""
    end = next((at for at in range(len(messages), 0, -1) if messages[at - 1].role in ("assistant", "tool")), 0)
    history, new = messages[:end], messages[end:]
    return RunRequest(
        _joined(new),
        history=history,
        imported=_sent(history, files),
        files=_sent(new, files),
        untrusted=any(message.untrusted for message in new),
        outside=any(message.untrusted for message in messages if message.role == "user"),
    )


def _continued(session: str, new: Sequence[Message], files: Sequence[File]) -> RunRequest:
    results = [CallResult(message.call, message.text) for message in new if message.role == "tool" and message.call]
    words = [message for message in new if message.role != "tool"]
    untrusted = any(message.untrusted for message in words)
    return RunRequest(
        _joined(words), session, results=results, files=_sent(new, files), untrusted=untrusted, outside=untrusted
    )


def _joined(messages: Iterable[Message]) -> str:
    return "\n\n".join(message.text for message in messages if message.text.strip())


def _sent(messages: Iterable[Message], files: Sequence[File]) -> list[File]:
    """The files of a request that messages refer to, each once."""
    wanted = {attachment.sha256 for attachment in _attachments(messages)}
    return list({file.attachment.sha256: file for file in files if file.attachment.sha256 in wanted}.values())


def _attachments(messages: Iterable[Message]) -> list[Attachment]:
    return list({one.sha256: one for message in messages for one in message.attachments}.values())


def _bare(text: str) -> str:
    return "".join(text.split())

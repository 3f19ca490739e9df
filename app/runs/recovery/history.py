"""The history of a session as a run finds it: its conversation, and calls that earlier runs have left open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct

from app.core.events import AgentEvent
from app.core.messages import Message, dump, unanswered
from app.log.event_writer import LogWriter
from app.storage.changes import Change
from app.storage.runs import RunRow
from app.storage.sessions import MessageRow
from app.storage.store import Store
from app.transcript.conversation import Conversation
from app.transcript.run_request import CallResult

RUNS_LOOKED_AT = 16  # newest runs of a session; those that never had their turn are among them


class EarlierCalls(Struct, frozen=True):
    """Calls of earlier runs of a session: those whose tool had been started, and those that went to the client."""

    started: Collection[str] = ()
    handed: Collection[str] = ()


async def earlier_calls(
    store: Store, row: RunRow, messages: Sequence[Message], results: Sequence[CallResult]
) -> EarlierCalls:
    """Return what became of calls that earlier runs have left open, and that there are no results for."""
    answered = {one.call for one in results}
    if all(call.id in answered for call in unanswered(messages)):
        return EarlierCalls()
    runs = [one.id for one in await store.last_runs(row.session, None, RUNS_LOOKED_AT, apps=False)]
    started = {call for run in runs for call in await store.started_calls(run)}
    return EarlierCalls(started, {call for run in runs for call in await store.handed_calls(run)})


def conversation_of(
    row: RunRow,
    messages: list[Message],
    put: Callable[[Change], None],
    journal: LogWriter,
    log_event: Callable[[AgentEvent], None] = lambda _: None,
    *,
    begins: int | None = None,
    redacted: bool = False,
) -> Conversation:
    """The history of a run's session, each new message kept (`put`) under that run.

    What the run itself has said so far, before a restart, begins with the words that it was asked for with.
    """

    def keep(position: int, message: Message) -> None:
        put(MessageRow(row.session, position, row.id, dump(message)))

    begins = len(messages) if begins is None and (begins := request_in(row, messages)) is None else begins
    return Conversation(
        row.session,
        messages,
        keep,
        put,
        journal.flush,
        redactor=journal.redactor,
        log_event=log_event,
        begins=begins,
        run=row.id,
        redacted=redacted,
    )


def request_in(row: RunRow, messages: Sequence[Message]) -> int | None:
    """Return the position of the message that a run was begun with."""
    return next((at for at, one in enumerate(messages) if one.role == "user" and one.at == row.created), None)


async def begins_in(store: Store, row: RunRow, messages: Sequence[Message]) -> int:
    """Return where a run begins in the history. One without a message of its own begins behind the runs before it."""
    if (found := request_in(row, messages)) is not None:
        return found
    for earlier in await store.last_runs(row.session, row.id, RUNS_LOOKED_AT, apps=False):
        if until := await store.messages_until(row.session, earlier.id):
            return len(until)
    return 0


def broken_off(messages: Sequence[Message]) -> str:
    """Return what was said in the last replies, each of which broke off and was to be continued."""
    return "".join(reversed(list(_cut_texts(messages))))


def _cut_texts(messages: Sequence[Message]) -> Iterator[str]:
    for message in reversed(messages):
        if message.role == "tool":
            continue
        if message.role != "assistant" or not message.cut:
            return
        yield message.shown or ""

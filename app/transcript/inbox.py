"""Messages for a run under way: put in after its current round, so that history stays valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.core.attachments import Attachment, as_fields, dumped, loaded
from app.core.events import MessageAdded
from app.core.messages import Message
from app.storage.changes import Change
from app.storage.runs import InboxRow, InboxTaken

MAX_WAITING = 64


class InboxClosed(Exception):
    """The run has ended, or is about to: it will answer nothing more."""


class InboxFull(Exception):
    """Many messages wait already. The message says what to do."""

    def __init__(self) -> None:
        super().__init__(f"{MAX_WAITING} messages wait for this run already. Send more once it has taken them.")


class Inbox:
    """The person's messages for a run in the order they came. `put` makes each durable, and that all are taken."""

    def __init__(self, run: str, put: Callable[[Change], None]) -> None:
        self._run = run
        self._put = put
        self._waiting: list[Message] = []
        self._posted = 0
        self._closed = False

    def post(self, text: str, attachments: Sequence[Attachment] = (), *, untrusted: bool = False) -> None:
        """Raises InboxClosed, InboxFull."""
        if self._closed:
            raise InboxClosed
        if len(self._waiting) >= MAX_WAITING:
            raise InboxFull
        message = Message("user", text, attachments=tuple(attachments), untrusted=untrusted)
        self._put(InboxRow(self._run, self._posted, text, dumped(message.attachments), untrusted))
        self._posted += 1
        self._waiting.append(message)

    def restore(self, rows: Sequence[InboxRow]) -> None:
        """Restore stored messages, before anything is posted."""
        self._waiting += map(message_of, rows)
        self._posted = max((row.position + 1 for row in rows), default=0)

    def take(self) -> list[Message]:
        taken, self._waiting = self._waiting, []
        if taken:
            self._put(InboxTaken(self._run))
        return taken

    def take_or_close(self) -> list[Message]:
        """Take the waiting messages, or close the inbox if there are none, so that no message is lost at the end."""
        self._closed = not self._waiting
        return self.take()

    def close(self) -> list[Message]:
        self._closed = True
        return self.take()

    def leave(self) -> None:
        """Close it with what is in it: it stays stored, for the session's next run."""
        self._closed = True


def message_of(row: InboxRow) -> Message:
    return Message("user", row.text, attachments=loaded(row.attachments), untrusted=bool(row.untrusted))


def added(message: Message) -> MessageAdded:
    """Return the event for a message that was added to the history."""
    return MessageAdded(message.text, [*map(as_fields, message.attachments)] or None)

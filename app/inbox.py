"""Messages for a run under way: put in after its current round, so that history stays valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.store import InboxRow

MAX_WAITING = 64


class InboxClosed(Exception):
    """The run has ended, or is about to: it will answer nothing more."""


class InboxFull(Exception):
    """Many messages wait already. The message says what to do."""

    def __init__(self) -> None:
        super().__init__(f"{MAX_WAITING} messages wait for this run already. Send more once it has taken them.")


class Inbox:
    """Texts in the order they came. `keep(text)` makes each durable, `forget()` says that all are in the history."""

    def __init__(self, keep: Callable[[int, str], None], forget: Callable[[], None]) -> None:
        self._keep = keep
        self._forget = forget
        self._waiting: list[str] = []
        self._posted = 0
        self._closed = False

    def post(self, text: str) -> None:
        """Raises InboxClosed, InboxFull."""
        if self._closed:
            raise InboxClosed
        if len(self._waiting) >= MAX_WAITING:
            raise InboxFull
        self._keep(self._posted, text)
        self._posted += 1
        self._waiting.append(text)

    def restore(self, rows: Sequence[InboxRow]) -> None:
        """What is stored already, before anything is posted."""
        self._waiting += [row.text for row in rows]
        self._posted = max((row.position + 1 for row in rows), default=0)

    def take(self) -> list[str]:
        taken, self._waiting = self._waiting, []
        if taken:
            self._forget()
        return taken

    def take_or_close(self) -> list[str]:
        """What waits; if nothing does, nothing will: a message can never come between the last look and the end."""
        self._closed = not self._waiting
        return self.take()

    def close(self) -> list[str]:
        self._closed = True
        return self.take()

    def leave(self) -> None:
        """Close it with what is in it: it stays stored, for the session's next run."""
        self._closed = True

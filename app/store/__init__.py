"""Where runs, events and messages are kept: what the rest of the house knows of it.

Portable: nothing outside this folder knows which database it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.messages import Message

ALL = 1 << 40  # as a limit: more events than a log can have


class StoreFailed(Exception):
    """The database could not read or write. The message says what happened and what to do next."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """`created` is a Unix time in seconds, here and below."""

    id: str
    principal: str
    created: float
    title: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """`state` is `queued`, `running` or, once it has ended, the reason or error code of its terminal event."""

    id: str
    session: str
    principal: str
    model: str
    state: str
    created: float
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class RunBegan:
    """A queued run's turn has come."""

    id: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    id: str
    state: str
    ended: float


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of a run's log; `seq` counts from 1, `data` is the JSON of its `data:` line.

    `parts`: several deltas joined after the run had ended; the JSON of a list, how many characters of `text` each of
    them had, the last one's number being `seq`. A reader who has seen some of them gets the rest of the text.
    """

    run: str
    seq: int
    type: str
    data: str
    parts: str | None = None


@dataclass(frozen=True, slots=True)
class MessageRow:
    """`message` is the JSON of `app.messages.dump`."""

    session: str
    position: int
    run: str
    message: str


@dataclass(frozen=True, slots=True)
class TokenRow:
    """An access token: only its SHA-256 is kept."""

    sha256: str
    name: str
    role: str
    created: float


@dataclass(frozen=True, slots=True)
class InboxRow:
    """A message for a run that is not yet in the history; `position` counts from 0."""

    run: str
    position: int
    text: str


@dataclass(frozen=True, slots=True)
class InboxTaken:
    """All messages for a run are in the history now."""

    run: str


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An Idempotency-Key: the run it began, and the SHA-256 of the request it came with."""

    principal: str
    key: str
    body: str
    run: str
    created: float


@dataclass(frozen=True, slots=True)
class StateRow:
    """A named state of the whole server; a later one replaces it."""

    name: str
    value: str


Change = (
    SessionRow
    | RunRow
    | RunBegan
    | RunEnded
    | EventRow
    | MessageRow
    | TokenRow
    | InboxRow
    | InboxTaken
    | KeyRow
    | StateRow
)


class Store(Protocol):
    """One database. Every method raises StoreFailed."""

    async def write(self, changes: Sequence[Change]) -> None:
        """All of them or none."""

    async def run(self, run: str) -> RunRow | None: ...

    async def unfinished_runs(self) -> list[RunRow]: ...

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        """At most `limit` events with a sequence number above `after`, in order."""
        ...

    async def last_seq(self, run: str) -> int: ...

    async def started_calls(self, run: str) -> set[str]:
        """Ids of the calls of a run whose tool had been started."""
        ...

    async def inbox(self, run: str) -> list[str]:
        """The messages for a run that are not in the history, in order."""
        ...

    async def stranded(self, session: str) -> list[InboxRow]:
        """Messages for runs of a session that ended before they could put them into the history."""
        ...

    async def key(self, principal: str, key: str) -> KeyRow | None: ...

    async def state(self, name: str) -> str | None: ...

    async def bulky_runs(self, ended_before: float, limit: int) -> list[str]:
        """Runs that ended before that time and whose deltas have not been joined."""
        ...

    async def replace_events(self, run: str, rows: Sequence[EventRow]) -> None:
        """The log of an ended run, in fewer rows; the run is not bulky any more. Nothing, if it has been deleted."""

    async def forget_before(self, sessions: float, keys: float) -> int:
        """Delete sessions without activity since `sessions` and keys made before `keys`; how many sessions went."""
        ...

    async def sizes(self) -> dict[str, int]:
        """Rows of each table, and the bytes of the whole under `bytes`."""
        ...

    async def vacuum(self) -> None: ...

    async def session(self, session: str) -> SessionRow | None: ...

    async def sessions(self, principal: str, limit: int) -> list[SessionRow]:
        """Newest first."""
        ...

    async def runs(self, session: str) -> list[RunRow]:
        """Oldest first."""
        ...

    async def messages(self, session: str) -> list[Message]: ...

    async def delete_session(self, session: str) -> None: ...

    async def check(self) -> None:
        """Prove that a change could be kept now."""

    async def tokens(self) -> list[TokenRow]: ...

    async def close(self) -> None: ...

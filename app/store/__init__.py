"""Where runs, events and messages are kept: what the rest of the house knows of it.

Portable: nothing outside this folder knows which database it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.messages import Message


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
    """`state` is `running` or, once it has ended, the reason or error code of its terminal event."""

    id: str
    session: str
    principal: str
    model: str
    state: str
    created: float
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class RunEnded:
    id: str
    state: str
    ended: float


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of a run's log; `seq` counts from 1, `data` is the JSON of its `data:` line."""

    run: str
    seq: int
    type: str
    data: str


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


Change = SessionRow | RunRow | RunEnded | EventRow | MessageRow | TokenRow


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

"""Where runs, events and messages are kept: what the rest of the house knows of it.

Portable: nothing outside this folder knows which database it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.core.messages import Message
from app.storage.approval_rows import ApprovalDecided, ApprovalRow, GrantRow
from app.storage.endpoint_rows import EndpointRow
from app.storage.mcp_rows import McpPinRow, McpServerRow
from app.storage.rows import (
    AuditRow,
    Change,
    EventRow,
    InboxRow,
    KeyRow,
    ResultPart,
    RunRow,
    SessionRow,
    SummaryRow,
    TokenCounts,
    TokenRow,
)
from app.storage.session_state import Found
from app.storage.usage_rows import Spent

ALL = 1 << 40  # as a limit: more events than a log can have


class StoreFailed(Exception):
    """The database could not read or write. The message says what happened and what to do next."""


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

    async def call_events(self, run: str, call: str) -> list[EventRow]:
        """Of one call: how it was started, finished or rejected."""
        ...

    async def inbox(self, run: str) -> list[InboxRow]:
        """The messages for a run that are not in the history, in order."""
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

    async def sessions(self, principal: str, limit: int, before: str | None = None) -> list[SessionRow]:
        """The ones used last first; only those behind the session `before`."""
        ...

    async def find_sessions(self, principal: str, query: str, limit: int) -> list[tuple[SessionRow, str]]:
        """Those that have all words of the query in one message or in the title, in the same order.

        Each with the newest such message, or with nothing.
        """
        ...

    async def runs(self, session: str) -> list[RunRow]:
        """Oldest first."""
        ...

    async def next_run(self, session: str, after: str | None) -> RunRow | None:
        """The run of a session behind this one, or (None) its first."""
        ...

    async def last_runs(self, session: str, before: str | None, limit: int) -> list[RunRow]:
        """Newest first; only those before that one, if it is given."""
        ...

    async def messages(self, session: str) -> list[Message]: ...

    async def request_of(self, session: str, run: str) -> Message | None:
        """The words that a run was asked for with."""
        ...

    async def found(self, session: str) -> Found:
        """What a run finds in its session."""
        ...

    async def delete_session(self, session: str) -> None: ...

    async def check(self) -> None:
        """Prove that a change could be kept now."""

    async def tokens(self) -> list[TokenRow]:
        """Oldest first, those that were revoked or have expired included."""
        ...

    async def token(self, sha256: str) -> TokenRow | None: ...

    async def token_counts(self, now: float) -> TokenCounts: ...

    async def add_token(self, row: TokenRow, also: Sequence[Change] = ()) -> bool:
        """False, and nothing written, if its name is in use, or has been used in another spelling of its case."""
        ...

    async def approval(self, run: str, call: str) -> ApprovalRow | None: ...

    async def approvals(self, principal: str) -> list[ApprovalRow]:
        """Those that are pending, oldest first."""
        ...

    async def pending_calls(self, principal: str) -> list[tuple[str, str]]:
        """Run and call of each of those."""
        ...

    async def pending_of(self, run: str) -> list[ApprovalRow]:
        """Those of one run whose call may not have been run, whatever was decided."""
        ...

    async def approved_for_session(self, session: str) -> list[ApprovalRow]:
        """Those of a session that were approved for all of it."""
        ...

    async def decide_approval(self, decided: ApprovalDecided, also: Sequence[Change] = ()) -> bool:
        """Compare and set: False, and nothing written, if it is not pending any more."""
        ...

    async def grants(self, session: str) -> list[GrantRow]:
        """Oldest first, those that have expired included."""
        ...

    async def audit(self, before: int, limit: int) -> list[tuple[int, AuditRow]]:
        """Newest first, each with its number; those with a number below `before`."""
        ...

    async def forget_audit(self, before: float) -> None: ...

    async def endpoints(self) -> list[EndpointRow]:
        """Oldest first."""
        ...

    async def mcp_servers(self) -> list[McpServerRow]:
        """Oldest first."""
        ...

    async def mcp_pins(self) -> list[McpPinRow]: ...

    async def summaries(self, session: str) -> list[SummaryRow]:
        """Those of a session, the one that stands for most of it last."""
        ...

    async def search(self, session: str, query: str, limit: int) -> list[tuple[int, Message]]:
        """Messages of a session that have any words of the query, best first, each with its position."""
        ...

    async def result(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        """At most `size` characters of a kept result, from the character `offset`; None if it was not kept."""
        ...

    async def result_lines(self, session: str, call: str) -> int | None:
        """How many lines a kept result has; None if it was not kept."""
        ...

    async def file(self, sha256: str, session: str | None = None) -> bytes | None:
        """The bytes of a file; with a `session` only if that one has it."""
        ...

    async def usage(self, principal: str, kind: str, period: str) -> float: ...

    async def spent(self, *, principal: str | None = None, month: str | None = None) -> list[Spent]:
        """Sums of what was used, one for each principal, month and model, newest first; only those asked for."""
        ...

    async def spent_by_runs(self, session: str) -> list[Spent]:
        """Of a session, one for each run and model."""
        ...

    async def close(self) -> None: ...

"""Runs, their event logs and recordings, the messages that wait for them, the keys that started them, and helpers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from app.core.events import FileChanged, ToolApp, ToolFinished, ToolHanded, ToolRejected, ToolStarted
from app.storage.changes import Change, ChangeWriter
from tools.base.hidden_fields import repr_without

ALL = 1 << 40  # as a limit: more events than a log can have

# Events that are looked for by their call, and those that are by their type: no log packs them.
OF_CALLS = (ToolHanded.type, ToolStarted.type, ToolFinished.type, ToolApp.type, ToolRejected.type)
LOOKED_FOR = frozenset({*OF_CALLS, FileChanged.type})
OF_APP = '{"of_app": true'  # how the policy of a call of an app begins: nothing inside of it is taken for that


class RunRow(Change, frozen=True):
    """`state` is `queued`, `running` or, once it has ended, the reason or error code of its terminal event.

    `policy`: JSON of the approval mode and the tools that the run was started with.
    """

    id: str
    session: str
    principal: str
    model: str
    state: str
    created: float
    ended: float | None = None
    policy: str = "{}"


class RunBegan(Change, frozen=True):
    """A queued run has left the queue."""

    id: str


KEY_LIFE_S = 24 * 3600  # of an Idempotency-Key


class RunEnded(Change, frozen=True):
    id: str
    state: str
    ended: float


class EventRow(Change, frozen=True, gc=False):
    """One event of a run's log; `seq` counts from 1, `data` is the JSON of its `data:` line.

    `parts`: several deltas joined after the run had ended; a JSON list of the number of characters of `text` that each
    of them had, the last one's number being `seq`. A reader who has seen some of them receives the rest of the text.
    """

    run: str
    seq: int
    type: str
    data: str
    parts: str | None = None


class InboxRow(Change, frozen=True):
    """A message for a run that is not yet in the history; `position` counts from 0, `attachments` is JSON.

    `untrusted`: it comes from a model whose conversation held untrusted text.
    """

    run: str
    position: int
    text: str
    attachments: str = "[]"
    untrusted: bool = False


class InboxTaken(Change, frozen=True):
    """All messages for a run are in the history now."""

    run: str


class KeyRow(Change, frozen=True):
    """An Idempotency-Key: the run that it started, and the SHA-256 of the request that it came with.

    With an empty `body` it is another name that the run can be found by, as long as it is kept.
    """

    principal: str
    key: str
    body: str
    run: str
    created: float


class HelperRow(Change, frozen=True):
    """`run` was begun in its own `session` by the `call` of `parent_run`. `depth` counts from 1."""

    session: str
    run: str
    parent_session: str
    parent_run: str
    call: str
    depth: int
    created: float


class RecordingRow(Change, frozen=True):
    """One part, in the order of `at` (Unix time in microseconds); `data` is compressed JSON of its `kind`."""

    run: str
    at: int
    kind: str
    data: bytes

    __repr__ = repr_without("data")


class RunCounts(Struct, frozen=True):
    """The number of runs that have ended, and the first part of the newest recording, None without one."""

    ended: int = 0
    newest: bytes | None = None


class RunStore(ChangeWriter, Protocol):
    async def run(self, run: str) -> RunRow | None: ...

    async def runs(self, session: str) -> list[RunRow]:
        """Runs of a session, oldest first."""

    async def active_runs(self, session: str) -> list[RunRow]:
        """Runs of a session that have not ended, in their order: the first is under way, or about to be."""

    async def active_runs_of(self, principal: str) -> list[RunRow]:
        """Runs of a principal that have not ended, oldest first."""

    async def next_run(self, session: str, after: str | None) -> RunRow | None:
        """The run of a session that follows `after`, or (None) its first."""

    async def first_runs(self, sessions: Sequence[str]) -> list[RunRow]:
        """The first run of each of the sessions that has one of its own."""

    async def last_runs(self, session: str, before: str | None, limit: int, *, apps: bool = True) -> list[RunRow]:
        """Runs of a session, newest first; only those that precede `before`, if it is given.

        Without `apps`, calls of apps that went well are left out, but for the newest run.
        """

    async def ended_runs(self, since: float) -> list[RunRow]:
        """Runs of all principals that ended after that time, oldest first."""

    async def unfinished_runs(self) -> list[RunRow]: ...

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        """At most `limit` events with a sequence number above `after`, in order."""

    async def last_seq(self, run: str) -> int: ...

    async def handed_calls(self, run: str) -> set[str]:
        """Return the calls of a run that were handed over to the client."""

    async def started_calls(self, run: str) -> set[str]:
        """Ids of the calls of a run whose tool had been started."""

    async def events_of(self, session: str, kind: str, limit: int) -> list[EventRow]:
        """The last events of this type in the runs of a session, in their order; of types that are not packed."""

    async def call_events(self, run: str, call: str) -> list[EventRow]:
        """Events of one call: started, finished or rejected, and shown by an app."""

    async def bulky_runs(self, ended_before: float, limit: int) -> list[str]:
        """Runs that ended before that time and whose deltas have not been joined."""

    async def replace_events(self, run: str, rows: Sequence[EventRow]) -> None:
        """Replace the log of an ended run by fewer rows; the run is not bulky any more. No effect on a deleted run."""

    async def recording(self, run: str) -> list[RecordingRow]:
        """The parts of a run's recording in their order; none of a run that was not recorded."""

    async def inbox(self, run: str) -> list[InboxRow]:
        """Messages for a run that are not in the history, in order."""

    async def key(self, principal: str, key: str) -> KeyRow | None: ...

    async def keys(self, principal: str, keys: Iterable[str]) -> list[KeyRow]:
        """Those of the keys that there are."""

    async def helper(self, session: str) -> HelperRow | None:
        """The helper whose session this is."""

    async def helpers(self, parent_session: str) -> list[HelperRow]:
        """The helpers of a session's runs, oldest first, without their own helpers."""

    async def lineage(self, run: str) -> list[HelperRow]:
        """The helper that this run belongs to, behind those above it; empty for a run of the person."""

    async def tainted(self, session: str) -> bool:
        """Return True if a message of the session is untrusted."""

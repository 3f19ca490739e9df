"""Changes of rows that servers hold in memory: what another server has to read anew after one of them.

A row that no server holds in memory is not here: it is read from the store whenever it is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from app.storage.changes import Change
from app.storage.endpoints import EndpointRemoved, EndpointRow
from app.storage.labels import CallLabelsEnded, FileLabel
from app.storage.mcp import (
    McpPinRemoved,
    McpPinRow,
    McpServerRemoved,
    McpServerRow,
    McpTrustRemoved,
    McpTrustRow,
)
from app.storage.memories import (
    MemoriesDeleted,
    MemoriesOfSessionDeleted,
    MemoryDeleted,
    MemoryJob,
    MemoryRow,
    VectorRow,
)
from app.storage.notices.digests import DigestDue
from app.storage.notices.notifications import (
    DeliveriesGivenUp,
    DeliveriesRemoved,
    DeliveryRow,
    DeliveryTried,
    TargetRemoved,
    TargetRow,
)
from app.storage.people.secrets import SecretRemoved, SecretRow
from app.storage.schedules import ScheduleMoved, ScheduleRemoved, ScheduleRow
from app.storage.sessions import SessionOptions
from app.storage.state import StateRow
from app.storage.tokens import TokenRevoked, TokenRow

DELIVERIES, DIGESTS, DOCUMENTS, ENDPOINTS, LABELS, MCP, MEMORY_JOBS = (
    *("deliveries", "digests", "documents", "endpoints", "labels", "mcp", "memory jobs"),
)
OPTIONS, SCHEDULES, SEALED, SECRETS, TARGETS, TOKENS, VECTORS = (
    *("options", "schedules", "sealed", "secrets", "targets", "tokens", "vectors"),
)
STATE = "state "  # before the name of the row

OF_KINDS: dict[str, tuple[type[Change], ...]] = {
    ENDPOINTS: (EndpointRow, EndpointRemoved),
    MCP: (McpServerRow, McpServerRemoved, McpTrustRow, McpTrustRemoved, McpPinRow, McpPinRemoved),
    LABELS: (FileLabel, CallLabelsEnded),
    TARGETS: (TargetRow, TargetRemoved),
    DELIVERIES: (DeliveryRow, DeliveryTried, DeliveriesGivenUp, DeliveriesRemoved),
    SCHEDULES: (ScheduleRow, ScheduleMoved, ScheduleRemoved),
    SECRETS: (SecretRow, SecretRemoved),
    OPTIONS: (SessionOptions,),
    DIGESTS: (DigestDue,),
    MEMORY_JOBS: (MemoryJob,),
    VECTORS: (MemoryRow, MemoryDeleted, MemoriesDeleted, MemoriesOfSessionDeleted, VectorRow),
    TOKENS: (TokenRow, TokenRevoked),
}
KINDS = {change: kind for kind, changes in OF_KINDS.items() for change in changes}
# Of these, the part of what is held that has changed; of the others, all of it has.
PARTS: dict[str, Callable[[Change], str]] = {VECTORS: lambda row: str(getattr(row, "owner", ""))}
# A write of these ends once every other server has read them: what they forbid is forbidden everywhere by then.
EXACT = frozenset({f"{STATE}paused", LABELS, OPTIONS, TOKENS})
# What the server that has changed it does not read anew.
NOT_OWN = frozenset({DOCUMENTS})

Parts = frozenset[str]
ALL: Parts = frozenset()
"""Any part: what has changed is not known."""
Kinds = dict[str, Parts]


def kinds_of(changes: Iterable[Change]) -> Kinds:
    """Return what has to be read anew after these changes."""
    kinds: Kinds = {}
    for change in changes:
        if kind := f"{STATE}{change.name}" if isinstance(change, StateRow) else KINDS.get(type(change)):
            part = PARTS.get(kind)
            kinds = joined(kinds, {kind: frozenset({part(change)}) if part else ALL})
    return kinds


def joined(some: Kinds, others: Kinds) -> Kinds:
    """Return what has changed by both."""
    both = dict(some)
    for kind, parts in others.items():
        known = both.get(kind)
        both[kind] = ALL if parts == ALL or known == ALL else parts | (known or ALL)
    return both

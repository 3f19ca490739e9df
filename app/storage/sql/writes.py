"""The statements of all changes but events."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.sql import (
    approvals,
    branches,
    configuration,
    documents,
    labels,
    library,
    memories,
    notices,
    people,
    permissions,
    principals,
    runs,
    schedules,
    sessions,
)
from app.storage.sql.columns import Write

WRITES: dict[type[Change], Write] = {
    **runs.WRITES,
    **sessions.WRITES,
    **approvals.WRITES,
    **principals.WRITES,
    **configuration.WRITES,
    **documents.WRITES,
    **notices.WRITES,
    **memories.WRITES,
    **schedules.WRITES,
    **labels.WRITES,
    **library.WRITES,
    **people.WRITES,
    **permissions.WRITES,
    **branches.WRITES,
}

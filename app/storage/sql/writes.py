"""The statements of all changes but events."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.sql import (
    approvals,
    branches,
    configuration,
    documents,
    helpers,
    labels,
    library,
    memories,
    people,
    principals,
    profiles,
    runs,
    schedules,
    served_models,
    sessions,
)
from app.storage.sql.columns import Write
from app.storage.sql.notices import digests, notifications

WRITES: dict[type[Change], Write] = {
    **runs.WRITES,
    **sessions.WRITES,
    **approvals.WRITES,
    **principals.WRITES,
    **configuration.WRITES,
    **documents.WRITES,
    **notifications.WRITES,
    **digests.WRITES,
    **memories.WRITES,
    **profiles.WRITES,
    **served_models.WRITES,
    **schedules.WRITES,
    **labels.WRITES,
    **helpers.WRITES,
    **library.WRITES,
    **people.WRITES,
    **branches.WRITES,
}

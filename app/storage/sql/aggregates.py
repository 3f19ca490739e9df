"""The aggregates that are the same in every database."""

from __future__ import annotations

from app.storage.sql.approvals import SqlApprovals
from app.storage.sql.configuration import SqlConfiguration
from app.storage.sql.documents import SqlDocuments
from app.storage.sql.labels import SqlLabels
from app.storage.sql.library import SqlLibrary
from app.storage.sql.notices import SqlNotices
from app.storage.sql.people import SqlPeople
from app.storage.sql.permissions import SqlPermissions
from app.storage.sql.principals import SqlPrincipals
from app.storage.sql.schedules import SqlSchedules


class SqlAggregates(
    SqlApprovals,
    SqlPrincipals,
    SqlConfiguration,
    SqlDocuments,
    SqlNotices,
    SqlSchedules,
    SqlLabels,
    SqlLibrary,
    SqlPeople,
    SqlPermissions,
):
    """Their reads, and the writes that look at rows before."""

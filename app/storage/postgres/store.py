"""The store in a PostgreSQL database: an implementation of app.storage.store.Store."""

from __future__ import annotations

from app.storage.postgres.rates import PostgresRates
from app.storage.postgres.retention import PostgresRetention
from app.storage.postgres.sessions import PostgresHelpers, PostgresMemories, PostgresSessions
from app.storage.postgres.usage import PostgresUsage
from app.storage.sql.approvals import SqlApprovals
from app.storage.sql.configuration import SqlConfiguration
from app.storage.sql.documents import SqlDocuments
from app.storage.sql.labels import SqlLabels
from app.storage.sql.notices.digests import SqlDigests
from app.storage.sql.notices.notifications import SqlNotifications
from app.storage.sql.principals import SqlPrincipals
from app.storage.sql.profiles import SqlProfiles
from app.storage.sql.schedules import SqlSchedules
from app.storage.sql.served_models import SqlServedModels


class PostgresStore(
    PostgresRetention,
    PostgresSessions,
    PostgresMemories,
    PostgresHelpers,
    PostgresUsage,
    PostgresRates,
    SqlApprovals,
    SqlPrincipals,
    SqlConfiguration,
    SqlDocuments,
    SqlNotifications,
    SqlDigests,
    SqlProfiles,
    SqlServedModels,
    SqlSchedules,
    SqlLabels,
):
    """Every change is in its table, and durable, when `write` returns."""

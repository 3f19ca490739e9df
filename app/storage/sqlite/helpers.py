"""Helpers in SQLite, which looks into the JSON of messages."""

from __future__ import annotations

from app.storage.sql.helpers import SqlHelpers


class SQLiteHelpers(SqlHelpers):
    _untrusted = "json_extract(message, '$.untrusted')"

"""What is read of the database: one query per question, each answered by rows."""

from __future__ import annotations

import json
from typing import Any

from app.core.attachments import loaded
from app.core.messages import Message, load
from app.storage.approval_rows import ApprovalRow, GrantRow
from app.storage.endpoint_rows import EndpointRow
from app.storage.mcp_rows import McpPinRow, McpServerRow
from app.storage.rows import (
    AuditRow,
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
from app.storage.search_words import BY_WORDS, by_parts, matching, without_spaces, words_of
from app.storage.session_state import Found
from app.storage.sqlite.listing import holding, newest
from app.storage.sqlite.reader import Question
from app.storage.sqlite.statements import (
    APPROVAL_COLUMNS,
    ASKED,
    AUDIT_COLUMNS,
    CALL,
    DISABLED,
    ENDPOINT_COLUMNS,
    EVENT_COLUMNS,
    GRANTS,
    INBOX,
    MCP_PIN_COLUMNS,
    MCP_SERVER_COLUMNS,
    MESSAGES,
    RESULT_LINES,
    RUN_COLUMNS,
    SESSION_COLUMNS,
    SPENT_COLUMNS,
    SPENT_SUMS,
    STRANDED,
    SUMMARY_COLUMNS,
    TABLES,
    TOKEN_COLUMNS,
    TOKEN_COUNTS,
)
from app.storage.usage_rows import Spent


class Reads:
    """The reading half of a store. Every method raises StoreFailed."""

    async def _each(self, *questions: Question) -> list[list[Any]]:
        """The rows that answer each question, in one go."""
        raise NotImplementedError

    async def _all(self, query: str, *values: object) -> list[Any]:
        return (await self._each((query, values)))[0]

    async def run(self, run: str) -> RunRow | None:
        rows = await self._all(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ?", run)
        return RunRow(*rows[0]) if rows else None

    async def runs(self, session: str) -> list[RunRow]:
        query = f"SELECT {RUN_COLUMNS} FROM runs WHERE session = ? ORDER BY created, rowid"
        return [RunRow(*row) for row in await self._all(query, session)]

    async def next_run(self, session: str, after: str | None) -> RunRow | None:
        which, values = _beside(">", after)
        query = f"SELECT {RUN_COLUMNS} FROM runs WHERE session = ?{which} ORDER BY created, rowid LIMIT 1"
        rows = await self._all(query, session, *values)
        return RunRow(*rows[0]) if rows else None

    async def last_runs(self, session: str, before: str | None, limit: int) -> list[RunRow]:
        which, values = _beside("<", before)
        query = f"SELECT {RUN_COLUMNS} FROM runs WHERE session = ?{which} ORDER BY created DESC, rowid DESC LIMIT ?"
        return [RunRow(*row) for row in await self._all(query, session, *values, limit)]

    async def unfinished_runs(self) -> list[RunRow]:
        query = f"SELECT {RUN_COLUMNS} FROM runs WHERE state IN ('queued', 'running') ORDER BY created"
        return [RunRow(*row) for row in await self._all(query)]

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        query = f"SELECT {EVENT_COLUMNS} FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [EventRow(*row) for row in await self._all(query, run, after, limit)]

    async def last_seq(self, run: str) -> int:
        rows = await self._all("SELECT COALESCE(MAX(seq), 0) FROM events WHERE run = ?", run)
        return int(rows[0][0])

    async def session(self, session: str) -> SessionRow | None:
        rows = await self._all(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?", session)
        return SessionRow(*rows[0]) if rows else None

    async def sessions(self, principal: str, limit: int, before: str | None = None) -> list[SessionRow]:
        query, values = newest(principal, limit, before)
        return [SessionRow(*row) for row in await self._all(query, *values)]

    async def find_sessions(self, principal: str, query: str, limit: int) -> list[tuple[SessionRow, str]]:
        found: dict[str, tuple[SessionRow, str]] = {}
        for rows in await self._each(*holding(principal, query, limit)):
            found |= {row[0]: (SessionRow(*row[:-1]), row[-1] or "") for row in rows}
        return sorted(found.values(), key=lambda one: (one[0].updated, one[0].id), reverse=True)[:limit]

    async def messages(self, session: str) -> list[Message]:
        return [load(row[0]) for row in await self._all(MESSAGES, session)]

    async def request_of(self, session: str, run: str) -> Message | None:
        said, waiting = await self._each((ASKED, (session, run)), (INBOX, (run,)))
        if said:
            return load(said[0][0])
        if not waiting:
            return None
        first = InboxRow(*waiting[0])
        return Message("user", first.text, attachments=loaded(first.attachments))

    async def found(self, session: str) -> Found:
        asked = (MESSAGES, STRANDED, DISABLED, GRANTS)
        messages, stranded, disabled, grants = await self._each(*((query, (session,)) for query in asked))
        return Found(
            [load(row[0]) for row in messages],
            [InboxRow(*row) for row in stranded],
            json.loads(disabled[0][0]) if disabled else [],
            [GrantRow(*row) for row in grants],
        )

    async def started_calls(self, run: str) -> set[str]:
        rows = await self._all("SELECT data FROM events WHERE run = ? AND type = 'tool.started'", run)
        return {json.loads(row[0])["call"] for row in rows}

    async def call_events(self, run: str, call: str) -> list[EventRow]:
        return [EventRow(*row) for row in await self._all(CALL, run, call)]

    async def inbox(self, run: str) -> list[InboxRow]:
        rows = await self._all(INBOX, run)
        return [InboxRow(*row) for row in rows]

    async def key(self, principal: str, key: str) -> KeyRow | None:
        query = "SELECT principal, key, body, run, created FROM idempotency WHERE principal = ? AND key = ?"
        rows = await self._all(query, principal, key)
        return KeyRow(*rows[0]) if rows else None

    async def state(self, name: str) -> str | None:
        rows = await self._all("SELECT value FROM state WHERE name = ?", name)
        return rows[0][0] if rows else None

    async def bulky_runs(self, ended_before: float, limit: int) -> list[str]:
        query = "SELECT id FROM runs WHERE joined = 0 AND ended < ? ORDER BY ended LIMIT ?"
        return [row[0] for row in await self._all(query, ended_before, limit)]

    async def sizes(self) -> dict[str, int]:
        counts = {table: (await self._all(f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}
        pages, size = (await self._all("PRAGMA page_count"))[0][0], (await self._all("PRAGMA page_size"))[0][0]
        return counts | {"bytes": pages * size}

    async def tokens(self) -> list[TokenRow]:
        return [TokenRow(*row) for row in await self._all(f"SELECT {TOKEN_COLUMNS} FROM tokens ORDER BY created")]

    async def token(self, sha256: str) -> TokenRow | None:
        rows = await self._all(f"SELECT {TOKEN_COLUMNS} FROM tokens WHERE sha256 = ?", sha256)
        return TokenRow(*rows[0]) if rows else None

    async def token_counts(self, now: float) -> TokenCounts:
        return TokenCounts(*(await self._all(TOKEN_COUNTS, now))[0])

    async def approval(self, run: str, call: str) -> ApprovalRow | None:
        rows = await self._approvals("run = ? AND call = ?", run, call)
        return rows[0] if rows else None

    async def approvals(self, principal: str) -> list[ApprovalRow]:
        return await self._approvals("principal = ? AND state = 'pending' ORDER BY created", principal)

    async def pending_calls(self, principal: str) -> list[tuple[str, str]]:
        query = "SELECT run, call FROM approvals WHERE principal = ? AND state = 'pending' ORDER BY created"
        return [(run, call) for run, call in await self._all(query, principal)]

    async def pending_of(self, run: str) -> list[ApprovalRow]:
        return await self._approvals("run = ? AND state IN ('pending', 'approved', 'denied') ORDER BY created", run)

    async def approved_for_session(self, session: str) -> list[ApprovalRow]:
        return await self._approvals("session = ? AND state = 'approved' AND scope = 'session'", session)

    async def _approvals(self, which: str, *values: object) -> list[ApprovalRow]:
        rows = await self._all(f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE {which}", *values)
        return [ApprovalRow(*row) for row in rows]

    async def grants(self, session: str) -> list[GrantRow]:
        return [GrantRow(*row) for row in await self._all(GRANTS, session)]

    async def audit(self, before: int, limit: int) -> list[tuple[int, AuditRow]]:
        query = f"SELECT number, {AUDIT_COLUMNS} FROM audit WHERE number < ? ORDER BY number DESC LIMIT ?"
        return [(number, AuditRow(*row)) for number, *row in await self._all(query, before, limit)]

    async def usage(self, principal: str, kind: str, period: str) -> float:
        query = "SELECT amount FROM used WHERE principal = ? AND kind = ? AND period = ?"
        rows = await self._all(query, principal, kind, period)
        return float(rows[0][0]) if rows else 0.0

    async def spent(self, *, principal: str | None = None, month: str | None = None) -> list[Spent]:
        asked = {"principal = ?": principal, "month = ?": month}
        given = {one: value for one, value in asked.items() if value is not None}
        query = f"""
            SELECT principal, month, model, '', '', {SPENT_SUMS} FROM spent WHERE {" AND ".join(given) or "1 = 1"}
            GROUP BY principal, month, model ORDER BY month DESC, principal, model
        """
        return [Spent(*row) for row in await self._all(query, *given.values())]

    async def spent_by_runs(self, session: str) -> list[Spent]:
        return [Spent(*row) for row in await self._all(f"SELECT {SPENT_COLUMNS} FROM spent WHERE session = ?", session)]

    async def endpoints(self) -> list[EndpointRow]:
        return [
            EndpointRow(*row) for row in await self._all(f"SELECT {ENDPOINT_COLUMNS} FROM endpoints ORDER BY at, name")
        ]

    async def mcp_servers(self) -> list[McpServerRow]:
        rows = await self._all(f"SELECT {MCP_SERVER_COLUMNS} FROM mcp_servers ORDER BY at, name")
        return [McpServerRow(name, entry, None if on is None else bool(on), *rest) for name, entry, on, *rest in rows]

    async def mcp_pins(self) -> list[McpPinRow]:
        return [McpPinRow(*row) for row in await self._all(f"SELECT {MCP_PIN_COLUMNS} FROM mcp_pins")]

    async def summaries(self, session: str) -> list[SummaryRow]:
        query = f"SELECT {SUMMARY_COLUMNS} FROM summaries WHERE session = ? ORDER BY upto"
        return [SummaryRow(*row) for row in await self._all(query, session)]

    async def result(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        query = "SELECT name, substr(text, ?, ?), length(text) FROM results WHERE session = ? AND call = ?"
        rows = await self._all(query, offset + 1, size, session, call)
        return ResultPart(*rows[0]) if rows else None

    async def result_lines(self, session: str, call: str) -> int | None:
        rows = await self._all(RESULT_LINES, session, call)
        return int(rows[0][0]) if rows else None

    async def file(self, sha256: str, session: str | None = None) -> bytes | None:
        of_session = " AND sha256 IN (SELECT sha256 FROM session_files WHERE session = ?)"
        query = f"SELECT bytes FROM files WHERE sha256 = ?{'' if session is None else of_session}"
        rows = await self._all(query, sha256, *([] if session is None else [session]))
        return bytes(rows[0][0]) if rows else None

    async def search(self, session: str, query: str, limit: int) -> list[tuple[int, Message]]:
        words = words_of(query)
        if not words:
            return []
        rows = await self._all(BY_WORDS, matching(session, words), session, limit)
        if len(rows) < limit and (not rows or without_spaces(words)):
            parts, values = by_parts(words)
            rows += await self._all(parts, session, *values, limit)
        best = list(dict(map(tuple, rows)).items())[:limit]  # each once
        return [(position, load(message)) for position, message in best]


def _beside(side: str, run: str | None) -> tuple[str, list[str]]:
    """Which runs of a session stand on that side of one of them; two of the same time in the order they came."""
    if run is None:
        return "", []
    return f" AND (created, rowid) {side} (SELECT created, rowid FROM runs WHERE id = ?)", [run]

"""Approvals, grants and the audit log."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage.approvals import (
    ApprovalDecided,
    ApprovalRow,
    DecisionLink,
    DecisionLinksExpired,
    GrantRevoked,
    GrantRow,
)
from app.storage.audit import AuditFilter, AuditRow
from app.storage.changes import Change
from app.storage.sql.columns import Select, Write, delete, insert, names, select, update, write
from app.storage.sql.rows import Rows

DECIDE = update("approvals", ApprovalDecided, "run", "call", condition=" AND state = 'pending'")
WRITES: dict[type[Change], Write] = {
    ApprovalRow: insert("approvals", ApprovalRow),
    ApprovalDecided: DECIDE,
    DecisionLink: insert("decision_links", DecisionLink),
    DecisionLinksExpired: write("DELETE FROM decision_links WHERE expires < ?", "expires"),
    GrantRow: insert("grants", GrantRow),
    GrantRevoked: delete("grants", GrantRevoked),
    AuditRow: insert("audit", AuditRow),
}
APPROVAL = select(ApprovalRow, "approvals", "WHERE run = ? AND call = ?")
PENDING = select(ApprovalRow, "approvals", "WHERE principal = ? AND state = 'pending' ORDER BY created")
OF_RUN = select(
    ApprovalRow, "approvals", "WHERE run = ? AND state IN ('pending', 'approved', 'denied') ORDER BY created"
)
OF_SESSION = select(ApprovalRow, "approvals", "WHERE session = ? AND state = 'approved' AND scope = 'session'")
LINK = select(DecisionLink, "decision_links", "WHERE sha256 = ?")
GRANTS = select(GrantRow, "grants", "WHERE session = ? ORDER BY created, id")
AUDIT = Select(
    f"""
    SELECT number, {names(AuditRow)} FROM audit WHERE number < ? AND (? = '' OR principal = ?)
    AND (? = '' OR substr(action, 1, ?) = ?) AND (? = '' OR decision = ?) ORDER BY number DESC LIMIT ?
    """,
    lambda number, *row: (number, AuditRow(*row)),
)
ON_CALLS = "call IS NOT NULL AND decision IN ('allow', 'ask', 'refuse') AND at >= ? AND (? = '' OR principal = ?)"
SESSIONS_SINCE = """
    SELECT DISTINCT session FROM runs WHERE session > ? AND COALESCE(ended, 9e99) >= ? ORDER BY session LIMIT ?
"""
ON_CALLS_OF = select(
    AuditRow, "audit", f"WHERE run IN (SELECT id FROM runs WHERE session = ?) AND {ON_CALLS} ORDER BY number"
)
ON_CALLS_ELSEWHERE = f"""
    SELECT COUNT(*) FROM audit WHERE {ON_CALLS} AND NOT EXISTS (SELECT 1 FROM runs WHERE id = audit.run)
"""


class SqlApprovals(Rows):
    async def approval(self, run: str, call: str) -> ApprovalRow | None:
        return await self._row(APPROVAL, run, call)

    async def approvals(self, principal: str) -> list[ApprovalRow]:
        return await self._rows(PENDING, principal)

    async def pending_calls(self, principal: str) -> list[tuple[str, str]]:
        query = "SELECT run, call FROM approvals WHERE principal = ? AND state = 'pending' ORDER BY created"
        return [(run, call) for run, call in await self._all(query, principal)]

    async def pending_of(self, run: str) -> list[ApprovalRow]:
        return await self._rows(OF_RUN, run)

    async def approved_for_session(self, session: str) -> list[ApprovalRow]:
        return await self._rows(OF_SESSION, session)

    async def decide_approval(self, decided: ApprovalDecided, also: Sequence[Change] = ()) -> bool:
        return await self._change(DECIDE.sql, DECIDE.values(decided), also)

    async def decision_link(self, sha256: str) -> DecisionLink | None:
        return await self._row(LINK, sha256)

    async def grants(self, session: str) -> list[GrantRow]:
        return await self._rows(GRANTS, session)

    async def audit(self, before: int, limit: int, only: AuditFilter | None = None) -> list[tuple[int, AuditRow]]:
        wanted = only or AuditFilter()
        who, action, decision = wanted.principal, wanted.action, wanted.decision
        values = (who, who, action, len(action), action, decision, decision)
        return await self._rows(AUDIT, before, *values, limit)

    async def decided_sessions(self, since: float, after: str, limit: int) -> list[str]:
        return [row[0] for row in await self._all(SESSIONS_SINCE, after, since, limit)]

    async def decided_calls(self, session: str, since: float, principal: str) -> list[AuditRow]:
        return await self._rows(ON_CALLS_OF, session, since, principal, principal)

    async def decided_elsewhere(self, since: float, principal: str) -> int:
        return int((await self._all(ON_CALLS_ELSEWHERE, since, principal, principal))[0][0])

    async def forget_audit(self, before: float) -> None:
        await self._change("DELETE FROM audit WHERE at < ?", (before,))

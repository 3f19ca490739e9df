"""Branches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property

from app.storage.branches import ALWAYS, Branch, BranchPart, BranchRow, Fork
from app.storage.changes import Change
from app.storage.documents import DocumentRow, SuggestionRow, VersionRow
from app.storage.labels import SessionLabel
from app.storage.runs import RunRow
from app.storage.sessions import ResultRow, SessionRow, SummaryRow, UntrustedMarks
from app.storage.sql.columns import Select, Write, insert, insert_once, names, select
from app.storage.sql.rows import Query, Rows

MOST_KNOWN = 4_096  # sessions whose parts are kept in memory; they never change
WRITES: dict[type[Change], Write] = {
    BranchRow: insert_once("branches", BranchRow, "session"),
    BranchPart: insert("branch_parts", BranchPart),
}
BRANCH = select(BranchRow, "branches", "WHERE session = ?")
OF_TREE = Select(
    """
    SELECT session, parent, after, updated FROM branches JOIN sessions ON sessions.id = session
    WHERE tree = ? ORDER BY branches.created, session
    """,
    Branch,
)
OTHERS = """
    SELECT own.session, other.session FROM branches AS own
    JOIN branches AS other ON other.tree = own.tree AND other.session <> own.session
    WHERE own.session IN (SELECT value FROM json_each(?)) ORDER BY other.created, other.session
"""
PARTS = Select("SELECT origin, until FROM branch_parts WHERE session = ? ORDER BY place", lambda *row: row)
BEHIND = """
    SELECT COALESCE(MAX(position) + 1, 0) FROM messages
    WHERE session = ? AND run IN (SELECT value FROM json_each(?))
"""
BEHIND_ALL = "SELECT COALESCE(MAX(position) + 1, 0) FROM messages WHERE session = ?"


def copy(table: str, row: type[Change], changed: dict[str, str], where: str) -> str:
    """Insert rows of a table again, with expressions in place of some columns."""
    columns = names(row).split(", ")
    values = ", ".join(changed.get(column, column) for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table} WHERE {where}"


SESSION = copy("sessions", SessionRow, {"id": "?", "created": "?", "updated": "?"}, "id = ?")
MESSAGES = "INSERT INTO messages (session, {0}) SELECT ?, {0} FROM messages WHERE session = ? AND position < ?"
SUMMARIES = copy("summaries", SummaryRow, {"session": "?"}, "session = ? AND upto <= ?")
LABELS = copy("session_labels", SessionLabel, {"session": "?"}, "session = ?")
MARKS = copy(
    "untrusted_marks",
    UntrustedMarks,
    {"session": "?"},
    "session = ? AND run IN (SELECT run FROM messages WHERE session = ? AND position < ?)",
)
FILES = "INSERT INTO session_files (session, sha256) SELECT ?, sha256 FROM session_files WHERE session = ?"
DIGEST = """
    INSERT INTO session_digests (session, principal, run, state, messages, title, summary)
    SELECT ?, principal, run, 'done', messages, title, summary FROM session_digests WHERE session = ?
"""
RESULTS = copy(
    "results",
    ResultRow,
    {"session": "?", "run": "?"},
    "session = ? AND run = ? AND call IN (SELECT value FROM json_each(?))",
)
BY_LATER = """
    documents.session = ? AND ((run = ? AND call NOT IN (SELECT value FROM json_each(?)))
        OR run IN (SELECT id FROM runs WHERE session = ? AND created > ?))
"""
CHANGED = f"""
    SELECT MIN(at) FROM (
        SELECT made.created AS at FROM document_versions AS made JOIN documents ON documents.id = document
        WHERE {BY_LATER}
        UNION ALL
        SELECT made.created AS at FROM document_suggestions AS made JOIN documents ON documents.id = document
        WHERE {BY_LATER}
    ) AS changes
"""
# A copy is named after its origin, so that the model finds it by the id that it knows.
COPY_ID = "documents.id || ?"
AT_CUT = "(SELECT MAX(version) FROM document_versions WHERE document = documents.id AND created < ?)"
DOCUMENTS = copy(
    "documents",
    DocumentRow,
    {
        "id": COPY_ID,
        "session": "?",
        "version": AT_CUT,
        "seen": f"CASE WHEN seen < {AT_CUT} THEN seen ELSE {AT_CUT} END",
    },
    f"session = ? AND {AT_CUT} IS NOT NULL",
)
_COPIED = "(SELECT documents.id FROM documents WHERE session = ?)"
VERSIONS = copy(
    "document_versions",
    VersionRow,
    {"document": "document || ?"},
    f"document IN {_COPIED} AND version = (SELECT version FROM documents WHERE id = document || ?)",
)
SUGGESTIONS = copy(
    "document_suggestions",
    SuggestionRow,
    {
        "document": "document || ?",
        "state": "CASE WHEN decided >= ? THEN 'open' ELSE state END",
        "decided": "CASE WHEN decided >= ? THEN NULL ELSE decided END",
    },
    f"document IN {_COPIED} AND created < ? AND version <= (SELECT version FROM documents WHERE id = document || ?)",
)


def copies(fork: Fork, message_columns: str, row_lock: str) -> Iterator[Query]:
    """Statements that make a branch, its session first."""
    row, before = fork.row, fork.before
    new, parent = row.session, row.parent
    suffix = f"_{new[-8:]}"  # the end of the ids of a branch's copies
    yield SESSION + row_lock, (new, row.created, fork.used, parent)
    yield MESSAGES.format(message_columns), (new, parent, fork.position)
    yield SUMMARIES, (new, parent, fork.position)
    yield LABELS, (new, parent)
    yield MARKS, (new, parent, parent, fork.position)
    yield FILES, (new, parent)
    yield DIGEST, (new, parent)
    if kept := fork.results:
        yield RESULTS, (new, kept.run, parent, kept.origin, json.dumps(kept.calls))
    yield DOCUMENTS, (suffix, new, before, before, before, parent, before)
    yield VERSIONS, (suffix, parent, suffix)
    yield SUGGESTIONS, (suffix, before, before, parent, before, suffix)


class SqlBranches(Rows):
    _request: str  # the query of the message that began a run, by session and run
    _message_columns = "position, run, message"  # but the session
    _row_lock = ""  # behind a query, where other transactions may delete the row meanwhile

    async def fork(self, fork: Fork) -> bool:
        statements = list(copies(fork, self._message_columns, self._row_lock))
        return await self._change_all(statements, (fork.row, *fork.parts, *fork.also))

    async def documents_changed(self, run: RunRow, calls: Sequence[str]) -> float:
        values = run.session, run.id, json.dumps(calls), run.session, run.created
        rows = await self._all(CHANGED, *values, *values)
        return ALWAYS if rows[0][0] is None else float(rows[0][0])

    @cached_property
    def _known_parts(self) -> dict[str, Sequence[tuple[str, float]]]:
        return {}

    async def parts(self, session: str) -> Sequence[tuple[str, float]]:
        if (known := self._known_parts.get(session)) is None:
            known = [*map(tuple, await self._all(PARTS.sql, session)), (session, ALWAYS)]
            if len(self._known_parts) >= MOST_KNOWN:
                self._known_parts.clear()
            self._known_parts[session] = known
        return known

    async def holds_run(self, session: str, run: RunRow) -> bool:
        return any(run.session == origin and run.created <= until for origin, until in await self.parts(session))

    async def branch(self, session: str) -> BranchRow | None:
        return await self._lookup(BRANCH, session)

    async def branches(self, tree: str) -> list[Branch]:
        return await self._rows(OF_TREE, tree)

    async def other_branches(self, sessions: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for session, other in await self._all(OTHERS, json.dumps(list(sessions))):
            found.setdefault(session, []).append(other)
        return found

    async def position_behind(self, session: str, run: str | None, before: Sequence[str]) -> int:
        if run is None:
            return int((await self._all(BEHIND_ALL, session))[0][0])
        position = self._request.replace("SELECT messages.message", "SELECT messages.position")
        if rows := await self._all(position, session, run):
            return int(rows[0][0])
        return int((await self._all(BEHIND, session, json.dumps(list(before))))[0][0])

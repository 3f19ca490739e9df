"""Sessions, messages, summaries, long results and files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from app.core.attachments import loaded
from app.core.messages import Message, load
from app.core.time_slice import sliced_map
from app.storage.changes import Change
from app.storage.files.store import FileRow, SessionFile
from app.storage.library.folders import EVERYWHERE, Shelf
from app.storage.runs import InboxRow
from app.storage.sessions import (
    APP,
    AppContextRead,
    AppState,
    ConversationKey,
    MessageRow,
    ResultPart,
    ResultRow,
    SessionOptions,
    SessionRow,
    SessionState,
    SessionTitle,
    SessionTools,
    SummaryRow,
    UntrustedMarks,
    UntrustedMarksForgotten,
)
from app.storage.sql.approvals import GRANTS
from app.storage.sql.columns import Select, Write, insert, insert_once, names, select, update, upsert, write
from app.storage.sql.rows import Rows
from app.storage.sql.runs import INBOX
from app.storage.sql.search import by_parts, listed, without_spaces

WRITES: dict[type[Change], Write] = {
    SessionRow: insert("sessions", SessionRow),
    SessionTitle: update("sessions", SessionTitle, "id"),
    SessionTools: update("sessions", SessionTools, "id"),
    SessionOptions: update("sessions", SessionOptions, "id"),
    ConversationKey: upsert("conversation_keys", ConversationKey, "principal", "key"),
    MessageRow: insert("messages", MessageRow),
    # A run that was cancelled while it wrote a summary may have written it; the next run makes it again.
    SummaryRow: upsert("summaries", SummaryRow, "session", "upto"),
    ResultRow: insert("results", ResultRow),
    UntrustedMarks: insert_once("untrusted_marks", UntrustedMarks, "principal", "at", "session"),
    UntrustedMarksForgotten: write("DELETE FROM untrusted_marks WHERE principal = ? AND at <= ?", "principal", "until"),
    AppState: upsert("results", AppState, "session", "call"),
    AppContextRead: write(
        "UPDATE results SET written = '' WHERE session = ? AND call = ? AND written = ?", "session", "call", "written"
    ),
    FileRow: insert_once("files", FileRow, "sha256"),
    SessionFile: insert_once("session_files", SessionFile, "session", "sha256"),
}
SESSION = select(SessionRow, "sessions", "WHERE id = ?")
OWNER = Select("SELECT principal FROM sessions WHERE id = ?", str)
# A member that is linked, or is so no more, has keys of sessions that are not its own now.
KEYED = Select(
    """
    SELECT session FROM conversation_keys JOIN sessions ON sessions.id = session
    WHERE conversation_keys.principal = ? AND key = ? AND sessions.principal = ?
    """,
    str,
)
KEYS = "SELECT session, key FROM conversation_keys WHERE session IN (SELECT value FROM json_each(?)) ORDER BY key"
TEMPORARY = select(
    SessionRow,
    "sessions",
    "WHERE temporary AND updated < ? AND NOT EXISTS (SELECT 1 FROM helpers WHERE helpers.session = sessions.id)",
)
SUMMARIES = select(SummaryRow, "summaries", "WHERE session = ? ORDER BY upto")
MESSAGES = "SELECT message FROM messages WHERE session = ? AND position >= ? ORDER BY position"
MESSAGES_UNTIL = """
    SELECT message FROM messages
    WHERE session = ? AND position <= (SELECT max(position) FROM messages WHERE session = ? AND run = ?)
    ORDER BY position
"""
CONTEXTS = select(
    AppState,
    "results",
    f"WHERE session = ? AND call >= '{APP} ' AND call < '{APP}!' AND name = '{APP}' AND written <> '' ORDER BY call",
)
DISABLED = "SELECT disabled FROM sessions WHERE id = ?"
ORPHANED = Select(
    f"""
    SELECT {names(InboxRow, "inbox")} FROM inbox JOIN runs ON runs.id = inbox.run
    WHERE runs.session = ? AND runs.ended IS NOT NULL ORDER BY runs.created, inbox.position
    """,
    InboxRow,
)
# A branch reads the results of the runs that it has of other sessions, not those behind its cut.
OF_CALL = """
    session IN (SELECT ? UNION ALL SELECT origin FROM branch_parts WHERE session = ?) AND call = ?
    AND (session = ? OR EXISTS (
        SELECT 1 FROM branch_parts AS part JOIN runs ON runs.session = part.origin AND runs.created <= part.until
        WHERE part.session = ? AND runs.id = results.run
    ))
"""
MARKS_STATE = "SELECT COUNT(*), COALESCE(SUM(at % 1000000007), 0) FROM untrusted_marks WHERE principal = ?"
MARKS = Select(
    f"""
    SELECT COALESCE(title, ''), {names(UntrustedMarks, "untrusted_marks")} FROM untrusted_marks
    LEFT JOIN sessions ON sessions.id = untrusted_marks.session
    WHERE untrusted_marks.principal = ? AND at > ? ORDER BY at
    """,
    lambda title, *row: (UntrustedMarks(*row), title),
)
RESULT = Select(
    f"SELECT name, substr(text, ?, ?), length(text) FROM results WHERE {OF_CALL}",
    ResultPart,
)
WRITTEN = Select(
    f"""
    SELECT name, substr(coalesce(written, text), ?, ?), length(coalesce(written, text))
    FROM results WHERE {OF_CALL}
    """,
    ResultPart,
)
WRITTEN_LINES = f"""
    SELECT CASE WHEN length(replace(whole, ' characters left out ...]', '')) < length(whole) THEN 0
        ELSE length(whole) - length(replace(whole, '\n', ''))
            + CASE WHEN substr(whole, length(whole), 1) = '\n' THEN 0 ELSE 1 END END
    FROM (SELECT coalesce(written, text) AS whole FROM results WHERE {OF_CALL}) AS results
"""
FILE = "SELECT bytes FROM files WHERE sha256 = ?"
FILE_OF_SESSION = f"{FILE} AND sha256 IN (SELECT sha256 FROM session_files WHERE session = ?)"


def _message(row: Sequence[str]) -> Message:
    return load(row[0])


def _of_call(session: str, call: str) -> tuple[str, ...]:
    """The values of `OF_CALL`."""
    return session, session, call, session, session


class SqlSessions(Rows):
    _request: str  # the query of the message that began a run, by session and run

    async def session(self, session: str) -> SessionRow | None:
        return await self._lookup_changed(SESSION, session)

    async def owner_of(self, session: str) -> str | None:
        if owner := await self._lookup(OWNER, session):
            return owner
        return await self._lookup_changed(OWNER, session)  # only now: a request in a session soon reads all of it

    async def keyed_session(self, principal: str, key: str, owner: str) -> str | None:
        return await self._lookup_changed(KEYED, principal, key, owner)

    async def conversation_keys(self, sessions: Sequence[str]) -> dict[str, str]:
        return dict(map(tuple, await self._all(KEYS, json.dumps(list(sessions)))))

    async def sessions(
        self, principal: str, limit: int, before: str | None = None, shelf: Shelf = EVERYWHERE
    ) -> list[SessionRow]:
        sql, values = listed(principal, limit, before, shelf)
        return [SessionRow(*row) for row in await self._all(sql, *values)]

    async def temporary_sessions(self, before: float) -> list[SessionRow]:
        return await self._rows(TEMPORARY, before)

    async def session_state(self, session: str, begin: int = 0) -> SessionState:
        queries = ((sql, (session,)) for sql in (ORPHANED.sql, DISABLED, GRANTS.sql, CONTEXTS.sql))
        messages, orphaned, disabled, grants, contexts = await self._each((MESSAGES, (session, begin)), *queries)
        return SessionState(
            await sliced_map(_message, messages),
            [ORPHANED.row(*row) for row in orphaned],
            json.loads(disabled[0][0]) if disabled else [],
            [GRANTS.row(*row) for row in grants],
            [CONTEXTS.row(*row) for row in contexts],
            characters=sum(len(row[0]) for row in messages[min(begin, 1) :]),
        )

    async def messages(self, session: str) -> list[Message]:
        return await sliced_map(_message, await self._all(MESSAGES, session, 0))

    async def messages_until(self, session: str, run: str) -> list[Message]:
        return await sliced_map(_message, await self._all(MESSAGES_UNTIL, session, session, run))

    async def request_of(self, session: str, run: str) -> Message | None:
        requests, waiting = await self._each((self._request, (session, run)), (INBOX.sql, (run,)))
        if requests:
            return load(requests[0][0])
        if not waiting:
            return None
        first = INBOX.row(*waiting[0])
        return Message("user", first.text, attachments=loaded(first.attachments))

    async def _with_parts(
        self, session: str, words: list[str], rows: list[Any], limit: int
    ) -> list[tuple[int, Message]]:
        """Return the messages that the index has found, each once, and where they are too few, those with a part."""
        if len(rows) < limit and (not rows or without_spaces(words)):
            parts, values = by_parts(words)
            rows += await self._all(parts, session, *values, limit)
        best = list(dict(map(tuple, rows)).items())[:limit]
        return [(position, load(message)) for position, message in best]

    async def summaries(self, session: str) -> list[SummaryRow]:
        return await self._rows(SUMMARIES, session)

    async def marks_state(self, principal: str) -> tuple[int, int]:
        rows = await self._all(MARKS_STATE, principal)
        return int(rows[0][0]), int(rows[0][1])

    async def marks(self, principal: str, after: int) -> list[tuple[UntrustedMarks, str]]:
        return await self._rows(MARKS, principal, after)

    async def result(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        return await self._row(RESULT, offset + 1, size, *_of_call(session, call))

    async def written(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        return await self._row(WRITTEN, offset + 1, size, *_of_call(session, call))

    async def written_lines(self, session: str, call: str) -> int | None:
        rows = await self._all(WRITTEN_LINES, *_of_call(session, call))
        return int(rows[0][0]) if rows else None

    async def file(self, sha256: str, session: str | None = None) -> bytes | None:
        if session is None:
            rows = await self._all(FILE, sha256)
        else:
            rows = await self._all(FILE_OF_SESSION, sha256, session)
        return bytes(rows[0][0]) if rows else None

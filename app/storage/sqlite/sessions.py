"""Sessions, messages, summaries, long results and files in SQLite."""

from __future__ import annotations

import json

from app.core.attachments import loaded
from app.core.messages import Message, load
from app.storage.changes import Change
from app.storage.files.store import FileRow, SessionFile
from app.storage.runs import InboxRow
from app.storage.search_words import words_of
from app.storage.sessions import (
    MessageRow,
    ResultPart,
    ResultRow,
    SessionOptions,
    SessionRow,
    SessionState,
    SessionTitle,
    SessionTools,
    SummaryRow,
)
from app.storage.sqlite.approvals import GRANTS
from app.storage.sqlite.columns import Select, Write, insert, insert_once, names, select, update, upsert
from app.storage.sqlite.database import Database
from app.storage.sqlite.runs import INBOX
from app.storage.sqlite.search import (
    BY_WORDS,
    INDEX_MESSAGES,
    NEW_MESSAGES,
    by_parts,
    listed,
    matching,
    sessions_with,
    without_spaces,
)

WRITES: dict[type[Change], Write] = {
    SessionRow: insert("sessions", SessionRow),
    SessionTitle: update("sessions", SessionTitle, "id"),
    SessionTools: update("sessions", SessionTools, "id"),
    SessionOptions: update("sessions", SessionOptions, "id"),
    MessageRow: insert("messages", MessageRow),
    # A run that was cancelled while it wrote a summary may have written it; the next run makes it again.
    SummaryRow: upsert("summaries", SummaryRow, "session", "upto"),
    ResultRow: insert("results", ResultRow),
    FileRow: insert_once("files", FileRow, "sha256"),
    SessionFile: insert_once("session_files", SessionFile, "session", "sha256"),
}
SESSION = select(SessionRow, "sessions", "WHERE id = ?")
OWNER = Select("SELECT principal FROM sessions WHERE id = ?", str)
SUMMARIES = select(SummaryRow, "summaries", "WHERE session = ? ORDER BY upto")
MESSAGES = "SELECT message FROM messages WHERE session = ? ORDER BY position"
MESSAGES_UNTIL = """
    SELECT message FROM messages
    WHERE session = ? AND position <= (SELECT max(position) FROM messages WHERE session = ? AND run = ?)
    ORDER BY position
"""
DISABLED = "SELECT disabled FROM sessions WHERE id = ?"
# Messages of a run that stand before its request were left behind by the run before it.
REQUEST = """
    SELECT messages.message FROM messages JOIN runs ON runs.id = messages.run
    WHERE messages.session = ? AND messages.run = ? AND json_extract(message, '$.role') = 'user'
    ORDER BY json_extract(message, '$.at') IS NOT runs.created, position LIMIT 1
"""
ORPHANED = Select(
    f"""
    SELECT {names(InboxRow, "inbox")} FROM inbox JOIN runs ON runs.id = inbox.run
    WHERE runs.session = ? AND runs.ended IS NOT NULL ORDER BY runs.created, inbox.position
    """,
    InboxRow,
)
RESULT = Select(
    "SELECT name, substr(text, ?, ?), length(text) FROM results WHERE session = ? AND call = ?",
    ResultPart,
)
WRITTEN = Select(
    """
    SELECT name, substr(coalesce(written, text), ?, ?), length(coalesce(written, text))
    FROM results WHERE session = ? AND call = ?
    """,
    ResultPart,
)
WRITTEN_LINES = """
    SELECT length(whole) - length(replace(whole, char(10), '')) + (substr(whole, -1) <> char(10))
    FROM (SELECT coalesce(written, text) AS whole FROM results WHERE session = ? AND call = ?)
"""
FILE = "SELECT bytes FROM files WHERE sha256 = ?"
FILE_OF_SESSION = f"{FILE} AND sha256 IN (SELECT sha256 FROM session_files WHERE session = ?)"


class SQLiteSessions(Database):
    async def session(self, session: str) -> SessionRow | None:
        return await self._lookup_changed(SESSION, session)

    async def owner_of(self, session: str) -> str | None:
        if owner := await self._lookup(OWNER, session):
            return owner
        return await self._lookup_changed(OWNER, session)  # only now: a request in a session soon reads all of it

    async def sessions(self, principal: str, limit: int, before: str | None = None) -> list[SessionRow]:
        sql, values = listed(principal, limit, before)
        return [SessionRow(*row) for row in await self._all(sql, *values)]

    async def find_sessions(self, principal: str, query: str, limit: int) -> list[tuple[SessionRow, str]]:
        await self._index_messages()
        found: dict[str, tuple[SessionRow, str]] = {}
        for rows in await self._each(*sessions_with(principal, query, limit)):
            found |= {row[0]: (SessionRow(*row[:-1]), row[-1] or "") for row in rows}
        return sorted(found.values(), key=lambda one: (one[0].updated, one[0].id), reverse=True)[:limit]

    async def session_state(self, session: str) -> SessionState:
        queries = (MESSAGES, ORPHANED.sql, DISABLED, GRANTS.sql)
        messages, orphaned, disabled, grants = await self._each(*((query, (session,)) for query in queries))
        return SessionState(
            [load(row[0]) for row in messages],
            [ORPHANED.row(*row) for row in orphaned],
            json.loads(disabled[0][0]) if disabled else [],
            [GRANTS.row(*row) for row in grants],
        )

    async def messages(self, session: str) -> list[Message]:
        return [load(row[0]) for row in await self._all(MESSAGES, session)]

    async def messages_until(self, session: str, run: str) -> list[Message]:
        return [load(row[0]) for row in await self._all(MESSAGES_UNTIL, session, session, run)]

    async def request_of(self, session: str, run: str) -> Message | None:
        requests, waiting = await self._each((REQUEST, (session, run)), (INBOX.sql, (run,)))
        if requests:
            return load(requests[0][0])
        if not waiting:
            return None
        first = INBOX.row(*waiting[0])
        return Message("user", first.text, attachments=loaded(first.attachments))

    async def search(self, session: str, query: str, limit: int) -> list[tuple[int, Message]]:
        words = words_of(query)
        if not words:
            return []
        await self._index_messages()
        rows = await self._all(BY_WORDS, matching(session, words), session, limit)
        if len(rows) < limit and (not rows or without_spaces(words)):
            parts, values = by_parts(words)
            rows += await self._all(parts, session, *values, limit)
        best = list(dict(map(tuple, rows)).items())[:limit]  # each once
        return [(position, load(message)) for position, message in best]

    async def _index_messages(self, pause_s: float = 0.0) -> None:
        """Index the words of new messages, with pauses for those who write. A server's visitor leaves that to it."""
        while not self._visitor and await self._all(f"SELECT 1 {NEW_MESSAGES} LIMIT 1"):
            async with self._one_writer, self._named_failures():
                await self._catch_up_now()  # fails if the messages could only be read as if they were applied
                await self._writer.write([(INDEX_MESSAGES, [()])])
            await self._pause(pause_s)

    async def summaries(self, session: str) -> list[SummaryRow]:
        return await self._rows(SUMMARIES, session)

    async def result(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        return await self._row(RESULT, offset + 1, size, session, call)

    async def written(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        return await self._row(WRITTEN, offset + 1, size, session, call)

    async def written_lines(self, session: str, call: str) -> int | None:
        rows = await self._all(WRITTEN_LINES, session, call)
        return int(rows[0][0]) if rows else None

    async def file(self, sha256: str, session: str | None = None) -> bytes | None:
        if session is None:
            rows = await self._all(FILE, sha256)
        else:
            rows = await self._all(FILE_OF_SESSION, sha256, session)
        return bytes(rows[0][0]) if rows else None

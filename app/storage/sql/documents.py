"""Documents, their versions and suggestions."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.documents import (
    MODEL,
    MOST_DOCUMENTS,
    BlockKept,
    BlockText,
    DocumentRow,
    DocumentSaved,
    DocumentSeen,
    OwnedDocument,
    SuggestionRow,
    VersionInfo,
    VersionRow,
    VersionsForgotten,
)
from app.storage.sql.columns import Select, Write, insert, names, select, update, upsert, write
from app.storage.sql.rows import Rows

KEEP_BLOCK = f"""
    INSERT INTO documents ({names(DocumentRow)}) SELECT ?, session, ?, ?, 1, 1, ?, ? FROM runs WHERE id = ?
    AND EXISTS (SELECT 1 FROM sessions WHERE sessions.id = runs.session)
    AND (SELECT count(*) FROM documents WHERE documents.session = runs.session) < {MOST_DOCUMENTS}
"""
KEEP_TEXT = f"""
    INSERT INTO document_versions ({names(VersionRow)})
    SELECT id, 1, '{MODEL}', ?, '', ?, ? FROM documents WHERE id = ?
"""
WRITES: dict[type[Change], Write] = {
    DocumentRow: insert("documents", DocumentRow),
    BlockKept: write(KEEP_BLOCK, "id", "title", "kind", "at", "at", "run"),
    BlockText: write(KEEP_TEXT, "run", "at", "text", "document"),
    DocumentSaved: update("documents", DocumentSaved, "id"),
    DocumentSeen: update("documents", DocumentSeen, "id"),
    VersionRow: insert("document_versions", VersionRow),
    VersionsForgotten: write(
        "DELETE FROM document_versions WHERE document = ? AND version <= ?", "document", "version"
    ),
    SuggestionRow: upsert("document_suggestions", SuggestionRow, "document", "number"),
}
DOCUMENT = select(DocumentRow, "documents", "WHERE id = ?")
OF_SESSION = select(DocumentRow, "documents", "WHERE session = ? ORDER BY created, id")
VERSION = select(VersionRow, "document_versions", "WHERE document = ? AND version = ?")
VERSIONS = Select(
    """
    SELECT version, author, run, created, length(text) FROM document_versions
    WHERE document = ? ORDER BY version DESC
    """,
    VersionInfo,
)
SUGGESTIONS = select(SuggestionRow, "document_suggestions", "WHERE document = ? ORDER BY number")
OWNED = Select(
    """
    SELECT sessions.principal, documents.id, documents.version
    FROM documents JOIN sessions ON sessions.id = documents.session
    WHERE NOT sessions.temporary ORDER BY documents.updated DESC LIMIT 20000
    """,
    OwnedDocument,
)
NEWS = """
    SELECT session FROM documents WHERE seen < version UNION
    SELECT session FROM document_suggestions JOIN documents ON documents.id = document
    WHERE state <> 'open' AND NOT reported
"""


class SqlDocuments(Rows):
    async def document(self, document: str) -> DocumentRow | None:
        return await self._row(DOCUMENT, document)

    async def documents(self, session: str) -> list[DocumentRow]:
        return await self._rows(OF_SESSION, session)

    async def document_version(self, document: str, version: int) -> VersionRow | None:
        return await self._row(VERSION, document, version)

    async def document_versions(self, document: str) -> list[VersionInfo]:
        return await self._rows(VERSIONS, document)

    async def suggestions(self, document: str) -> list[SuggestionRow]:
        return await self._rows(SUGGESTIONS, document)

    async def owned_documents(self) -> list[OwnedDocument]:
        return await self._rows(OWNED)

    async def sessions_with_news(self) -> set[str]:
        return {session for (session,) in await self._all(NEWS)}

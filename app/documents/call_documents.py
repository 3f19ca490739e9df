"""The documents of a session for one call of its model: what the call writes is stored with the events that show it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec import Struct

from app.core.document_events import DocumentChanged, DocumentFinished, DocumentSuggested
from app.documents.library import Library
from app.documents.limits import (
    MOST_OPEN,
    MOST_REASON,
    MOST_SUGGESTIONS,
    kind_of,
    text_of,
    title_of,
)
from app.storage.documents import MODEL, MOST_DOCUMENTS, OPEN, DocumentRow, SuggestionRow, VersionRow
from app.transcript.conversation import Conversation
from app.transcript.document_drafts import document_id
from tools.base.access import Document
from tools.base.outcome import ToolFailed
from tools.base.replacement import Replacement, replace_once

OTHERWISE = "make a new document"
NOT_KEPT = "Nothing is kept of this conversation. Write the text in your answer."


class CallDocuments(Struct, frozen=True):
    """`call` is the id of the call. Implements `tools.base.access.DocumentAccess`."""

    library: Library
    conversation: Conversation
    call: str

    async def create(self, title: str, kind: str, text: str) -> Document:
        redact = self.conversation.redactor.redact
        session = self.conversation.session
        title, kind, text = title_of(title), kind_of(kind), text_of(redact(text))
        async with self.library.writing(session):
            if len(await self.library.store.documents(session)) >= MOST_DOCUMENTS:
                raise ToolFailed(f"There are {MOST_DOCUMENTS} documents in this conversation: change one of them.")
            if await self.library.store.owner_of(session) is None:
                raise ToolFailed(NOT_KEPT)
            now = time.time()
            made = document_id(self.conversation.run, self.call)
            self.conversation.record(
                DocumentRow(
                    id=made, session=session, title=title, kind=kind, version=1, seen=1, created=now, updated=now
                )
            )
            self.conversation.record(
                VersionRow(
                    document=made,
                    version=1,
                    author=MODEL,
                    run=self.conversation.run,
                    call=self.call,
                    created=now,
                    text=text,
                )
            )
            for event in self.conversation.drafts.finish(self.call, title, kind, text, redact):
                self.conversation.log_event(event)
            self.conversation.log_event(
                DocumentFinished(made, self.call, ok=True, version=1, title=title, kind=kind, characters=len(text))
            )
            await self.conversation.stored()
        return Document(made, title, kind, 1, text)

    async def replace(self, name: str, old: str, new: str) -> tuple[Document, Document]:
        async with self.library.writing(self.conversation.session):
            row, before = await self._found(name)
            made = await self._replaced(row, before, old, new)
            run = self.conversation.run
            text = text_of(made.text)
            after, changes = await self.library.version_changes(row, text, MODEL, run, self.call)
            for change in changes:
                self.conversation.record(change)
            self.conversation.log_event(
                DocumentChanged(
                    document=row.id,
                    call=self.call,
                    version=after.version,
                    title=row.title,
                    start=made.start,
                    old=made.old,
                    new=made.new,
                )
            )
            await self.conversation.stored()
        return _document(row, before), _document(after, text)

    async def suggest(self, name: str, old: str, new: str, reason: str) -> tuple[Document, int]:
        async with self.library.writing(self.conversation.session):
            row, text = await self._found(name)
            made = await self._replaced(row, text, old, new)
            suggestions = await self.library.store.suggestions(row.id)
            if sum(one.state == OPEN for one in suggestions) >= MOST_OPEN or len(suggestions) >= MOST_SUGGESTIONS:
                raise ToolFailed(f"{row.title} has too many suggestions: wait until the person has decided on them.")
            number = max((one.number for one in suggestions), default=0) + 1
            reason = reason.strip()[:MOST_REASON]
            self.conversation.record(
                SuggestionRow(
                    document=row.id,
                    number=number,
                    version=row.version,
                    old=made.old,
                    new=made.new,
                    reason=reason,
                    state=OPEN,
                    run=self.conversation.run,
                    call=self.call,
                    created=time.time(),
                )
            )
            self.conversation.log_event(
                DocumentSuggested(
                    document=row.id,
                    call=self.call,
                    version=row.version,
                    title=row.title,
                    suggestion=number,
                    old=made.old,
                    new=made.new,
                    reason=reason,
                )
            )
            await self.conversation.stored()
        return _document(row, text), number

    async def read(self, name: str) -> Document:
        await self.library.journal.flush()
        return _document(*await self._found(name))

    async def titles(self) -> Sequence[str]:
        rows = await self.library.store.documents(self.conversation.session)
        return [f'{row.id}: "{row.title}", {row.kind}, version {row.version}' for row in rows]

    async def _replaced(self, row: DocumentRow, text: str, old: str, new: str) -> Replacement:
        made = await asyncio.to_thread(replace_once, text, old, new, f'"{row.title}"', OTHERWISE)
        text_of(made.text)
        return made

    async def _found(self, name: str) -> tuple[DocumentRow, str]:
        """The document of this id or title, and its text. Raises ToolFailed."""
        rows = await self.library.store.documents(self.conversation.session)
        wanted = name.strip().strip('"').casefold()
        found = (
            [row for row in rows if row.id == wanted]
            or [row for row in rows if row.id.startswith(f"{wanted}_")]  # a branch's copy of it
            or [row for row in rows if row.title.casefold() == wanted]
        )
        if len(found) != 1:
            there = "\n".join(await self.titles()) or "There are none."
            many = "Several documents have this title: name one by its id." if found else "There is no such document."
            raise ToolFailed(f"{many} Documents of this conversation:\n{there}")
        version = await self.library.store.document_version(found[0].id, found[0].version)
        # Redacted again: a secret may have been learned since.
        return found[0], self.conversation.redactor.redact(version.text) if version else ""


def _document(row: DocumentRow, text: str) -> Document:
    return Document(row.id, row.title, row.kind, row.version, text)

"""All documents of the server: one writer for each session, the person's edits, and which of them a model has to learn.

The model and the person may write at the same time. A writer holds the session's lock and has all earlier changes
stored, so that a new version follows the one that was read.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from app.documents.limits import last_forgotten, text_of, title_of
from app.log.event_writer import EventWriter
from app.replicas.peers import Alone, Peers
from app.storage.changes import Change
from app.storage.documents import (
    ACCEPTED,
    OPEN,
    PERSON,
    REJECTED,
    DocumentRow,
    DocumentSaved,
    DocumentSeen,
    DocumentStore,
    SuggestionRow,
    VersionRow,
    VersionsForgotten,
)
from tools.base.outcome import ToolFailed
from tools.base.replacement import replace_once


class LibraryStore(DocumentStore, Protocol):
    async def owner_of(self, session: str) -> str | None: ...


class Gone(Exception):
    """The document was deleted with its session."""


class Moved(Exception):
    """The document has another version by now: `row` is it as it is."""

    def __init__(self, row: DocumentRow) -> None:
        super().__init__(f"The document is at version {row.version}. Read it, put your changes in, and send it again.")
        self.row = row


class NotDecidable(Exception):
    """The suggestion was decided before, or does not fit any more. The message says what to do."""


class Decided(Struct, frozen=True):
    row: DocumentRow
    suggestion: SuggestionRow


class Library:
    """`changed(session)` is called when a person has changed a document; `changes` counts that.

    `announce` too, if it was changed at this server.
    """

    def __init__(
        self,
        store: LibraryStore,
        journal: EventWriter,
        changed: Callable[[str], None],
        *,
        peers: Peers | None = None,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        self.store = store
        self.unseen: set[str] = set()  # sessions with changes that their model does not know
        self.changes: Counter[str] = Counter()
        self.journal = journal
        self._changed = changed
        self._announce = announce
        self._peers = peers or Alone()

    async def load(self) -> None:
        self.unseen = await self.store.sessions_with_news()

    def may_have_news(self, session: str) -> bool:
        """Return True if the model of a session may not know all changes of a person."""
        return not self._peers.is_alone or session in self.unseen

    def changed_elsewhere(self, sessions: Iterable[str]) -> None:
        for session in sessions:
            self.changes[session] += 1
            self._changed(session)

    @asynccontextmanager
    async def writing(self, session: str) -> AsyncGenerator[None, None]:
        """Hold the lock of the session, once all that was written before is stored."""
        async with self._peers.lock("documents", session):
            await self.journal.flush()
            yield

    async def save(self, row: DocumentRow, base: int, text: str | None, title: str | None) -> DocumentRow:
        """Store the person's text as a new version, or the title, or both. Raises Moved, Gone, UnfitDocument."""
        async with self.writing(row.session):
            row = await self._current(row)
            if row.version != base:
                raise Moved(row)
            named = replace(row, title=title_of(title)) if title is not None else row
            stored = await self.store.document_version(row.id, row.version)
            if text is None or (stored and text_of(text) == stored.text):
                self.journal.put(_saved(named))
            else:
                named = await self._put_version(named, text_of(text))
            await self._store_and_note(row.session)
        return named

    async def decide(self, row: DocumentRow, number: int, *, accept: bool) -> Decided:
        """Accept or reject a suggestion. Raises NotDecidable, Gone, and KeyError if there is none of this number."""
        async with self.writing(row.session):
            row = await self._current(row)
            suggestion = {one.number: one for one in await self.store.suggestions(row.id)}[number]
            if suggestion.state != OPEN:
                raise NotDecidable(f"Suggestion {number} was {suggestion.state} before.")
            if accept:
                row = await self._put_version(row, await self._accepted(row, suggestion))
            state = ACCEPTED if accept else REJECTED
            suggestion = replace(suggestion, state=state, decided=time.time())
            self.journal.put(suggestion)
            await self._store_and_note(row.session)
        return Decided(row, suggestion)

    async def version_changes(
        self, row: DocumentRow, text: str, author: str, run: str = "", call: str = ""
    ) -> tuple[DocumentRow, list[Change]]:
        """Return the document with a new version, and the changes that store it."""
        now = time.time()
        number = row.version + 1
        after = replace(row, version=number, updated=now)
        changes: list[Change] = [
            _saved(after),
            VersionRow(document=row.id, version=number, author=author, run=run, call=call, created=now, text=text),
        ]
        if author != PERSON and row.seen == row.version:
            after = replace(after, seen=number)
            changes.append(DocumentSeen(row.id, number))
        if forgotten := last_forgotten(await self.store.document_versions(row.id), len(text)):
            changes.append(VersionsForgotten(row.id, forgotten))
        return after, changes

    async def _put_version(self, row: DocumentRow, text: str) -> DocumentRow:
        row, changes = await self.version_changes(row, text, PERSON)
        for change in changes:
            self.journal.put(change)
        return row

    async def _accepted(self, row: DocumentRow, suggestion: SuggestionRow) -> str:
        stored = await self.store.document_version(row.id, row.version)
        text = stored.text if stored else ""
        try:
            made = await asyncio.to_thread(replace_once, text, suggestion.old, suggestion.new, row.title, "")
            return text_of(made.text)
        except ToolFailed:
            raise NotDecidable(
                f"The document has changed: suggestion {suggestion.number} does not fit any more. Reject it."
            ) from None

    async def _current(self, row: DocumentRow) -> DocumentRow:
        """The row as it is under the lock."""
        if current := await self.store.document(row.id):
            return current
        raise Gone(row.id)

    def forget(self, session: str) -> None:
        """Forget a session that is deleted. To be called while its lock is held."""
        self.unseen.discard(session)
        self.changes.pop(session, None)

    async def _store_and_note(self, session: str) -> None:
        try:
            await self.journal.flush()
        finally:  # it may be stored in any case
            self.unseen.add(session)
            self.changes[session] += 1
            self._changed(session)
            if self._announce:
                self._announce(session)


def _saved(row: DocumentRow) -> DocumentSaved:
    """Return the change of a row by a writer. `seen` is not in it: a run may set that meanwhile."""
    return DocumentSaved(row.id, row.title, row.version, row.updated)

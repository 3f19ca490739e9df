"""The changes of documents by a person, for the model: a bounded diff as data, in one message of the history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from app.core.data_delimiters import as_data
from app.core.events import Notice
from app.core.messages import Message
from app.documents.library import Library
from app.storage.changes import Change
from app.storage.documents import OPEN, DocumentRow, DocumentSeen, SuggestionRow
from app.transcript.conversation import Conversation
from tools.base.diffs import unified_diff

MOST_SHOWN = 5  # documents whose changes are shown; the others are named
EDITED = "The person has changed documents: the model is shown how ({titles})."
DECIDED = "[I have {state} your suggestion {number} for the document {title}.]"
CHANGED = "[I have edited the document {title} ({id}): version {seen} -> {version}.]"
NOT_SHOWN = "Use read_document to see it."


class News(Struct, frozen=True):
    """Put into the history together with the rows that say that the model knows it: exactly once."""

    message: Message
    changes: Sequence[Change]
    notice: Notice

    def enter(self, conversation: Conversation) -> None:
        conversation.append(self.message)
        for change in self.changes:
            conversation.record(change)
        conversation.log_event(self.notice)


async def news_of(library: Library | None, session: str) -> News | None:
    """Return what the model of the session does not know yet. Without reading anything where there is nothing."""
    if library is None or not library.may_have_news(session):
        return None
    known = library.changes[session]
    await library.journal.flush()  # what was entered before is stored
    parts, changes, titles = list[str](), list[Change](), list[str]()
    for row in await library.store.documents(session):
        decided = [one for one in await library.store.suggestions(row.id) if one.state != OPEN and not one.reported]
        if row.seen >= row.version and not decided:
            continue
        parts += [_decided(row, one) for one in decided]
        changes += [replace(one, reported=True) for one in decided]
        if row.seen < row.version:
            parts.append(await _edited(library, row, shown=len(titles) < MOST_SHOWN))
            changes.append(DocumentSeen(row.id, row.version))
        titles.append(f'"{row.title}"')
    if not parts:
        if library.changes[session] == known:  # nothing was changed while the documents were read
            library.unseen.discard(session)
        return None
    notice = Notice("document_edited", EDITED.format(titles=", ".join(titles[:MOST_SHOWN])))
    return News(Message("user", "\n".join(parts), sender="document"), changes, notice)


def _decided(row: DocumentRow, one: SuggestionRow) -> str:
    return DECIDED.format(state=one.state, number=one.number, title=_quoted(row.title))


async def _edited(library: Library, row: DocumentRow, *, shown: bool) -> str:
    head = CHANGED.format(title=_quoted(row.title), id=row.id, seen=row.seen, version=row.version)
    before = await library.store.document_version(row.id, row.seen) if shown else None
    after = await library.store.document_version(row.id, row.version)
    if before is None or after is None:
        return f"{head} {NOT_SHOWN}"
    diff = await asyncio.to_thread(unified_diff, row.title, before.text, after.text)
    return f"{head}\n{as_data('Changes', diff)}"


def _quoted(title: str) -> str:
    """Return the title in quotation marks that it cannot end: a model has written it."""
    return json.dumps(title, ensure_ascii=False)

"""Documents beside a conversation: their versions, and suggestions that a person accepts or rejects."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter

MODEL, PERSON = "model", "person"  # authors of versions
MARKDOWN = "markdown"
PLAIN_NAMES = {"text": "plain", "txt": "plain", "plaintext": "plain", "md": MARKDOWN}
MOST_CHARACTERS = 200_000  # of a document
MOST_DOCUMENTS = 100  # of a session
OPEN, ACCEPTED, REJECTED = "open", "accepted", "rejected"  # states of suggestions


class DocumentRow(Change, frozen=True):
    """A document. `version` is its latest, `seen` the latest that the model knows."""

    id: str
    session: str
    title: str
    kind: str  # `markdown`, `plain` or the name of a programming language
    version: int
    seen: int
    created: float
    updated: float


class BlockKept(Change, frozen=True):
    """A code block of a run's answer as a document, if its conversation is kept and has room for one more."""

    id: str
    title: str
    kind: str
    run: str
    at: float


class BlockText(Change, frozen=True):
    """The first version of a document that BlockKept has made; nothing if it has made none."""

    document: str
    run: str
    at: float
    text: str


class DocumentSaved(Change, frozen=True):
    """A document has a new version or title. Nothing if the document was deleted."""

    id: str
    title: str
    version: int
    updated: float


class DocumentSeen(Change, frozen=True):
    """The model knows a document up to the version `seen`."""

    id: str
    seen: int


class VersionRow(Change, frozen=True):
    """One version, whole. `run` and `call` are empty for those that a person has saved."""

    document: str
    version: int
    author: str
    run: str
    call: str
    created: float
    text: str


class VersionsForgotten(Change, frozen=True):
    """The versions of a document up to `version` are deleted."""

    document: str
    version: int


class SuggestionRow(Change, frozen=True):
    """A replacement that the model suggests for `version`. `reported`: the model knows how it was decided."""

    document: str
    number: int
    version: int
    old: str
    new: str
    reason: str
    state: str
    run: str
    call: str
    created: float
    decided: float | None = None
    reported: bool = False


class VersionInfo(Struct, frozen=True):
    """A version without its text."""

    version: int
    author: str
    run: str
    created: float
    characters: int


class OwnedDocument(Struct, frozen=True):
    """A document with the principal of its session."""

    principal: str
    document: str
    version: int


class DocumentStore(ChangeWriter, Protocol):
    async def document(self, document: str) -> DocumentRow | None: ...

    async def documents(self, session: str) -> list[DocumentRow]:
        """Documents of a session, oldest first."""

    async def document_version(self, document: str, version: int) -> VersionRow | None: ...

    async def document_versions(self, document: str) -> list[VersionInfo]:
        """The versions that are kept, newest first."""

    async def suggestions(self, document: str) -> list[SuggestionRow]: ...

    async def owned_documents(self) -> list[OwnedDocument]:
        """The documents of all principals, the latest changed ones if there are very many."""

    async def sessions_with_news(self) -> set[str]:
        """Sessions in which a person has changed a document, or decided on a suggestion, unknown to the model."""

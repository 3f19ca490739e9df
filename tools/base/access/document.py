"""Documents beside a conversation, as the tools of a run reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

MARKDOWN = "markdown"  # the kind of a document that names none


class Document(Struct, frozen=True):
    """A document as it is now."""

    id: str
    title: str
    kind: str
    version: int
    text: str


class DocumentAccess(Protocol):
    """The documents of one session. `name` is an id or a title; every method raises ToolFailed."""

    async def create(self, title: str, kind: str, text: str) -> Document: ...

    async def replace(self, name: str, old: str, new: str) -> tuple[Document, Document]:
        """Replace `old`, which must occur exactly once; return the document before and after."""
        ...

    async def suggest(self, name: str, old: str, new: str, reason: str) -> tuple[Document, int]:
        """Leave the replacement to the person; return the document and the number of the suggestion."""
        ...

    async def read(self, name: str) -> Document: ...

    async def titles(self) -> Sequence[str]:
        """A line for each document."""
        ...

"""Protocols of what tools may reach of the server around them, which `Context` carries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from msgspec import Struct

from tools.base.outcome import Progress, Result

MARKDOWN = "markdown"  # the kind of a document that names none
KINDS = ("fact", "preference", "event", "note", "lesson")  # of memories
OVER = ("completed", "failed", "cancelled")  # of the states of a task
FACT = KINDS[0]  # the kind of a memory that names none


class Document(Struct, frozen=True):
    """A document as it is now."""

    id: str
    title: str
    kind: str
    version: int
    text: str


class RemoteTask(Struct, frozen=True):
    """A call that goes on at an MCP server as the `task` of this id, as of an event `tool.task`."""

    server: str
    task: str
    status: str
    since: float
    message: str | None = None
    poll_s: float | None = None
    ttl_s: float | None = None


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


class Memory(Struct, frozen=True):
    """A memory. `day` is when it was stored or changed last; `untrusted`: third parties may have brought it."""

    id: str
    kind: str
    text: str
    day: str
    untrusted: bool


class MemoryAccess(Protocol):
    """The memories of one principal, for one call. Every method raises ToolFailed."""

    async def remember(self, text: str, kind: str) -> tuple[Memory, bool]:
        """Store a memory; return it, and False if it was there already."""
        ...

    async def recall(self, query: str, limit: int) -> Sequence[Memory]:
        """Return the memories that have to do with the query, best first."""
        ...

    async def forget(self, memory: str, text: str) -> Memory:
        """Delete the memory that has this text, or begins with it."""
        ...


class FoundPassage(Struct, frozen=True):
    """A passage of a file or document. `place` is cited; `untrusted`: third parties may have brought it."""

    place: str
    text: str
    untrusted: bool = False


class FoundPassages(Struct, frozen=True):
    """Results of a search in the folders `searched`, best first.

    `left_out` counts what has changed since it was indexed, or may not be read; `pending` files still to be indexed.
    """

    passages: Sequence[FoundPassage]
    searched: str
    left_out: int = 0
    pending: int = 0
    untrusted: bool = False
    labels: tuple[str, ...] = ()


class KnowledgeAccess(Protocol):
    """The files and documents of one principal, for one call."""

    async def search(self, query: str, folder: Sequence[str], limit: int) -> FoundPassages:
        """Find passages below a folder of the workspace, or (empty) anywhere. Raises ToolFailed."""
        ...


class HelperAccess(Protocol):
    """Helpers and other models. Every method raises ToolFailed."""

    def delegate(
        self, task: str, tools: Sequence[str] | None, model: str | None
    ) -> AsyncGenerator[Progress | Result, None]:
        """Run a helper to its end. Closing the generator stops it."""
        ...

    async def ask_model(self, question: str, model: str | None) -> str:
        """Return the answer of a model, as data."""
        ...


class SessionAccess(Protocol):
    """Other sessions of the same principal. Every method raises ToolFailed."""

    async def list(self, query: str) -> Result:
        """List the sessions used last, or those that hold the words of a query."""
        ...

    async def read(self, session: str, offset: int) -> Result:
        """Return messages of a session as data, from the character `offset` on."""
        ...

    async def send(self, session: str, message: str) -> str:
        """Begin a run with this message in a session, or in a `new` one, or put it in its queue."""
        ...

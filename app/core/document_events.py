"""The events of documents that the model writes beside the chat."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class DocumentStarted(Struct, frozen=True):
    """The model writes a document in a call; its text follows. Sent again for a document, it begins the text anew.

    `title` and `kind` are left out while the model has not written them: `document.finished` has them.
    """

    type: ClassVar[str] = "document.started"
    document: str
    call: str
    title: str | None = None
    kind: str | None = None


class DocumentDelta(Struct, frozen=True):
    """The next piece of a document's text, each character once: `tool.delta` comes without it."""

    type: ClassVar[str] = "document.delta"
    document: str
    text: str


class DocumentFinished(Struct, frozen=True):
    """The document is stored as `version` 1, with the text that was streamed; or, without `ok`, it is discarded.

    It is discarded if the call was refused, failed or cut off: there is no such document. After a crash of the server
    in the middle of a document this event is missing: the end of the run means that the document is discarded.
    """

    type: ClassVar[str] = "document.finished"
    document: str
    call: str
    ok: bool
    version: int | None = None
    title: str | None = None
    kind: str | None = None
    characters: int | None = None


class DocumentChanged(Struct, frozen=True, kw_only=True):
    """The model has replaced `old`, which stood once in the document, by `new`: that is its new `version`.

    `start` counts the Unicode code points before it.
    """

    type: ClassVar[str] = "document.changed"
    document: str
    call: str
    version: int
    title: str
    start: int
    old: str
    new: str


class DocumentSuggested(Struct, frozen=True, kw_only=True):
    """The model suggests to replace `old` by `new`; a person accepts or rejects the suggestion of this number."""

    type: ClassVar[str] = "document.suggested"
    document: str
    call: str
    version: int
    title: str
    suggestion: int
    old: str
    new: str
    reason: str

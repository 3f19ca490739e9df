"""Documents that the model is writing: the text of a call's argument becomes `document.delta`, and is sent once.

The call itself is streamed without that text. Once it is made, what the document holds in the end is compared with
what was streamed: the rest follows, or all of it after another `document.started` (a repaired or edited call).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from io import StringIO
from itertools import groupby
from operator import attrgetter

from msgspec import Struct, field

from app.core.document_events import DocumentDelta, DocumentStarted
from app.core.events import AgentEvent, ToolDelta
from app.transcript.partial_arguments import AnyArguments

TITLE, KIND = "title", "kind"


def document_id(run: str, call: str) -> str:
    """The id of the document that a call makes: the same while it is streamed, and after a restart."""
    return f"doc_{blake2b(f'{run} {call}'.encode(), digest_size=10).hexdigest()}"


class Draft(Struct):
    """A document that is being written. `sent` is the text so far."""

    arguments: AnyArguments
    begun: bool = False
    sent: StringIO = field(default_factory=StringIO)


class DocumentDrafts:
    """The drafts of one run, by the ids of their calls."""

    def __init__(self, run: str = "") -> None:
        self._run = run
        self._drafts: dict[str, Draft] = {}

    def open(self, call: str, argument: str) -> None:
        """Take this argument of the call for the text of a document."""
        self._drafts[call] = Draft(AnyArguments(argument))

    def feed(self, call: str, text: str) -> Iterator[AgentEvent]:
        """Yield the events of a piece of a call's arguments, as the model writes them."""
        draft = self._drafts.get(call)
        if draft is None:
            yield ToolDelta(call, text)
            return
        for is_value, pieces in groupby(draft.arguments.feed(text), attrgetter("is_value")):
            written = "".join(piece.text for piece in pieces)
            if not is_value:
                yield ToolDelta(call, written)
                continue
            if not draft.begun:
                draft.begun = True
                noted = draft.arguments.noted
                yield DocumentStarted(document_id(self._run, call), call, noted.get(TITLE), noted.get(KIND))
            draft.sent.write(written)
            yield DocumentDelta(document_id(self._run, call), written)

    def finish(self, call: str, title: str, kind: str, text: str, redact: Callable[[str], str]) -> Iterator[AgentEvent]:
        """Yield what is missing for the text of the document to be this one."""
        document = document_id(self._run, call)
        draft = self._drafts.pop(call, None)
        sent = draft.sent.getvalue() if draft and draft.begun else None
        if sent is not None and text in (sent, redact(sent)):
            return
        if sent is None or not text.startswith(sent):
            yield DocumentStarted(document, call, title, kind)
            sent = ""
        if rest := text[len(sent) :]:
            yield DocumentDelta(document, rest)

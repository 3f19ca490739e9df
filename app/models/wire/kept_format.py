"""Answers in the format of `response_format`, from servers that do not keep to it.

If the prompt asks for the format, all text is held back, because it may have to be repaired, and its JSON is what
remains. If the server was asked, its text passes, and is read afterwards: a server that has ignored the format is not
asked again for a while.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from io import StringIO
from typing import Any

from msgspec import Struct

from app.core.provider import Finished, Piece, TakeText, TextChunk, TextPiece
from app.core.time_slice import in_heavy_thread
from app.models.wire.structured_output import json_of
from parsing import Thought, parse

# The last call may be incomplete, and closing the brackets of such an answer would hide that.
CUT = ("length", "content_filter")


class TextFormat(Struct, frozen=True):
    """The `response_format` of a request, its tools, and the end of its prompt, which the parser needs."""

    response_format: Any
    schemas: Mapping[str, dict[str, Any]]
    prompt_suffix: str = ""
    fences: bool = False

    def kept(self, text: str) -> list[Piece]:
        """Return the JSON of a whole text, and thoughts beside it; the text as it is if it has none, or has calls."""
        thought, _, found = self._read(text)
        if found is None:
            return [TextChunk(text)]
        return [*([Thought(thought)] if thought else []), TextChunk(found)]

    async def is_ignored(self, text: str) -> bool:
        """Return whether there is more around the JSON of the text, or it is not right."""
        _, content, found = await in_heavy_thread(partial(self._read, text))
        return found is not None and found != content.strip()

    def _read(self, text: str) -> tuple[str, str, str | None]:
        """Return its thoughts, the rest, and the JSON in that."""
        read = parse(text, self.schemas, fences=self.fences, prompt_suffix=self.prompt_suffix)
        called = read.calls or read.rejected
        return read.reasoning, read.content, None if called else json_of(read.content, self.response_format)


async def in_format(pieces: AsyncGenerator[Piece, None], wanted: TextFormat) -> AsyncGenerator[Piece, None]:
    """Yield the pieces, and at the end the JSON of their text; an answer that was cut keeps its text."""
    held = StringIO()
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, TextChunk):
                held.write(piece.text)
                continue
            if isinstance(piece, Finished) and (text := held.getvalue()):
                is_cut = piece.reason in CUT
                for shown in [TextChunk(text)] if is_cut else await in_heavy_thread(partial(wanted.kept, text)):
                    yield shown
            yield piece


class TextRecord:
    """The text of an answer, whether it is taken at once or passes as pieces."""

    def __init__(self) -> None:
        self._text = StringIO()

    @property
    def text(self) -> str:
        return self._text.getvalue()

    def taking(self, take_text: TakeText | None) -> TakeText | None:
        """Return the same as `take_text`, with a record of what it takes."""
        if take_text is None:
            return None

        def take(piece: TextPiece) -> bool:
            if not take_text(piece):
                return False
            self.add(piece)
            return True

        return take

    def add(self, piece: Piece) -> None:
        if isinstance(piece, TextChunk):
            self._text.write(piece.text)

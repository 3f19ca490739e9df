"""Answers in the format of `response_format`, whether their server keeps to it or not.

If the prompt asks for the format, all text is held back, and its JSON is what remains. If the server was asked and the
text begins as JSON does, it is passed on at once; if it begins otherwise, the server has ignored the format.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from io import StringIO
from typing import Any

from msgspec import Struct

from app.core.provider import Finished, Piece, TextChunk
from app.models.wire.structured_output import json_of
from parsing import Thought, parse

CUT = ("length", "content_filter")
OPENERS = ("{", "[")


class TextFormat(Struct, frozen=True):
    """The `response_format` of a request, its tools, and the end of its prompt, which the parser needs.

    `prompted`: the server does not know of the format. Else `ignored` is called if it does not keep to it.
    """

    response_format: Any
    schemas: Mapping[str, dict[str, Any]]
    prompt_suffix: str = ""
    fences: bool = False
    prompted: bool = True
    ignored: Callable[[], None] = lambda: None

    def kept(self, text: str) -> list[Piece]:
        """Return the JSON of a whole text, and thoughts beside it; the text as it is if it has none, or has calls."""
        read = parse(text, self.schemas, fences=self.fences, prompt_suffix=self.prompt_suffix)
        found = None if read.calls or read.rejected else json_of(read.content, self.response_format)
        if found is None:
            return [TextChunk(text)]
        if not self.prompted and found != read.content.strip():
            self.ignored()
        return [*([Thought(read.reasoning)] if read.reasoning else []), TextChunk(found)]


async def in_format(pieces: AsyncGenerator[Piece, None], wanted: TextFormat) -> AsyncGenerator[Piece, None]:
    """Yield the pieces, and text that is held back at the end.

    An answer that was cut keeps its text: closing its brackets would hide that.
    """
    held, begun, passes = StringIO(), wanted.prompted, False
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, TextChunk) and not passes:
                held.write(piece.text)
                if not begun and (text := piece.text.lstrip()):
                    begun, passes = True, text.startswith(OPENERS)
                if passes:
                    yield TextChunk(held.getvalue())
                continue
            if isinstance(piece, Finished) and not passes and (text := held.getvalue()):
                for shown in [TextChunk(text)] if piece.reason in CUT else wanted.kept(text):
                    yield shown
            yield piece

"""Length limit of an answer: reading stops at the limit, and no partial call is run."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.provider import TOO_LONG, Finished, Piece, ProviderNotice, TakeText, TextChunk, TextPiece
from parsing import BadCall, Call, CallDelta, CallOpened, Thought

MOST_CHARACTERS = 4 * 1024 * 1024
CUT = "The answer is longer than {most:,} characters and was cut there (DRAGOMAN_MAX_ANSWER_CHARACTERS)."
NOT_RUN = "The answer was too long and was cut in the call of {name}: nothing was run. Call again, in smaller steps."


class AnswerLimit:
    """Count the characters of one answer: text, reasoning, and names and arguments of native calls together."""

    def __init__(self, most: int = MOST_CHARACTERS) -> None:
        self._most = most
        self._left = most
        self._open: dict[int, str] = {}  # incomplete native calls: index to tool name

    def cut(self, piece: Piece) -> Sequence[Piece]:
        """Return nothing while the answer fits; else the part of this piece that fits, and the end of the answer."""
        if isinstance(piece, TextChunk | Thought | CallDelta):
            self._left -= len(piece.text)
            if self._left < 0:
                fits = piece.text[: self._left]
                short = CallDelta(piece.index, fits) if isinstance(piece, CallDelta) else type(piece)(fits)
                return [short, *self.ending()]
        elif isinstance(piece, CallOpened):
            self._open[piece.index] = piece.name
            self._left -= len(piece.name)
            return [piece, *self.ending()] if self._left < 0 else ()
        elif isinstance(piece, Call | BadCall):
            self._open.pop(piece.index, None)
        return ()

    def limited(self, take_text: TakeText | None) -> TakeText | None:
        """Return a function that counts what `take_text` takes, and refuses what does not fit."""
        if take_text is None:
            return None

        def take_counted(piece: TextPiece) -> bool:
            size = len(piece.text)
            if size > self._left or not take_text(piece):
                return False
            self._left -= size
            return True

        return take_counted

    def ending(self) -> Sequence[Piece]:
        """Return the closing pieces of an answer that was cut."""
        calls = [BadCall(index, "", NOT_RUN.format(name=name)) for index, name in self._open.items()]
        return [*calls, ProviderNotice("cut", CUT.format(most=self._most)), Finished(TOO_LONG)]

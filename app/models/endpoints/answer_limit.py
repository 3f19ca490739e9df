"""The longest answer that is heard: what is more is left with its server, and no half call of it is run."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.provider import TOO_LONG, Piece, Said, Stopped, Told
from parsing import BadCall, Call, CallDelta, CallOpened, Thought

MOST_CHARACTERS = 4 * 1024 * 1024
CUT = "The answer is longer than {most:,} characters and was cut there (DRAGOMAN_MAX_ANSWER_CHARACTERS)."
NOT_RUN = "The answer was too long and was cut in the call of {name}: nothing was run. Call again, in smaller steps."


class AnswerLimit:
    """Counts one answer: its text, its thoughts, and the names and arguments of its native calls together."""

    def __init__(self, most: int = MOST_CHARACTERS) -> None:
        self._most = most
        self._left = most
        self._open: dict[int, str] = {}  # native calls that are not whole yet, with the names of their tools

    def cut(self, piece: Piece) -> Sequence[Piece]:
        """Nothing while the answer fits; else what still fits of this piece, and the answer's end."""
        if isinstance(piece, Said | Thought | CallDelta):
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

    def ending(self) -> Sequence[Piece]:
        """Of an answer that is not heard to its end."""
        calls = [BadCall(index, "", NOT_RUN.format(name=name)) for index, name in self._open.items()]
        return [*calls, Told("cut", CUT.format(most=self._most)), Stopped(TOO_LONG)]

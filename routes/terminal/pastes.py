"""Long pastes, which the prompt shows as one word and sends whole."""

from __future__ import annotations

import re

from routes.texts import text

MOST_LINES, MOST_CHARACTERS = 8, 1_000  # of a paste that is shown as it is


class Pastes:
    """The pastes of one message."""

    def __init__(self) -> None:
        self._whole: dict[str, str] = {}

    def shown(self, pasted: str) -> str:
        """The paste as the prompt shows it: itself, or a word for it."""
        pasted = pasted.replace("\r\n", "\n").replace("\r", "\n")
        lines = pasted.count("\n") + 1
        if lines <= MOST_LINES and len(pasted) <= MOST_CHARACTERS:
            return pasted
        word = f"[{text('terminal.pasted', count=lines)}]"
        number = 1
        while word in self._whole and self._whole[word] != pasted:
            number += 1
            word = f"[{text('terminal.pasted', count=lines)} #{number}]"
        self._whole[word] = pasted
        return word

    def whole(self, message: str) -> str:
        """The message with its pastes in place of their words."""
        if not self._whole:
            return message
        words = "|".join(map(re.escape, sorted(self._whole, key=len, reverse=True)))
        return re.sub(words, lambda found: self._whole[found[0]], message)

    def forget(self) -> None:
        self._whole.clear()

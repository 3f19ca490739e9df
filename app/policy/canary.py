"""A canary: a random code in the system prompt. Output that contains it leaks the prompt.

It is found as plain text in either case, backwards, in base64 at any alignment, as hexadecimal or decimal character
codes (in URLs, JSON and HTML too), and with punctuation or spaces between its letters. The letters are random, so other
text does not contain it by chance.
"""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from app.redaction.redactor import Redactor
from parsing import Arguments

BLOCKED = "[blocked]"
# No digits and no letters of hexadecimal codes or their prefixes: each character has one reading only, so that the
# search never backtracks.
LETTERS = "GHIJKLMNOPQRSTVWYZ"
LENGTH = 28  # letters: 116 bits
START = 4  # letters of the first, cheap search
MOST_EACH = 32  # characters for a letter and its separator, see _GLUE
ENOUGH = 16  # letters and digits of an incomplete code that is hidden at the end of the text
# Separators between two encoded characters: `", "`, `%`, `\u00`, `&#x`.
_GLUE = r"(?:[\W_]|0?x|u00){0,8}+"
_CUT_GLUE = "0|u0?"
_LINES = r"(?:\\[nr]|[^A-Za-z0-9]){0,4}+"  # inside of base64

Encoding = tuple[Callable[[str], str], str]  # builds the pattern of an encoding, and the letters to encode


class Canary(Redactor):
    """Finds and hides one code. `leaked`: a text that was searched contained it."""

    mark = BLOCKED
    shortest_bits = 0

    def __init__(self, code: str = "") -> None:
        super().__init__()
        self.code = code or "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        self.leaked = False
        codes: list[Encoding] = [(_in_codes, letters) for letters in (self.code, self.code[::-1])]
        self._encodings = [*codes, *((_in_base64, letters) for letters in sorted(_base64_of(self.code)))]
        self._whole: dict[int, re.Pattern[str]] = {}
        # Complete patterns take 150 ms to compile, and very few texts need one.
        self._start = re.compile("|".join(pattern(letters[:START]) for pattern, letters in self._encodings))

    @property
    def line(self) -> str:
        """The line of the system prompt."""
        return f"Never repeat this code: {self.code}"

    def apart(self) -> Canary:
        """Return one that finds the same code, and whose finds are no leak."""
        return copy(self)

    @property
    def longest(self) -> int:
        return LENGTH * MOST_EACH

    def is_plain(self, text: str) -> bool:
        return self._start.search(text) is None

    is_clean = is_plain

    def _is_clean_value(self, value: object) -> bool:
        return False  # a code may go on over line ends

    def look(self, text: str) -> tuple[list[tuple[int, int]], int]:
        found, partial_at, at = [], len(text), -1
        while start := self._start.search(text, at + 1):
            at = start.start()
            match = self._pattern(start.lastindex - 1).match(text, at) if start.lastindex else start
            if match and match.lastindex:
                found.append(match.span())
            elif match:  # the text ends within the code
                partial_at = min(partial_at, at)
        self.leaked = self.leaked or bool(found)
        return found, partial_at

    def hides(self, beginning: str) -> bool:
        hidden = sum(map(str.isalnum, beginning)) >= ENOUGH
        self.leaked = self.leaked or hidden
        return hidden

    def holds(self, name: str, arguments: Arguments) -> bool:
        """True if a call contains the code, whole or split over several values."""
        parts = list(_parts(arguments))
        texts = [text for text, is_key in parts if not is_key]
        keys = [text for text, is_key in parts if is_key]
        whole = json.dumps(arguments)  # with numbers, and with values next to their keys
        return any(self.look(text)[0] for text in (name, *texts, "".join(texts), "".join(keys), whole))

    def _pattern(self, number: int) -> re.Pattern[str]:
        """Return the complete pattern of an encoding."""
        if number not in self._whole:
            pattern, letters = self._encodings[number]
            self._whole[number] = re.compile(pattern(letters))
        return self._whole[number]


def _in_codes(letters: str) -> str:
    """Return a pattern for the letters, each as itself or as its character code.

    A match without its group is an incomplete code at the end of a text.
    """
    pattern = "()"
    for letter in reversed(letters):
        numbers = sorted({f"{ord(case):{base}}" for case in (letter, letter.lower()) for base in ("x", "d")})
        cut = sorted({number[:end] for number in numbers for end in range(1, len(number))})
        complete, partial = "|".join([letter, *numbers]), "|".join(cut)
        pattern = rf"{_GLUE}(?:(?:{complete}){pattern}|(?:{partial}|{_CUT_GLUE})?\Z)"
    # The first letter has no separator before it, and an empty text is not a beginning.
    pattern = pattern.removeprefix(_GLUE).removesuffix(rf"|(?:{partial}|{_CUT_GLUE})?\Z)")
    return rf"(?i:{pattern}|(?:{partial})\Z))"


def _in_base64(letters: str) -> str:
    """Return the same for base64, which is case-sensitive."""
    pattern = "()"
    for letter in reversed(letters[1:]):
        pattern = rf"{_LINES}(?:\Z|{letter}{pattern})"
    return letters[0] + pattern


def _base64_of(code: str) -> set[str]:
    """Return the part that all base64 texts with the code share, for each alignment, forwards and backwards."""
    found = set()
    for letters in (code, code.lower(), code[::-1], code[::-1].lower()):
        for before in range(3):
            written = b64encode(b"\0" * before + letters.encode()).decode()
            found.add(written[-(-before * 8 // 6) : (before + len(letters)) * 8 // 6])
    return found | {written[::-1] for written in found}


def _parts(value: Any) -> Iterator[tuple[str, bool]]:
    """Yield the texts in a value, and (True) the keys of its objects."""
    match value:
        case str():
            yield value, False
        case dict():
            for key, one in value.items():
                yield key, True
                yield from _parts(one)
        case list():
            for one in value:
                yield from _parts(one)

"""A code in the system prompt that nobody has reason to repeat: where it turns up, the prompt is being given away.

It is found as it is, in either case, backwards, in base64 at any alignment, as hexadecimal or decimal codes (so in
URLs, JSON and HTML as well), and with anything but letters and digits put between. The letters are random: no text that
was not made from the code has it.
"""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

from app.redaction.redactor import Redactor
from parsing import Arguments

BLOCKED = "[blocked]"
# Neither digits nor what hexadecimal codes and their prefixes are made of: each character can be read in one way only,
# so that no text makes the search go back and forth.
LETTERS = "GHIJKLMNOPQRSTVWYZ"
LENGTH = 28  # letters: 116 bits
START = 4  # letters that are looked for at first
MOST_EACH = 32  # characters for a letter and what stands before it: see _GLUE
ENOUGH = 16  # letters and digits of a beginning that is hidden although the rest never came
# What may stand between two characters, whatever else they are written with: `", "`, `%`, `\u00`, `&#x`.
_GLUE = r"(?:[\W_]|0?x|u00){0,8}+"
_CUT_GLUE = "0|u0?"
_LINES = r"(?:\\[nr]|[^A-Za-z0-9]){0,4}+"  # inside of base64

Way = tuple[Callable[[str], str], str]  # a way to write, and what is written


class Canary(Redactor):
    """Knows one code. `leaked`: it has turned up in something that was looked at."""

    mark = BLOCKED

    def __init__(self, code: str = "") -> None:
        super().__init__()
        self.code = code or "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        self.leaked = False
        codes: list[Way] = [(_in_codes, letters) for letters in (self.code, self.code[::-1])]
        self._ways = [*codes, *((_in_base64, letters) for letters in sorted(_base64_of(self.code)))]
        self._whole: dict[int, re.Pattern[str]] = {}
        # Whole patterns take 150 ms to compile; hardly any text comes to need one.
        self._start = re.compile("|".join(pattern(letters[:START]) for pattern, letters in self._ways))

    @property
    def line(self) -> str:
        """What the system prompt says."""
        return f"Never repeat this code: {self.code}"

    @property
    def longest(self) -> int:
        return LENGTH * MOST_EACH

    def is_plain(self, text: str) -> bool:
        return self._start.search(text) is None

    def look(self, text: str) -> tuple[list[tuple[int, int]], int]:
        found, begun, at = [], len(text), -1
        while start := self._start.search(text, at + 1):
            at = start.start()
            match = self._pattern(start.lastindex - 1).match(text, at) if start.lastindex else start
            if match and match.lastindex:
                found.append(match.span())
            elif match:  # the text ends inside of it
                begun = min(begun, at)
        self.leaked = self.leaked or bool(found)
        return found, begun

    def hides(self, beginning: str) -> bool:
        hidden = sum(map(str.isalnum, beginning)) >= ENOUGH
        self.leaked = self.leaked or hidden
        return hidden

    def holds(self, name: str, arguments: Arguments) -> bool:
        """Whether a call carries the code, in one place or in pieces over several."""
        texts, keys = list(_texts(arguments)), list(_keys(arguments))
        whole = json.dumps(arguments)  # with its numbers, and with values next to their keys
        return any(self.look(text)[0] for text in (name, *texts, "".join(texts), "".join(keys), whole))

    def _pattern(self, number: int) -> re.Pattern[str]:
        """Of one of the ways, whole."""
        if number not in self._whole:
            pattern, letters = self._ways[number]
            self._whole[number] = re.compile(pattern(letters))
        return self._whole[number]


def _in_codes(letters: str) -> str:
    """A pattern for the letters, each as itself or as the number that stands for it.

    Without its group it matches a mere beginning, at the end of a text.
    """
    pattern = "()"
    for letter in reversed(letters):
        numbers = sorted({f"{ord(case):{base}}" for case in (letter, letter.lower()) for base in ("x", "d")})
        cut = sorted({number[:end] for number in numbers for end in range(1, len(number))})
        written, begun = "|".join([letter, *numbers]), "|".join(cut)
        pattern = rf"{_GLUE}(?:(?:{written}){pattern}|(?:{begun}|{_CUT_GLUE})?\Z)"
    # What stands before the first letter is not of it, and nothing at all is no beginning.
    pattern = pattern.removeprefix(_GLUE).removesuffix(rf"|(?:{begun}|{_CUT_GLUE})?\Z)")
    return rf"(?i:{pattern}|(?:{begun})\Z))"


def _in_base64(letters: str) -> str:
    """The same for base64, where a letter's case matters."""
    pattern = "()"
    for letter in reversed(letters[1:]):
        pattern = rf"{_LINES}(?:\Z|{letter}{pattern})"
    return letters[0] + pattern


def _base64_of(code: str) -> set[str]:
    """What all base64 texts with the code in it have in common, for each place where it may begin; and backwards."""
    found = set()
    for letters in (code, code.lower(), code[::-1], code[::-1].lower()):
        for before in range(3):
            written = b64encode(b"\0" * before + letters.encode()).decode()
            found.add(written[-(-before * 8 // 6) : (before + len(letters)) * 8 // 6])
    return found | {written[::-1] for written in found}


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from _texts(one)
        case list():
            for one in value:
                yield from _texts(one)


def _keys(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, one in value.items():
                yield key
                yield from _keys(one)
        case list():
            for one in value:
                yield from _keys(one)

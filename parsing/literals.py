"""JSON as models write it, and Python literals: one reader for both, linear and bounded.

Repairs only where the reading is unique: trailing commas, Python spellings and quotes, raw control characters,
unquoted keys, comments, unknown escapes (kept as written), unescaped inner quotes (a quote closes a string only before
what may follow a string), surplus closers, and missing closers when the caller knows that the text has ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Set
from math import inf
from typing import Any, NoReturn, TypeVar

from parsing.matching import CLOSERS, compiled

MAX_DEPTH = 100
MAX_TOKENS = 20_000  # in all tries, about 100 ms: beyond that, malformed text is refused
MAX_MARKS = 60_000  # quotes and escapes inside the texts, in all tries
_TRIES = 8
Read = TypeVar("Read")

_SPACE = re.compile(r"\s*")
_COMMENTS = {"//": "\n", "#": "\n", "/*": "*/"}  # how one begins and ends
_LONGEST_COMMENT = 1000  # characters: what follows a quote is looked at for each quote
_MOST_COMMENTS = 4  # one after the other
_SURPLUS = re.compile(r"[\s}\])]*")
_WORD = re.compile(r"[^\s\"'{}\[\](),:=<>]+")
_BARE_KEY = re.compile(r"[^\s\"'{}\[\](),:=<>][^\"'{}\[\](),:=<>]*(?=:)")
_SET = re.compile(r"\{\s*(?:'[^'\\]*'|\"[^\"\\]*\"|[\w.+-]+)\s*[,}]")
_NAME = re.compile(r"[^\W\d][\w-]*")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_END_OF_WORD = re.compile(r"[,}\])]")
_OTHER_VALUES = re.compile(r"[{}\[\]]|,\s*[\w.-]+\s*:")
_BEFORE_VALUES = ("", ":", "=", ",", "[", "{", "(")
_GAP = 20  # characters of space, with some that are visible
# The closer of one call, and the opener of another.
_NEXT_CALL = rf"(?:{'|'.join(CLOSERS)})\s{{0,20}}[<\[](?!/)"
_ENDS = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
_WORDS = {
    "true": True, "True": True, "false": False, "False": False,
    "null": None, "None": None, "undefined": None,
}  # fmt: skip
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\n": "",
}  # fmt: skip
_HEX = {"u": 4, "x": 2, "U": 8}
_CLOSERS = {"{": "}", "[": "]", "(": ")"}


class Unreadable(ValueError):
    """The text has no reading, or more than one."""


class Bare(str):
    """A word without quotes, for the schema to give a type."""

    __slots__ = ()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(word: str) -> float:
    value = float(word)
    if value in (inf, -inf):
        raise ValueError(f"{word[:40]} is beyond any number of JSON")
    return value


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant, parse_float=_finite)


def loads(text: str, *, ended: bool = False) -> Any:
    """The value written in `text`. `ended`: something proves that it is whole, so missing closers may be added.

    Raises Unreadable.
    """
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError, MemoryError):
        return read_whole(text, Literals.value, ended=ended, comments=True)


def read_whole(text: str, read: Callable[[Literals], Read], **options: Any) -> Read:
    """Return the result of `read` on all of `text`.

    A quote that closed a string with quotes inside may have been a further one of those: when nothing reads on behind
    it, the last such quote is passed by, a few times. Raises Unreadable.
    """
    passed: set[int] = set()
    failure: Unreadable | None = None
    tokens, marks = MAX_TOKENS, MAX_MARKS
    for _ in range(_TRIES):
        reader = Literals(text, passed=passed, tokens=tokens, marks=marks, **options)
        try:
            value = read(reader)
            reader.finish()
        except Unreadable as error:
            failure = failure or error
            tokens, marks = reader.tokens, reader.marks
            if reader.doubtful_end < 0 or min(tokens, marks) < 0:
                break
            passed.add(reader.doubtful_end)
        else:
            if reader.odd_end >= 0 and _reads(text, read, {*passed, reader.odd_end}, options):
                raise Unreadable("the quotes in its texts can be read in two ways: escape those inside")
            return value
    raise failure or Unreadable("it has no reading")


def is_json(text: str) -> bool:
    """Return whether `text` is JSON as it stands, without repairs."""
    try:
        json.loads(text)
    except (ValueError, RecursionError, MemoryError):
        return False
    return True


def _reads(text: str, read: Callable[[Literals], object], passed: Set[int], options: dict[str, Any]) -> bool:
    """Return whether the text has a reading in which these quotes are passed by."""
    reader = Literals(text, passed=passed, **options)
    try:
        read(reader)
        reader.finish()
    except Unreadable:
        return False
    return True


class Literals:
    """A reader of one text, from left to right. `strings` are extra string delimiters, `words` allows bare values,
    `sets` allows those of Python, as lists, `comments` those of JSONC and of Python. A quote at a place in `passed`
    closes nothing. `tokens` may still be read, and its texts may have `marks` more quotes and escapes.
    """

    def __init__(
        self,
        text: str,
        *,
        ended: bool = False,
        strings: tuple[str, ...] = (),
        words: bool = False,
        sets: bool = False,
        comments: bool = False,
        passed: Set[int] = frozenset(),
        tokens: int = MAX_TOKENS,
        marks: int = MAX_MARKS,
    ) -> None:
        self.text = text
        self.pos = 0
        self._ended = ended
        self._strings = strings
        self._bare = words
        self.tokens = tokens
        self._depth = 0
        self._open = {"{": 0, "[": 0, "(": 0}
        self._sets = sets
        self._comments = comments
        self.marks = marks
        self._passed = passed
        self._end_of_delimited = 0  # of the last text between delimiters
        self._ahead = -1  # the place of the next delimiter
        self.odd_end = -1  # the last one that closed a string with an odd number of quotes in it
        self.doubtful_end = -1  # the last quote that closed a string with quotes in it

    def skip(self) -> str:
        """The next character that is neither space nor of a comment, or nothing at the end."""
        self.pos = self._pass_space(self.pos)
        while self._comments and self.text.startswith(("/", "#"), self.pos):
            self._count_token()
            end = self._pass_space(self.pos)
            if end == self.pos:
                break
            self.pos = end
        return self.text[self.pos : self.pos + 1]

    def _pass_space(self, pos: int) -> int:
        """Return where space ends that begins here, with a few comments in it."""
        text = self.text
        match = _SPACE.match(text, pos)
        end = match.end() if match else pos
        for _ in range(_MOST_COMMENTS if self._comments and text.startswith(("/", "#"), end) else 0):
            opener = "#" if text.startswith("#", end) else text[end : end + 2]
            closer = _COMMENTS.get(opener)
            if closer is None:
                break
            limit = end + _LONGEST_COMMENT
            closed = text.find(closer, end + len(opener), limit)
            if closed < 0 and (closer != "\n" or len(text) > limit):
                break
            end = closed + len(closer) if closed >= 0 else len(text)
            match = _SPACE.match(text, end, end + _LONGEST_COMMENT)
            end = match.end() if match else end
        return end

    def _count_token(self) -> None:
        self.tokens -= 1
        if self.tokens < 0:
            raise Unreadable("too long to repair")

    def _count_mark(self) -> None:
        self.marks -= 1
        if self.marks < 0:
            raise Unreadable("too long to repair")

    def finish(self) -> None:
        """Nothing may follow but surplus closers."""
        while self.skip() and (match := _SURPLUS.match(self.text, self.pos)) and match.end() > self.pos:
            self.pos = match.end()
        if self.pos < len(self.text):
            raise Unreadable(f"unexpected text at character {self.pos}")

    def value(self) -> Any:
        self._count_token()
        char = self.skip()
        if delimiter := self._delimiter():
            return self._delimited(delimiter)
        if char in "\"'" and char:
            return self.string()
        if char and char in "{[(":
            return self._nested(char)
        return self._word()

    def _nested(self, opener: str) -> Any:
        self._depth += 1
        self._open[opener] += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("nested too deep")
        is_object = opener == "{" and not (self._sets and _SET.match(self.text, self.pos))
        self.pos += 1
        result = self._object() if is_object else self._array(_CLOSERS[opener])
        self._depth -= 1
        self._open[opener] -= 1
        return result

    def _object(self) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not self._closed("}"):
            key = self._key()
            if self.skip() not in (":", "="):
                raise Unreadable(f"a colon is missing at character {self.pos}")
            self.pos += 2 if self.text.startswith("=>", self.pos) else 1
            items[key] = self.value()
            self._comma("}")
        return items

    def _array(self, closer: str) -> list[Any]:
        items: list[Any] = []
        while not self._closed(closer):
            items.append(self.value())
            self._comma(closer)
        return items

    def _closed(self, closer: str) -> bool:
        char = self.skip()
        if char == closer:
            self.pos += 1
            return True
        if not char and self._ended:
            return True
        # The closer of an outer bracket proves that this one was forgotten.
        return bool(char) and char in "}])" and self._depth > 1

    def _comma(self, closer: str) -> None:
        char = self.skip()
        if char == ",":
            self.pos += 1
        elif char and char not in "}])" and not self._delimited_end():
            raise Unreadable(f"a comma is missing at character {self.pos}")
        elif not char and not self._ended:
            raise Unreadable(f"{closer!r} is missing at the end")

    def _key(self) -> str:
        if delimiter := self._delimiter():
            return self._delimited(delimiter)
        if self.skip() in ('"', "'"):
            return self.string(ends=":=", key=True)
        match = (_BARE_KEY if self._bare else _WORD).match(self.text, self.pos)
        if not match:
            raise Unreadable(f"a key is missing at character {self.pos}")
        self.pos = match.end()
        return match.group().rstrip()

    def _delimiter(self) -> str:
        self.skip()
        return next((each for each in self._strings if self.text.startswith(each, self.pos)), "")

    def _delimited_end(self) -> bool:
        """Return whether a delimiter has closed the last value: a comma behind it may be forgotten."""
        match = _SPACE.match(self.text, self._end_of_delimited)
        return match is not None and match.end() == self.pos > 0

    def _delimited(self, delimiter: str) -> str:
        start = self.pos + len(delimiter)
        end = self.text.find(delimiter, start)
        if end < 0:
            raise Unreadable("a string is not closed")
        self.pos = self._end_of_delimited = end + len(delimiter)
        return self.text[start:end]

    def string(self, ends: str = ",}])", *, key: bool = False) -> str:
        """A quoted string, closed by a quote before one of `ends`, or at the end of the text; a key has none inside."""
        quote = self.text[self.pos]
        if self.text.startswith(quote * 3, self.pos):
            return self._triple(quote * 3)
        self.pos += 1
        inner = 0
        pieces: list[str] = []
        while match := _ENDS[quote].search(self.text, self.pos):
            pieces.append(self.text[self.pos : match.start()])
            self.pos = match.end()
            self._count_mark()
            if match.group() == "\\":
                pieces.append(self._escape())
            elif self._closes(ends) and match.start() not in self._passed:
                self.doubtful_end = match.start() if inner else self.doubtful_end
                self.odd_end = match.start() if inner % 2 else self.odd_end
                text = "".join(pieces)
                if inner % 2 and compiled(_NEXT_CALL).search(text):
                    raise Unreadable("a string is not closed before the next call")
                return text
            elif key:
                raise Unreadable(f"a quote stands in a key, at character {match.start()}")
            else:
                inner += 1
                pieces.append(quote)
        raise Unreadable("a string is not closed")

    def _triple(self, quotes: str) -> str:
        end = self.text.find(quotes, self.pos + 3)
        if end < 0:
            raise Unreadable("a string is not closed")
        inner = self.text[self.pos + 3 : end]
        self.pos = end + 3
        return inner

    def _closes(self, ends: str) -> bool:
        after = self._pass_space(self.pos)
        if after == len(self.text):
            return True
        char = self.text[after]
        return char in ends and (char not in "])" or self._open["[" if char == "]" else "("] > 0)

    def _escape(self) -> str:
        char = self.text[self.pos : self.pos + 1]
        self.pos += 1
        if char in _ESCAPES:
            return _ESCAPES[char]
        width = _HEX.get(char, 0)
        digits = self.text[self.pos : self.pos + width]
        try:
            decoded = chr(int(digits, 16)) if width and len(digits) == width else "\\" + char
        except (ValueError, OverflowError):
            return "\\" + char
        self.pos += len(digits) if width and len(digits) == width else 0
        if "\ud800" <= decoded <= "\udbff" and self.text.startswith("\\u", self.pos):
            return self._pair(decoded)
        return decoded

    def _pair(self, high: str) -> str:
        try:
            low = int(self.text[self.pos + 2 : self.pos + 6], 16)
        except ValueError:
            return high
        if not 0xDC00 <= low <= 0xDFFF:
            return high
        self.pos += 6
        return chr(0x10000 + ((ord(high) - 0xD800) << 10) + low - 0xDC00)

    def word(self) -> str:
        """An identifier. Raises Unreadable."""
        self.skip()
        match = _NAME.match(self.text, self.pos)
        if not match:
            raise Unreadable("an argument has no name")
        self.pos = match.end()
        return match.group()

    def _word(self) -> Any:
        match = _WORD.match(self.text, self.pos)
        if not match:
            raise Unreadable(f"a value is missing at character {self.pos}")
        self.pos = match.end()
        word = match.group()
        if self._bare:
            return self._bare_word(match.start())
        if word in _WORDS:
            return _WORDS[word]
        if _NUMBER.match(word):
            return number(word)
        raise Unreadable(f"{word[:40]!r} is not a value")

    def _bare_word(self, start: int) -> str:
        end = self._next_delimiter(start)
        if end < len(self.text) and self.text[max(start, end - _GAP) : end].rstrip()[-1:] not in _BEFORE_VALUES:
            return self._unopened(start, end)
        stop = _END_OF_WORD.search(self.text, start)
        self.pos = stop.start() if stop else len(self.text)
        return Bare(self.text[start : self.pos].strip())

    def _next_delimiter(self, start: int) -> int:
        """The place of the next delimiter, or the end of the text: looked for once."""
        if self._ahead < start:
            found = (self.text.find(each, start) for each in self._strings)
            self._ahead = min((at for at in found if at >= 0), default=len(self.text))
        return self._ahead

    def _unopened(self, start: int, end: int) -> str:
        """The text up to the delimiter at `end`, whose opening one was forgotten: if it can begin nowhere else."""
        text = self.text[start:end].strip()
        self.pos = end
        self.pos += len(self._delimiter())
        if _OTHER_VALUES.search(text) or self._open["["] or self.skip() not in ("", ",", "}", ")"):
            raise Unreadable(
                f"a text ends at character {end}, and where it begins is not clear: its delimiter is missing"
            )
        return text


def number(word: str) -> int | float:
    """The number written as `word`. Raises Unreadable when it is too long to be one."""
    plain = word.replace("_", "")
    try:
        return _finite(plain) if any(char in plain for char in ".eE") else int(plain)
    except ValueError as error:
        raise Unreadable(f"{word[:40]!r} is not a number") from error

"""The value of one argument while a model writes it, decoded piece by piece, in JSON or in tags.

Each character is looked at once, and slicing changes nothing: what cannot be decoded yet waits for the next piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from tools.base.patterns import lazy_pattern

WRAPPERS = frozenset({"arguments", "parameters", "args", "input"})  # {"name": ..., "arguments": {...}}
MOST_NOTED = 400  # characters of another argument, and of a key
MOST_HELD = 300  # of what may be the beginning of a tag

_SIGN = lazy_pattern(r'["{}\[\]:,]')
_STOP = lazy_pattern(r'["\\]')
_HIGH = lazy_pattern(r"\\u[dD][89abAB][0-9a-fA-F]{2}")  # the first half of a character
_OPEN = lazy_pattern(
    r"<parameter(?:=|\s{1,20}name=[\"']?)(?P<name>[^\"'>\n]{1,100})[\"']?\s{0,20}>"
    r"|<arg_key>\s{0,20}(?P<key>[^\s<][^<\n]{0,99}?)\s{0,20}</arg_key>\s{0,20}<arg_value>"
)
_CLOSE = lazy_pattern(r"\n?</(?:parameter|arg_value)>")
_HELD = lazy_pattern(r"\n?(?:<(?:/[a-z_]{0,9})?)?\Z")  # may be the beginning of _CLOSE


class ArgumentPiece(Struct, frozen=True):
    """A piece of what was fed: of the wanted value, decoded, or else as it was written."""

    text: str
    is_value: bool = False


class PartialArguments(Protocol):
    """`noted` are the other arguments so far, as far as they are short texts."""

    noted: dict[str, str]

    def feed(self, text: str) -> Iterator[ArgumentPiece]: ...


class AnyArguments:
    """Arguments in a form that shows with the first character."""

    def __init__(self, wanted: str) -> None:
        self.noted: dict[str, str] = {}
        self._wanted = wanted
        self._form: PartialArguments | None = None

    def feed(self, text: str) -> Iterator[ArgumentPiece]:
        if self._form is None and (begin := text.lstrip()):
            self._form = (JSONArguments if begin[0] == "{" else TagArguments)(self._wanted)
            self.noted = self._form.noted
        if self._form is None:
            yield ArgumentPiece(text)
        else:
            yield from self._form.feed(text)


class JSONArguments:
    """A JSON object, perhaps within another that names the tool."""

    def __init__(self, wanted: str) -> None:
        self.noted: dict[str, str] = {}
        self._wanted = wanted
        self._state = self._outside
        self._level, self._depth = 1, 0  # of the arguments, and of where we are
        self._key = ""
        self._is_value = False  # what comes next is the value of the key
        self._text = ""  # of a string that is not wanted
        self._pending = ""  # an escape sequence whose end has not come

    def feed(self, text: str) -> Iterator[ArgumentPiece]:
        text, self._pending = self._pending + text, ""
        at = 0
        while at < len(text):
            state = self._state
            end, found = state(text, at)
            if found is None and end > at:
                found = ArgumentPiece(text[at:end])
            if found and found.text:
                yield found
            if end == at and self._state == state:
                self._pending = text[at:]
                return
            at = end

    def _outside(self, text: str, at: int) -> tuple[int, ArgumentPiece | None]:
        sign = _SIGN.search(text, at)
        if sign is None:
            return len(text), None
        match sign[0]:
            case '"':
                inside = self._is_value and self._depth == self._level and self._key == self._wanted
                self._text, self._state = "", self._value if inside else self._string
            case "{" | "[":
                if self._is_value and self._depth == self._level == 1 and self._key in WRAPPERS and sign[0] == "{":
                    self._level = 2
                self._depth += 1
                self._is_value = False
            case "}" | "]":
                self._depth -= 1
            case _ if self._depth == self._level:
                self._is_value = sign[0] == ":"
        return sign.end(), None

    def _string(self, text: str, at: int) -> tuple[int, ArgumentPiece | None]:
        """Any other string: it is passed on as it is, and noted."""
        end, decoded = _characters(text, at)
        if decoded is None:
            self._state = self._outside
            if self._depth == self._level and not self._is_value:
                self._key = self._text
            elif self._depth == self._level and len(self._text) <= MOST_NOTED:
                self.noted[self._key] = self._text
        else:
            self._text = (self._text + decoded)[: MOST_NOTED + 1]
        return end, None

    def _value(self, text: str, at: int) -> tuple[int, ArgumentPiece | None]:
        end, decoded = _characters(text, at)
        if decoded is None:
            self._state, self._wanted = self._outside, "\0"  # once
            return end, None
        return end, ArgumentPiece(decoded, is_value=True)


def _characters(text: str, at: int) -> tuple[int, str | None]:
    """The next characters of a string, decoded, and where they end: nowhere if more has to come, None at its end."""
    stop = _STOP.search(text, at)
    if stop is None:
        return len(text), text[at:]
    if stop.start() > at:
        return stop.start(), text[at : stop.start()]
    if stop[0] == '"':
        return stop.end(), None
    length = 6 if text[at + 1 : at + 2] == "u" else 2
    if _HIGH.match(text, at) and text.startswith("\\u"[: len(text) - at - 6], at + 6):
        length = 12
    if at + length > len(text):
        return at, ""
    escaped = text[at : at + length]
    try:
        return at + length, str(json.loads(f'"{escaped}"'))
    except ValueError:
        return at + length, escaped[1:]


class TagArguments:
    """Arguments in tags: `<parameter=title>` or `<arg_key>title</arg_key>`."""

    def __init__(self, wanted: str) -> None:
        self.noted: dict[str, str] = {}
        self._wanted = wanted
        self._name: str | None = None
        self._begins = False  # a line end directly after the tag is not part of the value
        self._pending = ""

    def feed(self, text: str) -> Iterator[ArgumentPiece]:
        text, self._pending = self._pending + text, ""
        while text:
            name = self._name
            shown, text = self._outside(text) if name is None else self._inside(text)
            if name == self._wanted:
                if shown:
                    yield ArgumentPiece(shown, is_value=True)
            elif name is not None and len(noted := self.noted.get(name, "") + shown) <= MOST_NOTED:
                self.noted[name] = noted

    def _outside(self, text: str) -> tuple[str, str]:
        opened = _OPEN.search(text)
        if opened is None:
            self._pending = text[-MOST_HELD:]
            return "", ""
        self._name, self._begins = opened["name"] or opened["key"], True
        return "", text[opened.end() :]

    def _inside(self, text: str) -> tuple[str, str]:
        if self._begins and text == "\n":
            self._begins = False
            return "", ""
        text = text.removeprefix("\n") if self._begins else text
        self._begins = False
        if closed := _CLOSE.search(text):
            self._name = None
            return text[: closed.start()], text[closed.end() :]
        held = _HELD.search(text, max(0, len(text) - 16))
        end = held.start() if held else len(text)
        self._pending = text[end:]
        return text[:end], ""

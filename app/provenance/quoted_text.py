"""Find a call in a text: word for word, or as a call that the parser finds there. Pure, linear, bounded.

Quoting changes the form: line breaks, quotation marks, bullets, fences, escapes. So both sides are compared without
what quoting adds, and the text is read in several views: as it is, without the marks of blocks and of quotations, and
by lines and paragraphs, because some forms are calls only when nothing else is said. All of it is made once for a text,
for all calls that are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from app.provenance.decodings import layers, spelled_out
from app.provenance.quoted_lines import Lines, Sought, compact
from app.transcript.unfit_arguments import unfit
from parsing import Arguments, parse
from parsing.dialects import FENCED
from parsing.sink import RAW_LIMIT
from tools.base.patterns import lazy_pattern
from tools.base.permit import canonical

MOST = 200_000  # characters of one text that are read
MOST_WORDS = 200  # of a call that are looked for at first
MOST_WORK = 16_000_000  # of all calls of a reply, about two seconds
# What a character that is parsed costs, one that may open a call, each parser, and each call that is found.
PARSED, OPENS, BEGUN, CALLED = 2, 40, 600, 800
BROKEN = 15  # what a line or a cell costs in the views
ASKED = 5  # what it costs to look for words in a short text
SEARCHED = 40  # characters that are searched for words at the cost of one
SHORT = 4  # letters of a word that is looked for as a whole one
LEAST_CHUNK = 2_048  # characters that are parsed together; more where the call is longer
TELLING = 8  # characters of an argument that make a call of the same tool the same, whatever else is in it

Schemas = Mapping[str, Mapping[str, Any]]
Meant = Callable[[str, Arguments], tuple[str, Arguments]]
"""Normalises a call, see `Toolbox.meant`."""

_WORD = lazy_pattern(r"[A-Za-z0-9_]{2,64}")
_LETTER = lazy_pattern(r"\w")
# What stands before a line, and behind it, where text is quoted: where it is from (`notes.md:12:`), marks of quotes,
# lists, tables, changes and comments.
_BEFORE = lazy_pattern(
    r"^(?:[^\s:]{1,200}:\d{1,7}[:-])?"
    r"(?:[ \t>|+#%;]|//|-(?=[\s<{\[`])|[*•‣–—·](?=\s)|\d{1,7}(?:[.):](?=\s)|\t))*",
    re.MULTILINE,
)
_BEHIND = lazy_pattern(r"(?<![ \t|])[ \t|]+$", re.MULTILINE)
_CELL = lazy_pattern(r"[ \t]\|(?=\s)|(?<=\S)\|(?=[ \t])")
_PARAGRAPHS = lazy_pattern(r"\n[ \t]*\n")
_FENCE = lazy_pattern(r"^[ \t]{0,3}(?:`{3,}|~{3,})[^\n`]*$", re.MULTILINE)
_QUOTES = "\"'`*_“”„‟«»‹›‘’‚「」『』()[],.;: \t"


class TooMuch(Exception):
    """There is more to look through than is looked through for one reply."""


class Work(Struct):
    """The work budget of one reply, roughly in characters examined."""

    left: int = MOST_WORK

    def take(self, work: int) -> None:
        """Raises TooMuch."""
        self.left -= work
        if self.left < 0:
            raise TooMuch


class WrittenCall(Struct, frozen=True):
    """A call as it was written in text. `fenced`: in a fence with its tool's name; `bad`: it was not understood."""

    name: str
    arguments: Arguments
    fenced: bool = False
    raw: str = ""
    bad: bool = False

    @property
    def block(self) -> str:
        """One that is not understood may have no end."""
        return _PARAGRAPHS.split(self.raw.strip())[0] if self.bad else self.raw


class Key(Struct, frozen=True):
    """The same for calls that only quoting tells apart. `telling` is the longest text in the arguments."""

    name: str
    arguments: str
    telling: str

    def is_of(self, other: Key) -> bool:
        if self.name != other.name:
            return False
        return self.arguments == other.arguments or (self.telling == other.telling and len(self.telling) >= TELLING)


Found = tuple[bool, Key]  # whether in a fence


class Reading(Struct):
    """One text, and what has been found in it so far."""

    text: str
    _layers: tuple[str, ...] = ()
    _last: str = ""
    _lower: str | None = None
    _squeezed: dict[str, str] = field(default_factory=dict)
    _views: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _calls: dict[str, tuple[Found, ...]] = field(default_factory=dict)
    _lines: Lines | None = None

    @property
    def is_too_long(self) -> bool:
        return len(self.text) > MOST

    def layers(self, work: Work) -> tuple[str, ...]:
        """The text layer by layer, and at last without line breaks, which may be in the middle of a word."""
        if not self._layers:
            found = list(layers(self.text[:MOST]))
            work.take(sum(map(len, found[1:])))
            self._last = found[-1]
            self._layers = tuple(dict.fromkeys((*found, self._last.replace("\n", ""))))
        return self._layers

    def lines_with(self, sought: Sought, work: Work) -> Lines | None:
        """Its lines, if the call that is sought may stand in them."""
        self.layers(work)
        work.take(len(self._last) // SEARCHED)
        if self._lower is None:
            self._lower = self._last.casefold()
        if not sought.may_stand_in(self._lower):
            return None
        if self._lines is None:
            work.take(2 * len(self._last))
            self._lines = Lines.of(_CELL.sub("\n", self._last))
        return self._lines

    def squeezed(self, layer: str, work: Work) -> str:
        if layer not in self._squeezed:
            work.take(2 * len(layer))
            self._squeezed[layer] = squeezed(unmarked(layer))
        return self._squeezed[layer]

    def views(self, chunk: str, name: str, work: Work) -> tuple[str, ...]:
        if (chunk, name) not in self._views:
            work.take(2 * len(chunk) + BROKEN * (chunk.count("\n") + chunk.count("|")))
            self._views[chunk, name] = tuple(dict.fromkeys(views(chunk, name)))
        return self._views[chunk, name]

    def calls(self, view: str, tools: Schemas, meant: Meant, work: Work) -> tuple[Found, ...]:
        if view not in self._calls:
            work.take(PARSED * len(view) + OPENS * sum(map(view.count, "<[{(`")) + BEGUN)
            found = (call for call in parse(view, tools).calls if not unfit(call.arguments))
            keyed = ((call.dialect == FENCED.name, key(call.name, call.arguments, meant)) for call in found)
            self._calls[view] = tuple(dict.fromkeys(keyed))
            work.take(CALLED * len(self._calls[view]))
        return self._calls[view]


class QuotedCall:
    """One call that is looked for. `tools` are those that the parser knows."""

    def __init__(self, call: WrittenCall, tools: Schemas, meant: Meant) -> None:
        self._tools = tools
        self._meant = meant
        self.written = call
        self.key = key(call.name, call.arguments, meant)
        self._raw = squeezed(unmarked(call.block))
        self._whole = len(call.raw) < RAW_LIMIT
        self._raw_words = _words([call.block])
        name, arguments = meant(call.name, call.arguments)
        self._words = _words([name, *leaves(arguments)])
        self._short = [re.compile(rf"(?<![^\W_]){word}(?![^\W_])") for word in self._words if len(word) <= SHORT]
        self._chunk = LEAST_CHUNK
        while self._chunk < 4 * sum(map(len, leaves(arguments))):
            self._chunk *= 2
        self.sought = Sought.of(spelled_out(call.block), strict=call.fenced, whole=self._whole)

    @property
    def same(self) -> object:
        """Equal for calls that are looked for in the same way."""
        return self.key, self._raw, self.written.fenced, self.written.bad

    def stands_in(self, reading: Reading, work: Work) -> bool:
        """Raises TooMuch. What stands behind MOST is not read: it counts if the text has all words of the call."""
        if reading.is_too_long and self._words and _has(reading.text, self._words):
            return True
        return any(self._stands_in(reading, layer, work) for layer in reading.layers(work))

    def _stands_in(self, reading: Reading, layer: str, work: Work) -> bool:
        work.take(len(layer) // SEARCHED)
        if self._raw and _has(layer, self._raw_words) and self._is_verbatim(reading.squeezed(layer, work)):
            return True
        if self.written.bad or not _has(layer, self._words):
            return False
        return any(
            self._is_in(reading, chunk, work) for chunk in chunks(layer, self._chunk) if self._may_be_in(chunk, work)
        )

    def _is_in(self, reading: Reading, chunk: str, work: Work) -> bool:
        found = reading.views(chunk, self.key.name, work)
        return any(self._may_be_in(view, work) and self._is_called(reading, view, work) for view in found)

    def _may_be_in(self, text: str, work: Work) -> bool:
        """A short word is in too many others."""
        work.take(ASKED)
        if not _has(text, self._words):
            return False
        work.take(len(self._short) * (ASKED + len(text) // SEARCHED))
        return all(word.search(text) for word in self._short)

    def _is_verbatim(self, text: str) -> bool:
        at = text.find(self._raw)
        while at >= 0:
            end = at + len(self._raw)
            begins_in_word = _joins(text[at - 1 : at], self._raw[0])
            if not begins_in_word and not (self._whole and _joins(self._raw[-1], text[end : end + 1])):
                return True
            at = text.find(self._raw, at + 1)
        return False

    def _is_called(self, reading: Reading, view: str, work: Work) -> bool:
        """A block of code is a value with the name of its language: only a fence repeats it."""
        found = reading.calls(view, self._tools, self._meant, work)
        return any((self.written.fenced or not fenced) and one.is_of(self.key) for fenced, one in found)


def chunks(text: str, size: int) -> Iterator[str]:
    """Parts of it, with half of the next one each: what is no longer than half of one is whole in one."""
    if len(text) <= 2 * size:
        yield text
        return
    for start in range(0, len(text), size):
        begin, end = text.rfind("\n", start - size // 4, start) + 1, text.find("\n", start + 3 * size // 2)
        yield text[begin or start : (end if 0 <= end < start + 2 * size else start + 3 * size // 2)]


def views(text: str, name: str) -> Iterator[str]:
    """The text with more and more of what quoting adds taken away, and its parts by themselves; `name` is a tool's."""
    blocks = unmarked(text)
    bare = _FENCE.sub("", blocks)
    lines = [line.strip(_QUOTES) for line in bare.split("\n")]
    yield from (text, blocks, bare, "\n".join(lines))
    yield from lines
    for part in (*_PARAGRAPHS.split(bare), *_FENCE.split(blocks)):
        yield from _alone(part, name)


def _alone(text: str, name: str) -> Iterator[str]:
    """Parts that may be a call by themselves: the text without quotation marks, and what is in brackets in it."""
    yield text.strip(_QUOTES + "\n")
    end = max(map(text.rfind, "}])")) + 1
    for start in {text.find(name), min((at for one in "{[" if (at := text.find(one)) >= 0), default=-1)}:
        if 0 <= start < end:
            yield text[start:end]


def unmarked(text: str) -> str:
    """Without the marks of quotes, lists and tables, each cell of a table on a line."""
    return _BEHIND.sub("", unprefixed(_CELL.sub("\n", text)))


def unprefixed(text: str) -> str:
    """Without what stands before its lines where it is quoted: the place, a number, marks."""
    return _BEFORE.sub("", text)


def squeezed(text: str) -> str:
    """Without white space but between words."""
    return re.sub(r" (?!\w)|(?<!\w) ", "", " ".join(text.split()))


def _joins(before: str, behind: str) -> bool:
    """Return True if these two characters are in the middle of a word."""
    return bool(_LETTER.match(before) and _LETTER.match(behind))


def _has(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)


def _words(texts: list[str]) -> list[str]:
    found = dict.fromkeys(word for text in texts for word in _WORD.findall(text[:RAW_LIMIT]))
    return sorted(found, key=len, reverse=True)[:MOST_WORDS]


def leaves(arguments: Arguments) -> Iterator[str]:
    """All texts in the arguments."""
    waiting: list[Any] = [arguments]
    while waiting:
        match waiting.pop():
            case dict() as value:
                waiting += value.values()
            case list() as value:
                waiting += value
            case str() as value:
                yield value


def key(name: str, arguments: Arguments, meant: Meant) -> Key:
    name, arguments = meant(name, arguments)
    return Key(name, canonical(_loose(arguments)), telling(arguments))


def telling(arguments: Arguments) -> str:
    return max((compact(spelled_out(one)) for one in leaves(arguments)), key=len, default="")


def _loose(value: Any) -> Any:
    """Without what only says that nothing is wanted, as defaults do."""
    match value:
        case dict():
            return {key: _loose(one) for key, one in value.items() if one is not None and one is not False}
        case list():
            return [_loose(one) for one in value]
        case str():
            return squeezed(unmarked(spelled_out(value)))
        case float() if value.is_integer():
            return str(int(value))
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
    return str(value)

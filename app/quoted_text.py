"""Whether a call stands in a text: word for word, or as a call that the parser finds there. Pure, linear, bounded.

Quoting changes the form: line breaks, quotation marks, bullets, fences, escapes. So both sides are compared without
what quoting adds, and the text is read in several views: as it is, without the marks of blocks and of quotations, and
by lines and paragraphs, because some forms are calls only when nothing else is said.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.reply import unfit
from parsing import Arguments, parse
from parsing.dialects import FENCED
from parsing.sink import RAW_LIMIT
from tools.permit import canonical

MOST = 200_000  # characters of one text that are read
MOST_ESCAPES = 3
MOST_WORDS = 200  # of a call that are looked for at first

Schemas = Mapping[str, Mapping[str, Any]]
Meant = Callable[[str, Arguments], tuple[str, Arguments]]
"""What a call stands for, see `Toolbox.meant`."""

_WORD = re.compile(r"[A-Za-z0-9_]{2,64}")
_LETTER = re.compile(r"\w")
# What stands before a line, and behind it, where text is quoted: where it is from (`notes.md:12:`), marks of quotes,
# lists, tables, changes and comments.
_BEFORE = re.compile(
    r"^(?:[^\s:]{1,200}:\d{1,7}[:-])?"
    r"(?:[ \t>|+#%;]|//|-(?=[\s<{\[`])|[*•‣–—·](?=\s)|\d{1,7}(?:[.):](?=\s)|\t))*",
    re.MULTILINE,
)
_BEHIND = re.compile(r"(?<![ \t|])[ \t|]+$", re.MULTILINE)
_CELL = re.compile(r"[ \t]\|(?=\s)|(?<=\S)\|(?=[ \t])")
_PARAGRAPHS = re.compile(r"\n[ \t]*\n")
_FENCE = re.compile(r"^[ \t]{0,3}(?:`{3,}|~{3,})[^\n`]*$", re.MULTILINE)
_QUOTES = "\"'`*_“”„‟«»‹›‘’‚「」『』()[],.;: \t"
_MARKDOWN = re.compile(r"\\([|_*<>\[\]`~#!.-])")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\n"}


@dataclass(frozen=True, slots=True)
class Written:
    """A call as it was written in text. `fenced`: in a fence with the tool's name."""

    name: str
    arguments: Arguments
    fenced: bool = False
    raw: str = ""


class Wanted:
    """One call that is looked for. `tools` are those that the parser knows."""

    def __init__(self, call: Written, tools: Schemas, meant: Meant) -> None:
        self._tools = tools
        self._meant = meant
        self._key = _key(call, meant)
        self._fenced = call.fenced
        self._name = self._key[0]
        self._raw = squeezed(unmarked(call.raw))
        self._whole = len(call.raw) < RAW_LIMIT
        self._raw_words = _words([call.raw])
        self._words = _words(_leaves(meant(call.name, call.arguments)))

    def stands_in(self, text: str) -> bool:
        """What stands behind MOST is not read: it counts as the call if the text has all words of it."""
        if len(text) > MOST and _has(text, self._words):
            return True
        return any(self._stands_in(variant) for variant in variants(text[:MOST]))

    def _stands_in(self, text: str) -> bool:
        if self._raw and _has(text, self._raw_words) and self._is_verbatim(squeezed(unmarked(text))):
            return True
        if not _has(text, self._words):
            return False
        return any(_has(view, self._words) and self._is_called(view) for view in views(text, self._name))

    def _is_verbatim(self, text: str) -> bool:
        at = text.find(self._raw)
        while at >= 0:
            end = at + len(self._raw)
            begins_in_word = _joins(text[at - 1 : at], self._raw[0])
            if not begins_in_word and not (self._whole and _joins(self._raw[-1], text[end : end + 1])):
                return True
            at = text.find(self._raw, at + 1)
        return False

    def _is_called(self, text: str) -> bool:
        """A block of code is a value with the name of its language: only a fence repeats it."""
        return any(
            _key(Written(call.name, call.arguments), self._meant) == self._key
            for call in parse(text, self._tools).calls
            if (self._fenced or call.dialect != FENCED.name) and not unfit(call.arguments)
        )


def variants(text: str) -> Iterator[str]:
    """The text, and what it says where its characters are written in other ways: HTML, escapes, look-alikes."""
    yield from dict.fromkeys(_variants(text))


def _variants(text: str) -> Iterator[str]:
    yield text
    plain = html.unescape(text) if "&" in text else text
    if not plain.isascii():
        plain = "".join(one for one in unicodedata.normalize("NFKC", plain) if unicodedata.category(one) != "Cf")
    yield plain
    yield _MARKDOWN.sub(r"\1", plain)
    yield from _unescapes(plain)
    yield plain.replace("\n", "")  # lines that were broken in the middle of a word


def _unescapes(text: str) -> Iterator[str]:
    """JSON in a JSON in a JSON is as deep as results of tools go."""
    for _ in range(MOST_ESCAPES):
        if "\\" not in text:
            return
        text = _ESCAPE.sub(_unescaped, text)
        yield text


def _unescaped(match: re.Match[str]) -> str:
    code, one = match.groups()
    return chr(int(code, 16)) if code else _ESCAPES.get(one, one)


def views(text: str, name: str) -> Iterator[str]:
    """The text with more and more of what quoting adds taken away, and its parts by themselves; `name` is a tool's."""
    blocks = unmarked(text)
    bare = _FENCE.sub("", blocks)
    lines = [line.strip(_QUOTES) for line in bare.split("\n")]
    yield from dict.fromkeys([text, blocks, bare, "\n".join(lines)])
    yield from lines
    for part in (*_PARAGRAPHS.split(bare), *_FENCE.split(blocks)):
        yield from _alone(part, name)


def _alone(text: str, name: str) -> Iterator[str]:
    """What may be a call if nothing else is said: the text without quotation marks, and what is in brackets in it."""
    yield text.strip(_QUOTES + "\n")
    end = max(map(text.rfind, "}])")) + 1
    for start in {text.find(name), min((at for one in "{[" if (at := text.find(one)) >= 0), default=-1)}:
        if 0 <= start < end:
            yield text[start:end]


def unmarked(text: str) -> str:
    """Without the marks of quotes, lists and tables, each cell of a table on a line."""
    return _BEHIND.sub("", _BEFORE.sub("", _CELL.sub("\n", text)))


def squeezed(text: str) -> str:
    """Without white space but between words."""
    return re.sub(r" (?!\w)|(?<!\w) ", "", " ".join(text.split()))


def _joins(before: str, behind: str) -> bool:
    """Whether these two characters are in the middle of a word."""
    return bool(_LETTER.match(before) and _LETTER.match(behind))


def _has(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)


def _words(texts: Iterator[str] | list[str]) -> list[str]:
    found = dict.fromkeys(word for text in texts for word in _WORD.findall(text[:RAW_LIMIT]))
    return sorted(found, key=len, reverse=True)[:MOST_WORDS]


def _leaves(call: tuple[str, Arguments]) -> Iterator[str]:
    """The name, and all that is said in the arguments."""
    name, arguments = call
    yield name
    waiting: list[Any] = [arguments]
    while waiting:
        match waiting.pop():
            case dict() as value:
                waiting += value.values()
            case list() as value:
                waiting += value
            case str() as value:
                yield value


def _key(call: Written, meant: Meant) -> tuple[str, str]:
    """The same for calls that only quoting tells apart."""
    name, arguments = meant(call.name, call.arguments)
    return name, canonical(_loose(arguments))


def _loose(value: Any) -> Any:
    match value:
        case dict():
            return {key: _loose(one) for key, one in value.items()}
        case list():
            return [_loose(one) for one in value]
        case str():
            return squeezed(unmarked(value))
        case float() if value.is_integer():
            return str(int(value))
        case bool() | None:
            return str(value).lower()
    return str(value)

"""Replacement of known secrets by `[redacted]` in every text that is sent or stored.

Every character of every occurrence is hidden; overlapping occurrences become one mark. The result does not depend on
how the text is sliced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import astuple, replace

from app.core.messages import AskedCall, OpaqueMetadata
from tools.base.patterns import lazy_pattern

MARK = "[redacted]"
SHORTEST = 8  # characters: shorter values are found by chance in ordinary text
FEWEST = 4  # different characters, for the same reason
_TOKEN = "[A-Za-z0-9_-]"
_TOKEN_LENGTH = 43
_BEGUN_TOKEN = lazy_pattern(f"dgm_{_TOKEN}{{0,{_TOKEN_LENGTH}}}")
_TOKEN_IN_BYTES = lazy_pattern(rf"dgm_{_TOKEN}{{{_TOKEN_LENGTH}}}".encode())
# `OPENAI_API_KEY`, `GITHUB_TOKEN`, `PGPASSWORD`, `SMTP_PASS`, `JWT_SECRET_2`; not `PWD`, `KEYBOARD`, `MAX_TOKENS`.
_SECRET_NAME = lazy_pattern(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|(^|_)PASS|CREDENTIALS?)(_\d+)?$", re.IGNORECASE
)
_PASSWORD_IN_URL = lazy_pattern(r"://[^/\s:@]*:([^/\s@]+)@")
_ESCAPED_AGAIN = lazy_pattern(r'\\\\|\\"')

Value = TypeVar("Value")


def is_secret_name(name: str) -> bool:
    """True for the name of a variable, a flag or a field that holds a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_in(environ: Mapping[str, str]) -> Iterator[str]:
    """The values of variables with names of secrets, and the passwords in URLs."""
    for name, value in environ.items():
        if is_secret_name(name):
            yield value
        yield from _PASSWORD_IN_URL.findall(value)


def forms(value: str) -> Iterator[str]:
    """The spellings of a secret: plain, inside JSON, inside a URL; each line of one with several lines."""
    for line in map(str.strip, value.splitlines()):
        if len(line) >= SHORTEST and len(set(line)) >= FEWEST and not line.startswith("-----"):
            yield from {line, json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1], quote(line, safe="")}


class Redactor:
    """Redacts the secrets `values`, those that are added later, and access tokens by their shape."""

    mark = MARK
    shortest_bits = (10 ** (SHORTEST - 2)).bit_length()  # of a number that may be a secret, with its sign

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._learn(form for value in values for form in forms(value))

    def add(self, *values: str) -> None:
        """Redact more secrets from now on."""
        self._learn(form for value in values for form in forms(value))

    def redact(self, text: str) -> str:
        """Redact a text; also a secret that is cut at its end, if half of it is there."""
        if self.is_clean(text):
            return text
        held = RedactedStream(self)
        return held.feed(text) + held.end()

    def redact_value(self, value: Value) -> Value:
        """Redact all texts in dicts (keys included), lists, tuples and structs.

        Opaque metadata is kept unchanged, or dropped if it contains a secret, and so is what the model wrote of a call,
        where a secret may be escaped. A value without a secret is returned as it is.
        """
        return value if self._is_clean_value(value) else cast("Value", self._redacted(value))

    def _is_clean_value(self, value: object) -> bool:
        return self.is_clean(texts_in(value))

    def is_clean_json(self, text: str) -> bool:
        """True if texts that are JSON hold no secret, nor one that is escaped twice."""
        return self.is_clean(text) and not _ESCAPED_AGAIN.search(text)

    def redact_json(self, text: str) -> str:
        """Redact the values of a JSON text, which stays JSON."""
        # JSON inside of JSON escapes a secret twice, which is found only after the outer one is parsed.
        if self.is_plain(text) and not _ESCAPED_AGAIN.search(text):
            return text
        value = json.loads(text)
        redacted = self.redact_value(value)
        return text if redacted == value else json.dumps(redacted)

    def is_plain(self, text: str) -> bool:
        """True if no secret begins in the text; true for nearly every text, so this is fast."""
        return self._beginning.search(text) is None

    def is_clean(self, text: str) -> bool:
        """True if a whole text holds neither a secret nor half of one: a few characters at its end may begin one."""
        first = self._beginning.search(text)
        return first is None or first.end() - first.start() < SHORTEST  # no secret is so short

    def is_secret_in(self, data: bytes) -> bool:
        """True if bytes, of a file perhaps, hold a whole secret or access token."""
        return any(form in data for form in self._encoded) or _TOKEN_IN_BYTES.search(data) is not None

    @property
    def secrets(self) -> int:
        """The number of spellings that are redacted, which only grows."""
        return len(self._forms)

    @property
    def longest(self) -> int:
        """The length of the longest secret in any spelling."""
        return self._longest

    def look(self, text: str) -> tuple[list[tuple[int, int]], int]:
        """The secrets, each as (start, end), and the position from which the text may be the beginning of one."""
        found, tail, at = [], len(text), -1
        while match := self._beginning.search(text, at + 1):
            at = match.start()
            end, goes_on = self._look_at(text, at)
            if end > at:
                found.append((at, end))
            if goes_on:
                tail = min(tail, at)
        return found, tail

    def look_at_end(self, text: str) -> tuple[list[tuple[int, int]], int]:
        """As `look`, in a text that does not go on: a secret that is cut at its end is one, if half of it is there."""
        found, tail = self.look(text)
        cut = next((at for at in range(tail, len(text)) if self.hides(text[at:])), None)
        return found if cut is None else sorted([*found, (cut, len(text))]), tail

    def hides(self, beginning: str) -> bool:
        """True for at least half of a secret, which is hidden although the rest is missing.

        If less were enough, a writer of the text could guess a secret character by character.
        """
        if (token := _BEGUN_TOKEN.fullmatch(beginning)) and len(token[0]) >= SHORTEST:
            return True
        known = self._by_start.get(beginning[:SHORTEST], ())
        return any(form.startswith(beginning) and 2 * len(beginning) >= len(form) for form in known)

    def _learn(self, more: Iterable[str]) -> None:
        self._forms.update(more)
        self._encoded = [form.encode("utf-8", "surrogatepass") for form in self._forms]
        self._longest = max([len("dgm_") + _TOKEN_LENGTH, *map(len, self._forms)])
        self._by_start: dict[str, list[str]] = {}
        for form in self._forms:
            self._by_start.setdefault(form[:SHORTEST], []).append(form)
        starts = [[*map(re.escape, start)] for start in self._by_start]
        starts.append([*"dgm_", *[_TOKEN] * (SHORTEST - len("dgm_"))])
        self._beginning = re.compile(_here_or_cut(starts))

    def _look_at(self, text: str, at: int) -> tuple[int, bool]:
        """The end of the longest secret that begins at `at`, and True if the text may end inside a longer one."""
        rest = len(text) - at
        if rest < SHORTEST:
            return at, True
        end, goes_on = at, False
        for form in self._by_start.get(text[at : at + SHORTEST], ()):
            if text.startswith(form, at):
                end = max(end, at + len(form))
            elif rest < len(form) and form.startswith(text[at:]):
                goes_on = True
        if token := _BEGUN_TOKEN.match(text, at):
            if len(token[0]) == len("dgm_") + _TOKEN_LENGTH:
                end = max(end, token.end())
            elif token.end() == len(text):
                goes_on = True
        return end, goes_on

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):  # nearly every value
            return self.redact(value)
        match value:
            case bool() | None | float():
                return value
            case int():  # a secret of digits alone, as a model may write it
                hidden = self.shortest_bits <= value.bit_length() <= 1024 and self.redact(str(value)) != str(value)
                return self.mark if hidden else value
            case dict():
                return {self._redacted(key): self._redacted(one) for key, one in value.items()}
            case list() | tuple():
                return type(value)(map(self._redacted, value))
            case OpaqueMetadata():
                return value if self._redacted(value.fields) == value.fields else None
            case AskedCall():
                return call if (call := self._redacted_fields(value)) is value else replace(call, written="")
            case Struct():
                return self._redacted_fields(value)
        return value

    def _redacted_fields(self, value: Struct) -> Struct:
        changed = {}
        for name in value.__struct_fields__:
            was = getattr(value, name)
            if was and (now := self._redacted(was)) is not was and now != was:  # most are empty
                changed[name] = now
        return replace(value, **changed) if changed else value


class _BasicTypes(dict[type[Any], type[Any]]):
    """The basic type that a type is or derives from, found once; `object` for any other."""

    def __missing__(self, kind: type[Any]) -> type[Any]:
        basic = next((basic for basic in BASIC_TYPES if issubclass(kind, basic)), object)
        self[kind] = basic
        return basic


BASIC_TYPES = (str, bool, float, type(None), int, list, tuple, dict, Struct)
_BASIC_TYPES = _BasicTypes()
_NO_VALUES = frozenset((str, bool, float, type(None)))  # which have been taken, or have no text


def texts_in(value: object) -> str:
    """All texts of a value, in lines: one search finds out that no secret is in any, as none contains a line end."""
    texts, groups = list[str](), list[Iterable[Any]]([astuple(value) if isinstance(value, Struct) else (value,)])
    for group in groups:  # which grows by what is inside
        texts += [one for one in group if type(one) is str]  # most are, or are nothing
        for one in group:
            if type(one) in _NO_VALUES:
                continue
            kind = _BASIC_TYPES[type(one)]  # a chain of isinstance would take twice the time
            if kind is str:
                texts.append(one)
            elif kind is int:
                if Redactor.shortest_bits <= one.bit_length() <= 1024:
                    texts.append(str(one))
            elif kind is list or kind is tuple:
                groups.append(one)
            elif kind is dict:
                groups += (one, one.values())
            elif kind is Struct:
                groups.append(astuple(one))
    return "\n".join(texts)


def _here_or_cut(starts: Iterable[Sequence[str]]) -> str:
    """A pattern for these equally long sequences, or for the beginning of one at the end of the text.

    A tree: a common prefix is matched once.
    """
    branches: dict[str, list[Sequence[str]]] = {}
    for first, *rest in starts:
        branches.setdefault(first, []).append(rest)
    return "|".join(f"{first}(?:\\Z|{_here_or_cut(rests)})" if rests[0] else first for first, rests in branches.items())


class Replaced(Struct, frozen=True):
    """Characters of a stream, from `start` to `end`, that were emitted as a mark, or as nothing behind one."""

    start: int
    end: int
    mark: str


class RedactedStream:
    """One stream of text in pieces. Only what may be the beginning of a secret is withheld, and no longer than needed.

    Text that `end` has emitted still counts: the rest of a secret that continues in the next piece is hidden.
    `replaced` collects what was; the first character that is fed is at `position`.
    """

    def __init__(self, redactor: Redactor, position: int = 0, replaced: list[Replaced] | None = None) -> None:
        self._redactor = redactor
        self.position = position  # of what may be the beginning of a secret, or of what comes next
        self._replaced = replaced if replaced is not None else []
        self._text = ""  # what may be the beginning of a secret
        self._emitted = 0  # characters of it that were emitted, in clear or by a mark
        self._marked = 0  # characters of it that the last mark replaces

    @property
    def waits(self) -> bool:
        """True while text is withheld."""
        return self._emitted < len(self._text)

    @property
    def empty(self) -> bool:
        return not self._text

    def feed(self, piece: str) -> str:
        """The text that can be emitted now."""
        if not self._text and self._redactor.is_plain(piece):
            self.position += len(piece)
            return piece
        text = self._text + piece
        found, tail = self._redactor.look(text)
        emitted = self._emit(text, found, tail)
        self._text = text[tail:]
        self.position += tail
        self._emitted, self._marked = max(0, self._emitted - tail), max(0, self._marked - tail)
        return emitted

    def end(self) -> str:
        """The withheld text, because another event comes next. A secret that is cut here is hidden."""
        found, _ = self._redactor.look_at_end(self._text)
        return self._emit(self._text, found, len(self._text))

    def _emit(self, text: str, found: list[tuple[int, int]], until: int) -> str:
        parts = []
        for start, end in found:
            if start >= until:
                break
            if end <= self._emitted:
                continue
            mark = ""  # it overlaps the secret of the last mark
            if start >= self._marked:
                mark = self._redactor.mark
                parts += [text[self._emitted : start], mark]
            begin = self.position + max(start, self._emitted)
            self._replaced.append(Replaced(begin, self.position + end, mark))
            self._emitted = self._marked = end
        if self._emitted < until:
            parts.append(text[self._emitted : until])
            self._emitted = until
        return "".join(parts)

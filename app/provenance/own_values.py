"""Evidence that values of a call are the person's own: the origin of a value, as far as it can be proven.

    the person's messages ──> words ──────────────┐
    the operator's texts ───> words ──────────────┼──> is_own
    a look-up with own values ──> one record ─────┘

Untrusted messages, frames of data in messages, and all that a model, a command, a file, a memory or a helper has
written are no evidence: an attacker who hijacks a run can write there. A result counts only as far as its call was
bound: every value of the call that matters was the person's own, the tool keeps nothing in the workspace, and the
result is one JSON record. Of an untrusted result no more than the record's id counts, for the same kind of thing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

from msgspec import Struct

from app.core.data_delimiters import without_data
from app.core.messages import AskedCall, Message
from app.policy.patterns import words_of
from app.policy.values.columns import TooMany, Value, values_of
from app.provenance.quotation import source_of
from app.transcript.stop_words import STOP_WORDS
from tools.base.patterns import lazy_pattern
from tools.base.rights import Column
from tools.tool import Tool

MOST_KEPT = 200_000  # characters of each kind of text: the latest
MOST_SEARCHED = 1_000_000  # characters in which the place of a value is looked for
MOST_MESSAGES = 1_000  # among which look-ups count, the latest of a conversation that is taken up
MOST_PLACES = 100  # of a value that are looked at: more may be the attack of one that is everywhere
NEAR = 80  # characters
LONGEST_VALUE = 2_000
MOST_WORDS = 40  # of a text that is made of phrases
MOST_FIELDS = 100  # of a record
_QUOTES = frozenset("\"'`“”„‘’‚«»")
_RUN = lazy_pattern(r"\w+")
_WORD = lazy_pattern(r"\w+(?:['’]\w+)*")
_PLAIN_WORD = lazy_pattern(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*|\d{1,5}")
_NUMBER = lazy_pattern(r"(?<![\w.,:/@#+-])[-+]?\d[\d.,' ]{0,40}(?![\w@/:-])")
_ENDS = lazy_pattern(r"[\s,;!?)\]}>\"'`“”’»…]|[.:][\s\"'`“”’»)]|[.:]?\Z|['’]s\b")
_BEGINS = lazy_pattern(r"[\s,;(\[{<\"'`“„‘‚«=:@#]|\A")
_BEFORE_SENTENCES = frozenset(("", *".!?:\n\"'*-"))  # the end of what stands before the first word of one
_BETWEEN = lazy_pattern(r"[,;]\s*")
_IDS = frozenset(("id", "ids", "uid", "uuid", "key", "number", "no", "ref"))
# Where words stay with their owner; into what others have begun (a mail, an issue, a thread) they reach these.
_KEPT = frozenset(("doc", "document", "file", "folder", "note", "page", "sheet"))
_ABOUT_NOTHING = """
get search find list read look lookup query create add make new fetch by in all my the mcp
"""


class OwnText:
    """One text in which values are looked for. What that takes is made once, and only when it is needed."""

    def __init__(self, written: str) -> None:
        self.written = written

    @cached_property
    def lower(self) -> str:
        return _lower(self.written)

    @cached_property
    def letters(self) -> frozenset[str]:
        """All runs of letters and figures in lower case: where one of a value is missing, the value is."""
        return frozenset(_RUN.findall(self.lower))

    @cached_property
    def words(self) -> str:
        """The words in lower case, between spaces."""
        return _joined(self.written)

    @cached_property
    def numbers(self) -> frozenset[Decimal]:
        return frozenset(_numbers(self.written))


class Texts:
    """Texts in which values are looked for, the latest up to MOST_KEPT characters; of a longer one both ends."""

    def __init__(self) -> None:
        self._texts: list[OwnText] = []
        self._size = 0

    def add(self, text: str) -> None:
        half = MOST_KEPT // 2
        for part in (text,) if len(text) <= MOST_KEPT else (text[:half], text[-half:]):
            if part.strip():
                self._texts.append(OwnText(part))
                self._size += len(part)
        while self._size > MOST_KEPT:
            self._size -= len(self._texts.pop(0).written)

    @property
    def written(self) -> Sequence[str]:
        return [one.written for one in self._texts]

    def places(self, text: str, *, exact: bool = False) -> Iterator[tuple[str, int]]:
        """Yield each text that has this one as a whole word or words, with the position: the latest, and not all."""
        lower, left = _lower(text), MOST_PLACES
        runs = _RUN.findall(lower)
        sought = text if exact else lower
        for one in reversed(self._texts):
            if not one.letters.issuperset(runs):
                continue
            within = one.written if exact else one.lower
            at = within.find(sought)
            while at >= 0 and left:
                left -= 1
                begins = at == 0 or _BEGINS.match(within[at - 1])
                if begins and _ENDS.match(within, at + len(sought)):
                    yield one.written, at
                at = within.find(sought, at + 1)

    def has_words(self, words: str) -> bool:
        """Return True if these words, in lower case and between spaces, stand in one of the texts."""
        runs = _RUN.findall(words)
        return any(one.letters.issuperset(runs) and words in one.words for one in self._texts)

    def has_number(self, number: Decimal) -> bool:
        return any(number in one.numbers for one in self._texts)


def _numbers(written: str) -> Iterator[Decimal]:
    for match in _NUMBER.finditer(written):
        before = written[max(0, match.start() - NEAR) : match.start()].rstrip()
        if any(map(str.isdigit, before[-12:].split(" ")[-1])):
            continue  # a group of an account or of a telephone number
        if (number := _number(match[0].strip(" .,'"))) is not None:
            yield number


class Found(Struct, frozen=True):
    """A value of the one record that a look-up has returned; `things` are words for what it is of."""

    things: frozenset[str]
    server: str
    only_id: bool
    proven: bool


class Lookup(Struct, frozen=True):
    """Values that a call was about, and its other texts: what its result repeats of these proves nothing."""

    about: frozenset[str]
    echoes: tuple[str, ...]


class OwnValues:
    """The Evidence of app.policy.values, from the messages of one conversation, which it follows as they are added.

    `given` are texts of the operator and of the person that stand beside the conversation.
    """

    def __init__(
        self, messages: Sequence[Message], tool: Callable[[str], Tool | None], given: Sequence[str] = ()
    ) -> None:
        self._messages = messages
        self._tool = tool
        self._read = 0
        self._calls: dict[str, AskedCall] = {}
        self._own, self._answers = Texts(), Texts()
        self._found: dict[str, list[Found]] = {}
        self._places: dict[str, str] = {}  # of texts that a question names, until there are more messages
        for text in given:
            self._own.add(text)

    @property
    def words(self) -> Sequence[str]:
        self._follow()
        return self._own.written

    def is_own(self, tool: Tool, value: Value) -> bool:
        self._follow()
        return self._is_own(tool, value)

    def _is_own(self, tool: Tool, value: Value) -> bool:
        text = str(value.value).strip()
        if not text or len(text) > LONGEST_VALUE or not text.isprintable():
            return False
        if value.column is Column.AMOUNT or not isinstance(value.value, str):
            return self._has_number(tool, value, text)
        if self._stands(text, value) or self._was_found(tool, value, text):
            return True
        parts = _BETWEEN.split(text) if value.column is Column.RECIPIENT else []
        return len(parts) > 1 and all("@" in part and self._stands(part, value) for part in parts)

    def is_destination(self, tool: Tool, value: Value) -> bool:
        self._follow()
        text = str(value.value).strip()
        is_kept = not _KEPT.isdisjoint(_things(value.name) or _things(tool.name))
        stands = self._stands(text, value) or self._was_found(tool, value, text, proven=not is_kept)
        return stands or (value.column is Column.RECIPIENT and self._is_own(tool, value))

    def is_answer(self, text: str) -> bool:
        self._follow()
        return any(True for _ in self._answers.places(text))

    def is_phrase(self, text: str) -> bool:
        self._follow()
        return self._is_phrase(text)

    def _is_phrase(self, text: str) -> bool:
        words = _joined(text)
        return bool(words.strip()) and self._own.has_words(words)

    def is_composed(self, text: str) -> bool:
        self._follow()
        words = _joined(text).split()
        if not words or len(words) > MOST_WORDS:
            return False
        at, has_own, singles = 0, False, 0
        while at < len(words):
            end, own = self._piece(words, at)
            singles += end == at + 1
            if end == at or (end == at + 1 and not own):
                return False
            at, has_own = end, has_own or own
        return has_own and (singles < 2 or self._own.has_words(_joined(text)))

    def _piece(self, words: Sequence[str], at: int) -> tuple[int, bool]:
        """Return the end of the longest piece that begins there, and True if it is the person's."""
        ends = []
        for texts in (self._own, self._answers):
            end = at
            while end < len(words) and texts.has_words(f" {' '.join(words[at : end + 1])} "):
                end += 1
            ends.append(end)
        return max(ends), ends[0] >= ends[1]

    def place_of(self, text: str) -> str:
        self._follow()
        if text not in self._places:
            self._places[text] = self._place(text.strip().lower())
        return self._places[text]

    def _place(self, sought: str) -> str:
        left = MOST_SEARCHED if len(sought) > 1 else 0
        for message in reversed(self._messages):
            if left <= 0:
                break
            source = None if is_of_person(message) else source_of(message)
            if source and sought in source.text[:left].lower():
                return source.place
            left -= len(message.text)
        return ""

    def _stands(self, text: str, value: Value) -> bool:
        """Return True if the text stands in the person's words as a whole, and there as a name, not as any word."""
        if spellings := _spellings(text):
            exact = "/" in spellings[0]
            return any(True for one in spellings for _ in self._own.places(one, exact=exact))
        weak = all(_PLAIN_WORD.fullmatch(word) for word in text.split())
        places = self._own.places(text)
        return any(not weak or _is_name(written, at, len(text), value.name) for written, at in places)

    def _has_number(self, tool: Tool, value: Value, text: str) -> bool:
        if value.column is not Column.AMOUNT:
            return self._stands(text, value) or self._was_found(tool, value, text)
        number = _number(text)
        return number is not None and self._own.has_number(number)

    def _was_found(self, tool: Tool, value: Value, text: str, *, proven: bool = False) -> bool:
        wanted = _things(value.name) or _things(tool.name)
        server = tool.origin.server if tool.origin else ""
        for one in self._found.get(text, ()):
            if proven and not one.proven:
                continue
            same = one.server == server and value.column is Column.IDENTIFIER and wanted & one.things
            if same or not one.only_id:
                return True
        return False

    def _follow(self) -> None:
        """Read the messages that have come since."""
        while self._read < len(self._messages):
            self._places.clear()
            message, is_late = self._messages[self._read], len(self._messages) - self._read <= MOST_MESSAGES
            self._read += 1
            if message.role == "assistant":
                self._calls |= {call.id: call for call in message.calls}
            elif is_of_person(message):
                self._own.add(without_data(message.text, ""))
            elif message.role == "tool" and (call := self._calls.pop(message.call or "", None)) and is_late:
                self._take_result(message, call)

    def _take_result(self, message: Message, call: AskedCall) -> None:
        tool = self._tool(call.name)
        if tool is None or tool.confined or tool.handed:
            return
        lookup = self._lookup(tool, call)
        if lookup is None or not (lookup.about or not (message.untrusted or call.arguments)):
            return
        proven = not message.untrusted and not any(map(_has_letters, lookup.echoes))
        if proven and lookup.about:
            self._answers.add(message.text)
        server = tool.origin.server if tool.origin else ""
        for key, value in _record(message.text, lookup.about).items():
            text, is_id = str(value).strip(), not _IDS.isdisjoint(words_of(key))
            if isinstance(value, bool) or not isinstance(value, str | int) or not (proven or is_id):
                continue
            if not any(text in (echo if _has_letters(echo) else _RUN.findall(echo)) for echo in lookup.echoes):
                found = Found(_things(tool.name) | _things(key), server, is_id, proven)
                self._found.setdefault(text, []).append(found)

    def _lookup(self, tool: Tool, call: AskedCall) -> Lookup | None:
        """Return what a call was about; None if a value of it that matters is not the person's own."""
        try:
            values = values_of(tool, call.arguments)
        except TooMany:
            return None
        telling = [one for one in values if one.matters]
        queries = [one for one in values if one.column is Column.CONTENT and tool.may_repeat]
        if not all(self._is_own(tool, one) for one in telling) or not all(self._is_query(tool, one) for one in queries):
            return None
        about = frozenset(_lower(str(one.value)) for one in (*telling, *queries))
        return Lookup(about, tuple(str(one.value) for one in values if one not in telling and one not in queries))

    def _is_query(self, tool: Tool, one: Value) -> bool:
        text = str(one.value)
        return self._is_phrase(text) if len(text.split()) > 1 else self._is_own(tool, one)


def is_of_person(message: Message) -> bool:
    """Return True for the words of the person, and not of a helper's task, a client or another conversation."""
    if message.role != "user":
        return False
    return message.sender == "person" or not (message.sender or message.untrusted)  # beside a document they are theirs


def _lower(text: str) -> str:
    """Return the text with the letters A to Z in lower case; others stay, because the Kelvin sign is no k."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _joined(text: str) -> str:
    """Return the words of a text in lower case, between spaces."""
    return f" {' '.join(_WORD.findall(_lower(text)))} "


def _spellings(text: str) -> list[str]:
    """Return the ways of writing an address of the web that make no difference; none for any other text."""
    scheme, found, rest = text.partition("://")
    if found and scheme.lower() not in ("http", "https"):
        return [text]
    if not found and not text.lower().startswith("www."):
        return []
    core = rest if found else text
    core = core.rstrip("/") if core.count("/") < 2 else core
    return [f"{before}{core}{end}" for before in ("", "https://", "http://") for end in ("", "/")]


def _is_name(written: str, at: int, length: int, argument: str) -> bool:
    """Return True if ordinary words or a small number stand there as a name.

    Between quotation marks, behind @ or #, beside a word of the argument's name (`the general channel`), or with a
    capital letter inside of a sentence; of several words, one behind the first has a capital letter or a digit.
    """
    end = at + length
    before, after = written[max(0, at - NEAR) : at], written[end : end + NEAR]
    if before[-1:] in ("@", "#") or (before[-1:] in _QUOTES and after[:1] in _QUOTES):
        return True
    about = {word.removesuffix("s") for word in words_of(argument)} - STOP_WORDS
    near = [*_WORD.findall(before)[-1:], *_WORD.findall(after)[:1]]
    if any(word.lower().removesuffix("s") in about for word in near):
        return True
    words = _WORD.findall(written[at:end])
    if len(words) > 1 and any(word[0].isupper() or word[0].isdigit() for word in words[1:]):
        return True
    return length > 1 and words[0][0].isupper() and before.rstrip()[-1:] not in _BEFORE_SENTENCES


def _number(text: str) -> Decimal | None:
    """Return a number that can be read in one way only: 1,250.00 and 2.5, not 1.250."""
    body = text.replace("'", "").replace(" ", "")
    marks = [one for one in body if one in ".,"]
    if len(set(marks)) == 2:
        if body.count(marks[-1]) != 1:
            return None
        body = body.replace(marks[0], "")
    elif len(marks) > 1:
        body = body.replace(marks[0], "")
    elif marks and len(body.partition(marks[0])[2]) == 3:
        return None
    try:
        return Decimal(body.replace(",", "."))
    except InvalidOperation:
        return None


def _record(text: str, about: Collection[str]) -> Mapping[str, Any]:
    """Return the one JSON record of a result; of several the one with a field that is what the call was about."""
    try:
        read = json.loads(text) if text[:1] in ("[", "{") else None
    except (ValueError, RecursionError):
        return {}
    records = [one for one in (read if isinstance(read, list) else [read]) if isinstance(one, dict)]
    if len(records) > 1:
        records = [one for one in records if any(_lower(str(field)) in about for field in one.values())]
    return records[0] if len(records) == 1 and len(records[0]) <= MOST_FIELDS else {}


def _things(name: str) -> frozenset[str]:
    """Return the words of a tool or an argument that say what it is about."""
    words = {word.removesuffix("s") for word in words_of(name)}
    return frozenset(words - _IDS - set(_ABOUT_NOTHING.split()))

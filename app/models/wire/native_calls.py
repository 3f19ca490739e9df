"""Assemble native tool calls from streamed fragments, as events of the parser.

Arguments that are not JSON are read by the reader of calls in text: models write both alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from app.core.provider import CallId, MetadataChunk
from app.models.http.answer_stream import TooManyCalls
from app.models.http.sse import MAX_EVENT_BYTES, EventTooLarge
from app.models.wire.opaque_metadata import MetadataCollector
from parsing import Arguments, BadCall, Call, CallDelta, CallOpened
from parsing.literals import loads
from tools.base.patterns import lazy_pattern

NATIVE = "native"
MAX_CALLS = 256
MAX_NAME = 256  # characters of a name, and of an id: strict servers take 64
LONG_NAME = "The name of a tool is longer than {most} characters: none is called that. Call again, with a tool's name."
NOT_JSON = "The arguments were not valid JSON ({why}): they were read as what they can only mean."
IN_A_STRING = "The arguments were a text that holds JSON."
_MARKS = {False: lazy_pattern(r'["{}\[\]]'), True: lazy_pattern(r'["\\]')}  # of JSON, outside strings and inside

NativeEvent = CallOpened | CallDelta | Call | BadCall | MetadataChunk | CallId


class Brackets:
    """Incremental check of whether the brackets of a JSON text are balanced; each piece is scanned once."""

    def __init__(self) -> None:
        self._seen = False
        self._depth = 0
        self._in_string = False
        self._escaped = False  # the first character of the next piece

    def read(self, piece: str) -> None:
        at, self._escaped = int(self._escaped), False
        while mark := _MARKS[self._in_string].search(piece, at):
            at = mark.end()
            match mark.group():
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._escaped = at == len(piece)
                    at += 1
                case "{" | "[":
                    self._seen = True
                    self._depth += 1
                case _:
                    self._depth -= 1

    @property
    def closed(self) -> bool:
        return self._seen and self._depth == 0 and not self._in_string


class CallSlot(Struct):
    """One incomplete call. `number` is its position in the reply; the server's index is unreliable."""

    number: int
    id: str = ""  # cut like the name
    name: str = ""  # cut to MAX_NAME + 1 characters if it is too long
    parts: list[str] = field(default_factory=list)
    opened: bool = False
    is_named: bool = False  # its id has been yielded
    _brackets: Brackets = field(default_factory=Brackets)
    _looked: int = 0  # parts that were scanned; only done for servers that reuse an index
    _not_an_object: bool = False  # its arguments can no longer become an object

    def is_whole(self) -> bool:
        """Return whether the arguments are a complete object; they are decoded at most once."""
        for part in self.parts[self._looked :]:
            self._brackets.read(part)
        self._looked = len(self.parts)
        if self._not_an_object or not self._brackets.closed:
            return False
        try:
            value, _ = decoded_or_repaired("".join(self.parts), cut=False)
            self._not_an_object = not isinstance(value, dict)
        except (ValueError, RecursionError):
            self._not_an_object = True
        return not self._not_an_object


class CallStart(Struct, frozen=True):
    """The fields of a fragment that may start a call."""

    id: str
    name: str
    arguments: str


class NativeCalls:
    """The calls of one reply.

    A fragment belongs to the call of its index, unless it starts another one there: a new id with a name, another name
    after arguments, or a second object after a complete one. A new index without a name continues the call of its id,
    or else the last. Without an index, a new id or a name starts a call, and everything else continues the last call;
    of several fragments in one chunk, each continues the call at its position. Calls are returned by `close` only, when
    the reply is known to be complete.

    Each character is read once, and memory is bounded: by the arguments of all calls together, the number of calls, and
    the length of names and ids.
    """

    def __init__(self, metadata: MetadataCollector | None = None) -> None:
        self._metadata = metadata or MetadataCollector()
        self._slots: list[CallSlot] = []
        self._by_index: dict[int, CallSlot] = {}  # indexes that have started a call
        self._by_id: dict[str, CallSlot] = {}
        self._latest: CallSlot | None = None  # the call of the last fragment
        self._left = MAX_EVENT_BYTES  # characters of arguments, those of unnamed calls included

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, fragment: Any, place: int | None = None) -> list[NativeEvent]:
        """Add one element of `delta.tool_calls`; `place` is its position if there are several.

        Raises TooManyCalls, EventTooLarge; anything else odd is tolerated.
        """
        if not isinstance(fragment, dict):
            return []
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        name, id = text_of(function.get("name"))[: MAX_NAME + 1], text_of(fragment.get("id"))[: MAX_NAME + 1]
        written = arguments_text(function.get("arguments"))
        slot = self._latest = self._slot(index_of(fragment.get("index")), place, CallStart(id, name, written))
        if id and not slot.id:
            slot.id = id
            self._by_id[id] = slot
        if name and name != slot.name and not slot.opened:  # a few servers stream the name in pieces
            slot.name = (slot.name + name)[: MAX_NAME + 1]
        self._left -= len(written)
        if self._left < 0:
            raise EventTooLarge(f"the arguments of all calls are longer than {MAX_EVENT_BYTES} characters")
        if written:
            slot.parts.append(written)
        self._metadata.see_call(slot.number, fragment)
        return list(self._events(slot, written))

    def close(self, *, cut: bool) -> Iterator[NativeEvent]:
        """Yield each call once, valid or bad, after its metadata. `cut`: the model reached its token limit."""
        for slot in self._slots:
            yield from self._call_id(slot)
            if slot.name and not slot.opened:
                yield CallOpened(slot.number, slot.name)
            yield from self._metadata.of_call(slot.number)
            yield finished(slot, cut=cut and (slot is self._slots[-1] or slot is self._latest))

    def _events(self, slot: CallSlot, written: str) -> Iterator[NativeEvent]:
        """Yield the events of a fragment; a call opens with its first arguments, because then its name is complete."""
        if slot.opened:
            yield from [CallDelta(slot.number, written)] if written else []
        elif slot.name and slot.parts:
            slot.opened = True
            yield from self._call_id(slot)
            yield CallOpened(slot.number, slot.name)
            yield CallDelta(slot.number, "".join(slot.parts))

    def _call_id(self, slot: CallSlot) -> Iterator[CallId]:
        """Yield the server's id once, if it can be sent back."""
        if self._metadata.origin and not slot.is_named and 0 < len(slot.id) <= MAX_NAME and slot.id.isprintable():
            slot.is_named = True
            yield CallId(slot.number, slot.id, self._metadata.origin)

    def _slot(self, index: int | None, place: int | None, start: CallStart) -> CallSlot:
        if index is not None:
            slot = self._by_index.get(index) or (self._continued(start) if place is None else None)
            if slot is None or starts_new_call(slot, start):
                slot = self._by_index[index] = self._new_slot()
            return slot
        known = self._by_id.get(start.id)
        if known and not starts_new_call(known, start):
            return known
        if start.id or start.name or not self._slots:
            return self._new_slot()
        return self._slots[place if place is not None and place < len(self._slots) else -1]

    def _continued(self, start: CallStart) -> CallSlot | None:
        """Return the call continued under a new index: some servers number fragments instead of calls."""
        return None if start.name else self._by_id.get(start.id) if start.id else self._latest

    def _new_slot(self) -> CallSlot:
        if len(self._slots) >= MAX_CALLS:
            raise TooManyCalls(f"more than {MAX_CALLS} calls in one reply")
        self._slots.append(CallSlot(len(self._slots)))
        return self._slots[-1]


def starts_new_call(slot: CallSlot, start: CallStart) -> bool:
    """Return whether this fragment starts a new call although its index or id is in use."""
    if start.id and slot.id and start.id != slot.id:
        return bool(start.name)  # some servers change the id with every fragment; those have no name
    if not (start.name and slot.parts):
        return False
    return start.name != slot.name or (start.arguments.lstrip().startswith("{") and slot.is_whole())


def finished(slot: CallSlot, *, cut: bool) -> Call | BadCall:
    """Return the call, or a BadCall with advice for the model."""
    raw = "".join(slot.parts)
    if not slot.name:
        return BadCall(slot.number, raw, "A tool call came without a name. Call again, with the tool's name.")
    if len(slot.name) > MAX_NAME:
        return BadCall(slot.number, raw, LONG_NAME.format(most=MAX_NAME))
    again = f"Call {slot.name} again with one whole JSON object"
    if cut and not raw.strip():
        return BadCall(slot.number, raw, f"The call of {slot.name} was cut off before its arguments. {again}.")
    try:
        arguments, repairs = arguments_of(raw, cut=cut)
    except (ValueError, RecursionError) as error:
        if cut or is_cut(raw):
            reason = f"The arguments of {slot.name} were cut off after {len(raw)} characters, so nothing was run. "
            return BadCall(slot.number, raw, f"{reason}{again}; if they are long, in smaller steps.")
        return BadCall(slot.number, raw, f"The arguments of {slot.name} cannot be read: {error}. {again}.")
    return Call(slot.number, slot.name, arguments, NATIVE, repairs)


def arguments_of(raw: str, *, cut: bool = False) -> tuple[Arguments, tuple[str, ...]]:
    """Return the arguments, and a sentence for each repair; empty ones (nothing, null, [], "") are {}.

    What is not JSON is read as in calls in text. Not where it was `cut`: a part of it may look like the whole.
    Some proxies send an empty object before the real one. Raises ValueError or RecursionError.
    """
    value, repairs = decoded_or_repaired(raw[2:] if raw.startswith("{}{") else raw, cut=cut)
    if isinstance(value, str) and value:
        value, further = decoded_or_repaired(value, cut=cut)  # some servers encode twice
        repairs = (*repairs, IN_A_STRING, *further)
    if value in (None, "", []):
        return {}, ()
    if not isinstance(value, dict):
        raise ValueError(f"they are a JSON {type(value).__name__}, not an object")
    return value, repairs


def decoded_or_repaired(raw: str, *, cut: bool) -> tuple[Any, tuple[str, ...]]:
    """Return the value, and a sentence if it was repaired. Raises ValueError or RecursionError."""
    try:
        return decoded(raw, strict=not cut), ()
    except (ValueError, RecursionError) as error:
        if cut:
            raise
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return loads(raw), (NOT_JSON.format(why=why),)


def decoded(raw: str, *, strict: bool = False) -> Any:
    """Decode JSON, raw line ends in its texts included unless `strict`; numbers that it cannot represent are errors."""
    return json.loads(raw, strict=strict, parse_constant=not_a_number, parse_float=finite) if raw.strip() else None


def not_a_number(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def as_written(text: str, arguments: Arguments) -> str | None:
    """Return the text if it is JSON of these arguments and goes back as it is; "" if theirs is the same.

    None if it cannot go back: it has lone surrogates, which servers refuse, or is no JSON of them alone.
    """
    try:
        if "\\u" in text or not text.isascii():
            f"{text}{json.dumps(arguments, ensure_ascii=False)}".encode()
        if text == json.dumps(arguments):
            return ""
    except (UnicodeEncodeError, RecursionError):
        return None
    if is_json_of(text, arguments, object_pairs_hook=each_once):
        return text
    return None if arguments else ""


def is_json_of(text: str, arguments: Arguments, **options: Any) -> bool:
    try:
        return bool(json.loads(text, **options) == arguments)
    except (ValueError, RecursionError):
        return False


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object, without a name that it has twice: one value of these is nowhere else, a secret perhaps."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def is_cut(raw: str) -> bool:
    """Return whether decoding fails at the end of the text, as for truncated JSON."""
    try:
        decoded(raw)
    except json.JSONDecodeError as error:
        return error.pos >= len(raw.rstrip()) or error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        pass
    return False


def arguments_text(arguments: Any) -> str:
    """Return arguments as text: strings unchanged, null as "", and unencoded values (Ollama) as JSON."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def index_of(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None

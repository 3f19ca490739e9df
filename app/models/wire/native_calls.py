"""Native tool calls, put together from the fragments that servers stream, as the parser's own events."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from app.core.provider import MetadataChunk
from app.models.http.answer_stream import TooManyCalls
from app.models.http.sse import MAX_EVENT_BYTES, EventTooLarge
from app.models.wire.opaque_metadata import MetadataCollector
from parsing import Arguments, BadCall, Call, CallDelta, CallOpened

NATIVE = "native"
MAX_CALLS = 256
MAX_NAME = 256  # characters of a name, and of an id: strict servers take 64
LONG_NAME = "The name of a tool is longer than {most} characters: none is called that. Call again, with a tool's name."
_MARKS = {False: re.compile(r'["{}\[\]]'), True: re.compile(r'["\\]')}  # of JSON, outside of strings and in them

NativeEvent = CallOpened | CallDelta | Call | BadCall | MetadataChunk


class Brackets:
    """Whether the brackets of a JSON text are closed again; it comes in pieces, and each is looked at once."""

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


@dataclass(slots=True)
class CallSlot:
    """One call under way. `number` is its place in the reply; the server's own index is not to be trusted."""

    number: int
    id: str = ""
    name: str = ""  # with one character more than MAX_NAME if it is too long
    parts: list[str] = field(default_factory=list)
    opened: bool = False
    _brackets: Brackets = field(default_factory=Brackets)
    _looked: int = 0  # parts whose brackets were counted: only those servers pay that make it necessary
    _is_none: bool = False  # its arguments are no object, whatever may follow

    def is_whole(self) -> bool:
        """Its arguments are an object that nothing could be added to: they are decoded once, however often it asks."""
        for part in self.parts[self._looked :]:
            self._brackets.read(part)
        self._looked = len(self.parts)
        if self._is_none or not self._brackets.closed:
            return False
        try:
            self._is_none = not isinstance(decoded("".join(self.parts)), dict)
        except (ValueError, RecursionError):
            self._is_none = True
        return not self._is_none


@dataclass(frozen=True, slots=True)
class CallStart:
    """What a fragment says that may be the first of a call."""

    id: str
    name: str
    arguments: str


class NativeCalls:
    """The calls of one reply.

    A fragment belongs to the call of its index, unless it starts another one there: a new id with a name, another name
    after arguments, or a second object after a whole one. A new index without a name goes on with the call of its id,
    or else the last. Without an index, a new id or a name starts a call, and
    everything else continues the last; of several that come at a time, each the call in its place. Calls are given by
    `close` only, when the reply is known to be whole.

    Each character is read once, and what is kept has bounds, however the fragments are made: the arguments of all
    calls together, the number of calls, and of each its name and id.
    """

    def __init__(self, seals: MetadataCollector | None = None) -> None:
        self._seals = seals or MetadataCollector()
        self._slots: list[CallSlot] = []
        self._by_index: dict[
            int, CallSlot
        ] = {}  # the indexes under which a call has begun, not those that go on with one
        self._by_id: dict[str, CallSlot] = {}
        self._latest: CallSlot | None = None  # the one that was written at last
        self._left = MAX_EVENT_BYTES  # characters of arguments: those of a call without a name are shown to nobody

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, fragment: Any, place: int | None = None) -> list[NativeEvent]:
        """What one element of `delta.tool_calls` adds; `place` is its own, if it does not come alone.

        Raises TooManyCalls, EventTooLarge; anything else odd is tolerated.
        """
        if not isinstance(fragment, dict):
            return []
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        name, id = text_of(function.get("name"))[: MAX_NAME + 1], text_of(fragment.get("id"))[:MAX_NAME]
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
        self._seals.see_call(slot.number, fragment)
        return list(self._shown(slot, written))

    def close(self, *, cut: bool) -> Iterator[NativeEvent]:
        """Each call once, whole or bad, behind its seal. `cut`: the model ran into its token limit while writing."""
        for slot in self._slots:
            if slot.name and not slot.opened:
                yield CallOpened(slot.number, slot.name)
            yield from self._seals.of_call(slot.number)
            yield finished(slot, cut=cut and (slot is self._slots[-1] or slot is self._latest))

    def _shown(self, slot: CallSlot, written: str) -> Iterator[NativeEvent]:
        """A call is opened by its first arguments: only then is its name surely whole."""
        if slot.opened:
            yield from [CallDelta(slot.number, written)] if written else []
        elif slot.name and slot.parts:
            slot.opened = True
            yield CallOpened(slot.number, slot.name)
            yield CallDelta(slot.number, "".join(slot.parts))

    def _slot(self, index: int | None, place: int | None, start: CallStart) -> CallSlot:
        if index is not None:
            slot = self._by_index.get(index) or (self._gone_on(start) if place is None else None)
            if slot is None or starts_new_call(slot, start):
                slot = self._by_index[index] = self._new_slot()
            return slot
        known = self._by_id.get(start.id)
        if known and not starts_new_call(known, start):
            return known
        if start.id or start.name or not self._slots:
            return self._new_slot()
        return self._slots[place if place is not None and place < len(self._slots) else -1]

    def _gone_on(self, start: CallStart) -> CallSlot | None:
        """The call that goes on under a new index: a few servers count fragments, not calls."""
        return None if start.name else self._by_id.get(start.id) if start.id else self._latest

    def _new_slot(self) -> CallSlot:
        if len(self._slots) >= MAX_CALLS:
            raise TooManyCalls(f"more than {MAX_CALLS} calls in one reply")
        self._slots.append(CallSlot(len(self._slots)))
        return self._slots[-1]


def starts_new_call(slot: CallSlot, start: CallStart) -> bool:
    """Does this fragment start a new call although its index, or its id, is in use?"""
    if start.id and slot.id and start.id != slot.id:
        return bool(start.name)  # an id that changes with each fragment of one call comes without a name
    if not (start.name and slot.parts):
        return False
    return start.name != slot.name or (start.arguments.lstrip().startswith("{") and slot.is_whole())


def finished(slot: CallSlot, *, cut: bool) -> Call | BadCall:
    """The whole call, or what is wrong with it in words that the model can act on."""
    raw = "".join(slot.parts)
    if not slot.name:
        return BadCall(slot.number, raw, "A tool call came without a name. Call again, with the tool's name.")
    if len(slot.name) > MAX_NAME:
        return BadCall(slot.number, raw, LONG_NAME.format(most=MAX_NAME))
    again = f"Call {slot.name} again with one whole JSON object"
    if cut and not raw.strip():
        return BadCall(slot.number, raw, f"The call of {slot.name} was cut off before its arguments. {again}.")
    try:
        arguments = arguments_of(raw)
    except (ValueError, RecursionError) as error:
        if cut or is_cut(raw, error):
            reason = f"The arguments of {slot.name} were cut off after {len(raw)} characters, so nothing was run. "
            return BadCall(slot.number, raw, f"{reason}{again}; if they are long, in smaller steps.")
        return BadCall(slot.number, raw, f"The arguments of {slot.name} cannot be read: {error}. {again}.")
    return Call(slot.number, slot.name, arguments, NATIVE)


def arguments_of(raw: str) -> Arguments:
    """The arguments as an object; empty ones (nothing, null, [], "") are {}. Raises ValueError or RecursionError.

    Proxies may begin with an empty object, before the real one is streamed.
    """
    value = decoded(raw[2:] if raw.startswith("{}{") else raw)
    if isinstance(value, str):
        value = decoded(value)  # some servers encode twice
    if value in (None, "", []):
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"they are a JSON {type(value).__name__}, not an object")
    return value


def decoded(raw: str) -> Any:
    # strict=False: models write raw newlines into strings. Numbers that JSON cannot carry on must not come in.
    return json.loads(raw, strict=False, parse_constant=not_a_number, parse_float=finite) if raw.strip() else None


def not_a_number(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def is_cut(raw: str, error: Exception) -> bool:
    """Did reading fail at the very end, as it does for the half of a JSON text?"""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.pos >= len(raw.rstrip()) or error.msg.startswith("Unterminated string")


def arguments_text(arguments: Any) -> str:
    """Arguments as text: strings as they are, null as nothing, and values that were never encoded (Ollama) as JSON."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def index_of(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None

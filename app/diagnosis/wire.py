"""An answer as a plain client of chat completions reads it: strictly, so that nothing is repaired on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, ValidationError, convert, field

from app.models.http.sse import EventReader
from app.models.wire.native_calls import text_of
from app.models.wire.openai.chunks import REASONING_FIELDS, at, usage_of


class _Function(Struct):
    name: str | None = None


class _Fragment(Struct):
    index: int | None = None
    function: _Function | None = None


class _Message(Struct):
    tool_calls: list[_Fragment] | None = None


class _Choice(Struct):
    delta: _Message | None = None
    message: _Message | None = None


class _Chunk(Struct):
    """The shape without which a chunk, or a whole answer, cannot be read."""

    choices: list[_Choice] | None = None


class WireCall(Struct):
    """A native call. `raw` are its arguments as they came; `is_text` is False for arguments that were no string."""

    id: str = ""
    name: str = ""
    raw: str = ""
    is_text: bool = True


class Wire(Struct):
    """One answer. `indexes` are those under which calls began, None for none; `broken` says what cannot be read."""

    content: str = ""
    reasoning: str = ""
    calls: list[WireCall] = field(default_factory=list)
    indexes: list[int | None] = field(default_factory=list)
    finish: str = ""
    prompt_tokens: int | None = None
    tokens: int | None = None  # of the answer, without those of a thought that is not shown
    broken: str = ""

    @property
    def characters(self) -> int:
        return len(self.content) + len(self.reasoning) + sum(len(call.name) + len(call.raw) for call in self.calls)


def read_wire(data: bytes, *, streamed: bool) -> Wire:
    wire = Wire()
    try:
        chunks = list(_chunks(data)) if streamed else [json.loads(data)]
    except (ValueError, RecursionError) as error:
        wire.broken = f"not JSON ({error})"
        return wire
    for chunk in chunks:
        if not isinstance(chunk, dict) or chunk.get("error"):
            wire.broken = f"an error in the answer: {json.dumps(chunk)[:200]}"
            return wire
        try:
            convert(chunk, _Chunk)
        except ValidationError as error:
            wire.broken = f"not a chat completion ({error})"
            return wire
        _add(wire, chunk, "delta" if streamed else "message")
    if streamed and not data.rstrip().endswith(b"[DONE]") and not wire.finish:
        wire.broken = "the stream broke off"
    return wire


def _chunks(data: bytes) -> Iterator[Any]:
    reader = EventReader()
    for event in [*reader.feed(data), *reader.close()]:
        if event.data.strip() != "[DONE]":
            yield json.loads(event.data)


def _add(wire: Wire, chunk: dict[str, Any], place: str) -> None:
    if used := usage_of(chunk):
        hidden = at(chunk, ("usage", "completion_tokens_details", "reasoning_tokens"))
        wire.prompt_tokens, wire.tokens = used.prompt_tokens, used.completion_tokens
        wire.tokens -= hidden if isinstance(hidden, int) else 0
    for choice in chunk.get("choices") or ():
        delta = choice.get(place) or {}
        wire.content += text_of(delta.get("content"))
        wire.reasoning += next((text for name in REASONING_FIELDS if (text := text_of(delta.get(name)))), "")
        for position, fragment in enumerate(delta.get("tool_calls") or ()):
            index = fragment.get("index") if place == "delta" else position
            _add_fragment(wire, fragment, index)
        wire.finish = text_of(choice.get("finish_reason")) or wire.finish


def _add_fragment(wire: Wire, fragment: dict[str, Any], index: int | None) -> None:
    """A fragment with a new index begins a call; so does one with another id, which its index does not tell apart."""
    function, id = fragment.get("function") or {}, text_of(fragment.get("id"))
    known = [call for call, place in zip(wire.calls, wire.indexes, strict=True) if place == index]
    if not known or (id and known[-1].id and id != known[-1].id):
        known.append(WireCall(id))
        wire.calls.append(known[-1])
        wire.indexes.append(index)
    call, written = known[-1], function.get("arguments")
    call.name = call.name or text_of(function.get("name"))
    call.id = call.id or id
    call.is_text &= written is None or isinstance(written, str)
    call.raw += "" if written is None else written if isinstance(written, str) else json.dumps(written)

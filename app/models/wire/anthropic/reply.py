"""Assemble the content blocks of one reply from streamed events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from app.core.messages import OpaqueMetadata
from app.core.provider import Piece, TextChunk
from app.models.http.answer_stream import TooManyCalls
from app.models.http.sse import MAX_EVENT_BYTES, EventTooLarge
from app.models.wire.anthropic.reasoning import THINKING, sealed
from app.models.wire.native_calls import NativeCalls, arguments_text, index_of, text_of
from app.models.wire.opaque_metadata import MOST, MetadataCollector
from parsing import Thought

MAX_BLOCKS = 1024


class OpenBlock(Struct):
    """One block. `place` is its position in the reply: an index that a server uses twice denotes two blocks."""

    kind: str
    place: int
    id: str = ""
    data: str = ""  # of redacted reasoning
    arguments: str = ""  # complete, from servers that do not stream them
    characters: int = 0
    thought: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)

    def layout(self) -> dict[str, Any] | None:
        """Return the block as stored in the reply's metadata; see `reasoning`."""
        match self.kind:
            case "thinking":
                signed = {"signature": "".join(self.signature)} if self.signature else {}
                return {"type": "thinking", "thinking": "".join(self.thought), **signed}
            case "redacted_thinking":
                return {"type": "redacted_thinking", "data": self.data}
            case "text":
                return {"type": "text", "characters": self.characters}
            case "tool_use":
                return {"type": "tool_use", "id": self.id}
        return None  # server tools and unknown types: they are not in the message either


class ReplyBlocks:
    """The blocks of one reply, in order."""

    def __init__(self, origin: str = "") -> None:
        self.calls = NativeCalls(MetadataCollector(origin))
        self._all: list[OpenBlock] = []
        self._by_index: dict[int | None, OpenBlock] = {}
        self._left = MOST  # characters of reasoning; beyond that none of it is kept
        self._room = MAX_EVENT_BYTES  # characters of complete arguments that wait for the end of their block

    def start(self, index: Any, block: Any) -> Iterator[Piece]:
        """Start a block; without an index it is complete. Raises TooManyCalls and EventTooLarge."""
        if not isinstance(block, dict):
            return
        one = self._new(index, text_of(block.get("type")))
        match one.kind:
            case "text":
                yield from self._text(one, text_of(block.get("text")))
            case "thinking":
                yield from self._reasoning(one, text_of(block.get("thinking")))
                self._sign(one, text_of(block.get("signature")))
            case "redacted_thinking":
                one.data = self._kept(text_of(block.get("data")))
            case "tool_use":
                one.id, one.arguments = self._kept(text_of(block.get("id"))), self._held(block.get("input"))
                named = {"function": {"name": block.get("name")}} | ({"id": one.id} if block.get("name") else {})
                yield from self.calls.add({"index": one.place} | named)
        if index is None:
            yield from self._end(one)

    def extend(self, index: Any, delta: Any) -> Iterator[Piece]:
        """Add a delta to the block of this index. Raises TooManyCalls and EventTooLarge."""
        one = self._by_index.get(index_of(index))
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                yield from self._text(one or self._new(index, "text"), text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                yield from self._reasoning(one or self._new(index, "thinking"), text)
            case {"type": "signature_delta", "signature": str(signature)} if one:
                self._sign(one, signature)
            case {"type": "input_json_delta", "partial_json": str(written)} if (
                one and one.kind == "tool_use" and written
            ):
                one.arguments = ""
                yield from self.calls.add({"index": one.place, "function": {"arguments": written}})

    def stop(self, index: Any) -> Iterator[Piece]:
        """End the block of this index."""
        if one := self._by_index.pop(index_of(index), None):
            yield from self._end(one)

    def sealed(self, origin: str, before: str) -> OpaqueMetadata | None:
        """Return the places and the signed reasoning of the reply, the latter only if it is not too much."""
        layout = [block for one in self._all if (block := one.layout())]
        return sealed(origin, before, [one for one in layout if not (self.has_lost and one["type"] in THINKING)])

    @property
    def has_lost(self) -> bool:
        """True if there is more reasoning than is kept."""
        return self._left < 0

    def _new(self, index: Any, kind: str) -> OpenBlock:
        if len(self._all) >= MAX_BLOCKS:
            raise TooManyCalls(f"more than {MAX_BLOCKS} blocks in one reply")
        one = OpenBlock(kind, len(self._all))
        self._all.append(one)
        self._by_index[index_of(index)] = one
        return one

    def _text(self, one: OpenBlock, text: str) -> Iterator[Piece]:
        one.characters += len(text)
        if text:
            yield TextChunk(text)

    def _reasoning(self, one: OpenBlock, text: str) -> Iterator[Piece]:
        if text:
            if kept := self._kept(text):
                one.thought.append(kept)
            yield Thought(text)

    def _sign(self, one: OpenBlock, signature: str) -> None:
        if kept := self._kept(signature):
            one.signature.append(kept)

    def _kept(self, text: str) -> str:
        self._left -= len(text)
        return text if self._left >= 0 else ""

    def _held(self, arguments: Any) -> str:
        """Return complete arguments as text, whose size is known."""
        text = arguments_text(arguments) if arguments else ""
        self._room -= len(text)
        if self._room < 0:
            raise EventTooLarge(f"the arguments of all calls are longer than {MAX_EVENT_BYTES} characters")
        return text

    def _end(self, one: OpenBlock) -> Iterator[Piece]:
        if one.arguments:
            arguments, one.arguments = one.arguments, ""
            yield from self.calls.add({"index": one.place, "function": {"arguments": arguments}})

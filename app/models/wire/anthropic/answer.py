"""Decoder of a streamed answer of the Messages API: sans-IO, tolerant of deviations.

Events: https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from app.core.provider import (
    REPLY_CHANGED,
    Finished,
    MetadataChunk,
    Piece,
    ProviderFailed,
    ProviderNotice,
    TokenUsage,
)
from app.models.http import failures
from app.models.http.answer_stream import AnswerStream
from app.models.http.sse import Event
from app.models.wire.anthropic.reply import ReplyBlocks
from app.models.wire.kept_format import CUT
from app.models.wire.native_calls import index_of, text_of
from app.models.wire.opaque_metadata import LOST
from app.models.wire.openai.chunks import MOST_TOKENS, is_json, read_json

STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
REFUSED = "The model declined to answer"
WHY = ("category", "explanation")
FRESH, CACHED, WRITTEN = "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"
OUTPUT = "output_tokens"


class MessagesAnswer(AnswerStream):
    """Decoder of one answer: feed it the body, then close it. `url` is for the messages of ProviderFailed.

    `origin` identifies the model for its signed reasoning, `before` is the digest of the history. `close` returns
    native calls, metadata, usage and Finished: only then is it known that nothing was cut off.
    """

    def __init__(self, url: str, origin: str = "", before: str = "") -> None:
        super().__init__(url)
        self._origin = origin
        self._before = before
        self._notice: ProviderNotice | None = None
        self._blocks = ReplyBlocks(origin)
        self._counts = UsageCounts()
        self._early: TokenUsage | None = None  # the usage emitted before the end

    def _close(self) -> list[Piece]:
        pieces = list(self._rest())
        if not self.whole:
            raise self._broken("it ended without a stop_reason and without message_stop")
        stopped = STOPS.get(self._stopped, self._stopped) or ("tool_calls" if self._blocks.calls else "stop")
        pieces += self._blocks.calls.close(cut=stopped in CUT)
        if sealed := self._blocks.sealed(self._origin, self._before):
            pieces.append(MetadataChunk(sealed))
        if self._blocks.has_lost:
            pieces.append(ProviderNotice(REPLY_CHANGED, LOST))
        used = self._counts.used()
        pieces += filter(None, (None if used == self._early else used, self._notice))
        return [*pieces, Finished(stopped)]

    def _rest(self) -> Iterator[Piece]:
        """Yield a body that is not a stream, or the last event if its blank line is missing."""
        if text := self._body.whole:
            yield from self._read_whole(text)
        for event in self._events.close():
            if self.whole or not is_json(event.data):
                return  # an incomplete event: the answer is cut, if it is not complete
            yield from self._read_event(event)

    def _read_whole(self, text: str) -> Iterator[Piece]:
        """Decode the single JSON object of a server that does not stream."""
        try:
            message = read_json(text)
        except (ValueError, RecursionError) as error:
            raise failures.not_a_model(self.url, "something that is neither a stream nor JSON", text) from error
        match message:
            case {"type": "error"} | {"error": _}:
                raise self._failure(message)
            case {"content": list(content)}:
                for block in content:
                    yield from self._blocks.start(None, block)
                self._counts.see(message)
                self._end(message)
                self.done = True
            case _:
                raise failures.not_a_model(self.url, "JSON that is not a message", text)

    def _read_event(self, event: Event) -> Iterator[Piece]:
        """Decode one event; errors after the stop reason are ignored."""
        self._eventful = True
        if self.done:
            return
        value: Any = None
        with suppress(ValueError, RecursionError):
            value = read_json(event.data)
        if isinstance(value, dict):
            yield from self._take(text_of(value.get("type")) or event.event, value)
        elif event.event == "error" and not self.whole:
            raise self._failure(event.data)
        elif event.event != "ping" and not self.whole:
            raise failures.garbled(self.url, "an event that is not a JSON object", event.data)

    def _take(self, kind: str, value: dict[str, Any]) -> Iterator[Piece]:
        """Handle one event; unknown types are ignored, because the API may add some."""
        if not self.whole and (kind == "error" or value.get("error")):
            raise self._failure(value)
        match kind:
            case "message_start":
                message = value.get("message")
                self._counts.see(message if isinstance(message, dict) else {})
                if self._early is None and (used := self._counts.used()):
                    self._early = used  # the answer may break off, but the prompt is billed
                    yield used
            case "content_block_start":
                yield from self._blocks.start(value.get("index"), value.get("content_block"))
            case "content_block_delta":
                yield from self._blocks.extend(value.get("index"), value.get("delta"))
            case "content_block_stop":
                yield from self._blocks.stop(value.get("index"))
            case "message_delta":
                delta = value.get("delta")
                self._counts.see(value)
                self._end(delta if isinstance(delta, dict) else {})
            case "message_stop":
                self.done = True

    def _end(self, delta: dict[str, Any]) -> None:
        self._stopped = text_of(delta.get("stop_reason")) or self._stopped
        if self._stopped == "refusal":
            details = delta.get("stop_details")
            reasons = [details.get(name) for name in WHY] if isinstance(details, dict) else []
            self._notice = ProviderNotice("refusal", ": ".join([REFUSED, *filter(None, map(text_of, reasons))]))

    def _failure(self, value: Any) -> ProviderFailed:
        error = value.get("error") if isinstance(value, dict) else value
        return failures.error_in_stream(self.url, error or value)


class UsageCounts:
    """Counts of one answer, cache reads and writes apart. They never decrease: some gateways report 0 at the end."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def see(self, holder: dict[str, Any]) -> None:
        usage = holder.get("usage")
        for field in (FRESH, CACHED, WRITTEN, OUTPUT):
            count = index_of(usage.get(field)) if isinstance(usage, dict) else None
            if count is not None and 0 <= count < MOST_TOKENS:
                self._most[field] = max(count, self._most.get(field, 0))

    def used(self) -> TokenUsage | None:
        most = self._most
        prompt = sum(most.get(field, 0) for field in (FRESH, CACHED, WRITTEN))
        output = most.get(OUTPUT, 0)
        return TokenUsage(prompt, output, most.get(CACHED), most.get(WRITTEN)) if prompt or output else None

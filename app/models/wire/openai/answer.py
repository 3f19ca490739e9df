"""Decoder of a streamed chat completion: sans-IO, tolerant of the deviations of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.core.provider import Finished, Piece, ProviderFailed, ProviderNotice, TextChunk, TokenUsage
from app.models.http import failures
from app.models.http.answer_stream import AnswerStream
from app.models.http.sse import Event
from app.models.wire.kept_format import CUT
from app.models.wire.native_calls import NativeCalls, index_of, text_of
from app.models.wire.opaque_metadata import MetadataCollector
from app.models.wire.openai.chunk_fast_path import ChunkFastPath
from app.models.wire.openai.chunks import (
    all_json,
    content,
    error_in,
    error_of,
    fragments,
    is_json,
    merge_usage,
    read_json,
    reasoning,
    usage_of,
)
from app.models.wire.openai.pictures import ReplyPictures
from parsing import Thought

# Finish reasons for the token limit.
LIMITED = ("length", "model_length", "max_tokens")
FILTERED = "content_filter"
WHY_FILTERED = "The model's server ended this answer: its content filter does not let more of it pass."
PROMISES = ("tool_calls", "function_call")
REPORTED_EACH = 64  # tokens of an answer, if its server reports in each chunk
# Finish reasons of a server that aborted (DeepSeek, SGLang and vLLM, OpenRouter and Mistral, Z.ai).
ABORTED = ("insufficient_system_resource", "abort", "aborted", "error", "network_error")


class ChatAnswer(AnswerStream):
    """Decoder of one answer: feed it the body, then close it. `url` is for the messages of ProviderFailed.

    `origin` identifies the model for its metadata. `close` returns native calls, usage and Finished: only then is it
    known that nothing was cut off. After the finish_reason only usage is read, so that a late error undoes nothing.
    """

    def __init__(self, url: str, origin: str = "") -> None:
        super().__init__(url)
        self._fast_chunks = ChunkFastPath()
        self._answered = False  # there was a choice, even an empty one
        self._has_text = False
        self._metadata = MetadataCollector(origin)
        self._calls = NativeCalls(self._metadata)
        self._pictures = ReplyPictures()
        self._used: TokenUsage | None = None
        self._early: TokenUsage | None = None  # the usage emitted before the end

    def _close(self) -> list[Piece]:
        text = self._body.whole
        pieces = self._read_body(text) if text.strip() else self._read_rest()
        if not self.whole and self._start.strip():
            raise self._broken("it ended without a finish_reason and without [DONE]")
        if not self._answered:
            raise failures.interrupted(
                self.url,
                "it ended before it began, as with a prompt that is too long for the model: set DRAGOMAN_WINDOW, or "
                "the endpoint's window, to what it can hold",
            )
        if self._stopped in PROMISES and not self._calls and not self._has_text:
            raise failures.interrupted(self.url, "its finish_reason announces a call, but there is none")
        cut = self._stopped in CUT
        pieces += self._calls.close(cut=cut)
        if self._calls:
            pieces += self._metadata.of_reply()
        if self._used and self._used != self._early:
            pieces.append(self._used)
        pieces += self._pictures.close()
        if self._stopped == FILTERED:
            pieces.append(ProviderNotice("refusal", WHY_FILTERED))
        pieces.append(Finished(self._stopped or ("tool_calls" if self._calls else "stop")))
        return pieces

    def _read_rest(self) -> list[Piece]:
        """Decode a last event without a blank line. Raises ProviderFailed for an incomplete one."""
        pieces: list[Piece] = []
        for event in self._events.close():
            if not self.whole and event.event == "message" and not all_json(event.data):
                raise failures.interrupted(self.url, f"it ended inside a chunk: {event.data}")
            pieces += self._read_event(event)
        return pieces

    def _fast_path(self, data: bytes) -> TextChunk | Thought | None:
        return self._fast_chunks.read_block(data) if self._aligned else None

    def _read_event(self, event: Event) -> Iterator[Piece]:
        self._eventful = True
        if self.done:
            return
        if event.event == "error":
            if not self._stopped:
                raise failures.error_in_stream(self.url, error_in(event.data))
            return
        if (text := self._fast_chunks.read(event.data)) is not None:
            yield text
            return
        for chunk in self._chunks(event.data):
            self._fast_chunks.learn(event.data, chunk)
            yield from self._read_chunk(chunk)

    def _chunks(self, data: str) -> Iterator[Any]:
        """Yield the chunks of an event: usually one; several if the server separates chunks by a single newline."""
        texts = [data] if "\n" not in data or is_json(data) else data.split("\n")
        for text in texts:
            if text.strip() == "[DONE]":
                self.done = True
                return
            try:
                if text.strip():
                    yield read_json(text)
            except (ValueError, RecursionError) as error:
                if self.whole:
                    return
                raise failures.garbled(self.url, "a chunk that is not JSON", text) from error

    def _read_body(self, text: str) -> list[Piece]:
        """Decode the single JSON object of a server that does not stream."""
        if text.startswith("<"):
            raise failures.not_a_model(self.url, "a web page instead of a stream", text)
        try:
            body = read_json(text)
        except (ValueError, RecursionError) as error:
            raise failures.not_a_model(self.url, "something that is neither a stream nor JSON", text) from error
        if isinstance(body, list) and len(body) == 1:
            body = body[0]  # Gemini's errors
        if not isinstance(body, dict) or not (body.get("choices") or error_of(body)):
            raise failures.not_a_model(self.url, "JSON that is not a chat completion", text)
        pieces = list(self._read_chunk(body))
        self.done = True
        return pieces

    def _read_chunk(self, chunk: Any) -> Iterator[Piece]:
        if not isinstance(chunk, dict):
            raise failures.garbled(self.url, "a chunk that is not an object", str(chunk))
        self._used = merge_usage(self._used, usage_of(chunk))
        if (error := error_of(chunk)) and not self._stopped:
            yield from self._fail(failures.error_in_stream(self.url, error))
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not index_of(choice.get("index")):
                yield from self._read_choice(choice)
        if self._used and self._body.streamed and not self.whole and self._is_news(self._used):
            self._early = self._used  # the answer may break off, but it is billed
            yield self._used

    def _is_news(self, used: TokenUsage) -> bool:
        """Some servers report in each chunk: now and then is enough."""
        early = self._early
        return early is None or used.completion_tokens >= early.completion_tokens + REPORTED_EACH

    def _read_choice(self, choice: dict[str, Any]) -> Iterator[Piece]:
        self._answered = True
        delta = choice.get("delta" if self._body.streamed else "message")
        if delta and isinstance(delta, dict):
            self._metadata.see_reply(delta)
            is_text = "images" not in delta and isinstance(delta.get("content"), str)
            pictures = () if is_text else self._pictures.read(delta)
            for piece in (*reasoning(delta), *content(delta), *pictures):
                self._has_text = True
                yield piece
            found = fragments(delta)
            for place, fragment in enumerate(found):
                yield from self._calls.add(fragment, place if len(found) > 1 else None)
        self._used = merge_usage(self._used, usage_of(choice))
        reason = text_of(choice.get("finish_reason")) or self._stopped
        if reason in ABORTED:
            why = f"the server gave up in the middle (finish_reason {reason})"
            yield from self._fail(failures.interrupted(self.url, why))
        self._stopped = LIMITED[0] if reason in LIMITED else reason

    def _fail(self, failure: ProviderFailed) -> Iterator[Piece]:
        """Emit the usage, which is billed in any case, and raise the failure."""
        if self._used and self._used != self._early:
            yield self._used
        raise failure

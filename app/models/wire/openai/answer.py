"""One streamed chat completion, from bytes to pieces: sans-IO, tolerant of what real servers send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.core.provider import Finished, Piece, ProviderFailed, TextChunk, TokenUsage
from app.models.http import failures
from app.models.http.answer_stream import AnswerStream
from app.models.http.sse import Event
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
    last_of,
    read_json,
    thoughts,
    usage_of,
)
from parsing import Thought

# What servers call a limit of tokens. After these, and where content was filtered, the last call may be cut.
LIMITED = ("length", "model_length", "max_tokens")
CUT_REASONS = ("length", "content_filter")
PROMISES = ("tool_calls", "function_call")
# Reasons that are none: the server gave up in the middle (DeepSeek, SGLang and vLLM, OpenRouter and Mistral, Z.ai).
GIVEN_UP = ("insufficient_system_resource", "abort", "aborted", "error", "network_error")


class ChatAnswer(AnswerStream):
    """Feed it the body of a 200 answer, then close it. `url` is for the messages of ProviderFailed.

    `origin` is whose seals there are. `close` gives native calls, usage and Stopped: only then is it known that
    nothing was cut off. Behind the reason why the model stopped, nothing but usage is read: no error undoes an answer.
    """

    def __init__(self, url: str, origin: str = "") -> None:
        super().__init__(url)
        self._alike = ChunkFastPath()
        self._answered = False  # there was a choice, however empty
        self._spoke = False
        self._seals = MetadataCollector(origin)
        self._calls = NativeCalls(self._seals)
        self._used: TokenUsage | None = None
        self._early: TokenUsage | None = None  # what was told of it before the end

    def _close(self) -> list[Piece]:
        said = self._body.whole
        pieces = self._read_body(said) if said.strip() else self._read_rest()
        if not self.whole:
            raise self._broken("it ended without a finish_reason and without [DONE]")
        if not self._answered:
            raise failures.interrupted(
                self.url, "it ended before it began, as with a prompt that is too long for the model"
            )
        if self._stopped in PROMISES and not self._calls and not self._spoke:
            raise failures.interrupted(self.url, "it promises a call and has none")
        cut = self._stopped in CUT_REASONS
        pieces += self._calls.close(cut=cut)
        if self._calls:
            pieces += self._seals.of_reply()
        if self._used and self._used != self._early:
            pieces.append(self._used)
        pieces.append(Finished(self._stopped or ("tool_calls" if self._calls else "stop")))
        return pieces

    def _read_rest(self) -> list[Piece]:
        """The last event, if the server forgot its blank line; half an event says that the answer was cut."""
        pieces: list[Piece] = []
        for event in self._events.close():
            if not self.whole and event.event == "message" and not all_json(event.data):
                raise failures.interrupted(self.url, f"it ended inside a chunk: {event.data}")
            pieces += self._read_event(event)
        return pieces

    def _known(self, data: bytes) -> TextChunk | Thought | None:
        return self._alike.read_block(data) if self._events.between and not self.done else None

    def _read_event(self, event: Event) -> Iterator[Piece]:
        self._eventful = True
        if self.done:
            return
        if event.event == "error":
            if not self._stopped:
                raise failures.error_in_stream(self.url, error_in(event.data))
            return
        if (text := self._alike.read(event.data)) is not None:
            yield text
            return
        for chunk in self._chunks(event.data):
            self._alike.learn(event.data, chunk)
            yield from self._read_chunk(chunk)

    def _chunks(self, data: str) -> Iterator[Any]:
        """Usually one; several where a server ends its chunks with one newline instead of two."""
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

    def _read_body(self, said: str) -> list[Piece]:
        """A server that does not stream answers with one JSON object."""
        if said.startswith("<"):
            raise failures.not_a_model(self.url, "a web page instead of a stream", said)
        try:
            body = read_json(said)
        except (ValueError, RecursionError) as error:
            raise failures.not_a_model(self.url, "something that is neither a stream nor JSON", said) from error
        if isinstance(body, list) and len(body) == 1:
            body = body[0]  # Gemini's errors
        if not isinstance(body, dict) or not (body.get("choices") or error_of(body)):
            raise failures.not_a_model(self.url, "JSON that is not a chat completion", said)
        pieces = list(self._read_chunk(body))
        self.done = True
        return pieces

    def _read_chunk(self, chunk: Any) -> Iterator[Piece]:
        if not isinstance(chunk, dict):
            raise failures.garbled(self.url, "a chunk that is not an object", str(chunk))
        self._used = last_of(self._used, usage_of(chunk))
        if (error := error_of(chunk)) and not self._stopped:
            yield from self._fail(failures.error_in_stream(self.url, error))
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not index_of(choice.get("index")):
                yield from self._read_choice(choice)
        if self._used and not self._early and self._body.streamed and not self.whole:
            self._early = self._used  # once: the answer may break off, and the prompt has been read
            yield self._used

    def _read_choice(self, choice: dict[str, Any]) -> Iterator[Piece]:
        self._answered = True
        delta = choice.get("delta" if self._body.streamed else "message")
        if isinstance(delta, dict):
            self._seals.see_reply(delta)
            for piece in (*thoughts(delta), *content(delta)):
                self._spoke = True
                yield piece
            found = fragments(delta)
            for place, fragment in enumerate(found):
                yield from self._calls.add(fragment, place if len(found) > 1 else None)
        self._used = last_of(self._used, usage_of(choice))
        reason = text_of(choice.get("finish_reason")) or self._stopped
        if reason in GIVEN_UP:
            why = f"the server gave up in the middle (finish_reason {reason})"
            yield from self._fail(failures.interrupted(self.url, why))
        self._stopped = LIMITED[0] if reason in LIMITED else reason

    def _fail(self, failure: ProviderFailed) -> Iterator[Piece]:
        """What has been used is told first: it costs all the same."""
        if self._used and self._used != self._early:
            yield self._used
        raise failure

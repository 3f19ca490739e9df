"""Base of the answer decoders of all wire formats: from bytes to pieces, sans-IO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from app.core.provider import Piece, ProviderFailed, TakeText, TextChunk
from app.core.time_slice import CHARACTERS
from app.models.http import failures
from app.models.http.sse import BOM, MAX_EVENT_BYTES, Event, EventReader, EventTooLarge
from parsing import Thought

MAX_ANSWER_BYTES = 128 * 1024 * 1024  # a chunk needs 300 bytes or more for one token
NO_EVENTS = (b"{", b"[", b"<")  # first bytes of a body that is not a stream; content types are unreliable


class TooManyCalls(ValueError):
    """A reply has more tool calls than any model intends."""


class AnswerStream(ABC):
    """Decoder of one answer: feed it the body, then close it. `url` is for the messages of ProviderFailed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.done = False  # no more data will follow
        self._stopped = ""
        self._body = ResponseBody()
        self._events = EventReader()
        self._eventful = False
        self._aligned = False  # the next byte begins an event
        self.size = 0
        self._start = b""  # as much of the body as an error message shows

    @property
    def whole(self) -> bool:
        """True once the model has given its stop reason; only usage may follow."""
        return self.done or bool(self._stopped)

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Yield the pieces these bytes complete, adjacent text joined. Iterate to the end. Raises ProviderFailed."""
        self.size += len(data)
        if self.size > MAX_ANSWER_BYTES:
            raise failures.too_long(self.url, MAX_ANSWER_BYTES)
        if len(self._start) < failures.EXCERPT:
            self._start += data[: failures.EXCERPT - len(self._start)]
        piece = self._fast_path(data)
        return iter((piece,)) if piece else joined(self._feed(data))

    def offer(self, take_text: TakeText, data: bytes) -> bool:
        """Offer the text of these bytes if that is clear without decoding them; return False if it was not taken.

        It is clear only behind a piece of the same kind that `feed` has decoded. A long one is left to `feed`: between
        its parts others get their turns.
        """
        size = self.size + len(data)
        if size > MAX_ANSWER_BYTES or not (text := self._fast_path(data)) or len(text.text) > CHARACTERS:
            return False
        if not take_text(text):
            return False
        self.size = size
        return True

    def _fast_path(self, _: bytes) -> TextChunk | Thought | None:
        """Fast path: return the text of these bytes if it is clear without decoding events."""
        return None

    def close(self) -> list[Piece]:
        """Return the pieces that were held until the end. Raises ProviderFailed if the answer is incomplete."""
        try:
            return list(joined(self._close()))
        except EventTooLarge as error:
            raise failures.too_long(self.url, MAX_EVENT_BYTES) from error
        except TooManyCalls as error:
            raise self._too_many_calls(error) from error

    @abstractmethod
    def _close(self) -> list[Piece]:
        """Return the last pieces. Raises ProviderFailed, TooManyCalls."""

    @abstractmethod
    def _read_event(self, event: Event) -> Iterator[Piece]:
        """Decode one event. Raises ProviderFailed, TooManyCalls."""

    def _feed(self, data: bytes) -> Iterator[Piece]:
        try:
            for event in self._events.feed(self._body.events(data)):
                yield from self._read_event(event)
            self._aligned = self._events.between and not self.done
        except EventTooLarge as error:
            raise failures.too_long(self.url, MAX_EVENT_BYTES) from error
        except TooManyCalls as error:
            raise self._too_many_calls(error) from error

    def _too_many_calls(self, error: TooManyCalls) -> ProviderFailed:
        return failures.garbled(self.url, "an answer with too many calls", str(error))

    def _broken(self, why: str) -> ProviderFailed:
        """Return the failure of an incomplete answer: it was not a stream, or it broke off."""
        if self._start.strip() and not self._eventful:
            text = self._start.decode("utf-8", "replace")
            return failures.not_a_model(self.url, "something that is not a stream", text)
        return failures.interrupted(self.url, why)


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join adjacent text pieces: one read costs one event, without waiting for more."""
    kind: type[TextChunk] | type[Thought] = TextChunk
    texts: list[str] = []  # of one kind
    try:
        for piece in pieces:
            if texts and type(piece) is not kind:
                yield kind("".join(texts))
                texts.clear()
            if isinstance(piece, TextChunk | Thought):
                kind = type(piece)
                texts.append(piece.text)
            else:
                yield piece
    except ProviderFailed:
        if texts:
            yield kind("".join(texts))  # text before a failure was received all the same
        raise
    if texts:
        yield kind("".join(texts))


class ResponseBody:
    """A body as it arrives. `streamed` is None before the first character; `held` collects a body that is no stream."""

    def __init__(self) -> None:
        self.held = bytearray()
        self.streamed: bool | None = None

    @property
    def whole(self) -> str:
        """The text of a body that is not a stream; empty for a stream."""
        return "" if self.streamed else self.held.decode("utf-8", "replace")

    def events(self, data: bytes) -> bytes:
        """Return the bytes that belong to the event stream. Raises EventTooLarge."""
        if self.streamed:
            return data
        self.held += data
        if self.streamed is None:
            return self._detect()
        if len(self.held) > MAX_EVENT_BYTES:
            raise EventTooLarge(f"a body that is no stream is longer than {MAX_EVENT_BYTES} bytes")
        return b""

    def _detect(self) -> bytes:
        text = bytes(self.held).removeprefix(BOM).lstrip()
        if not text or BOM.startswith(text):
            self.held = bytearray(text)  # drops blank lines, which some servers send as keep-alive for half an hour
            return b""
        self.streamed = not text.startswith(NO_EVENTS)
        self.held = bytearray(b"" if self.streamed else text)
        return text if self.streamed else b""

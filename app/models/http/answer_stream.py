"""One streamed answer, from bytes to events: what all wire formats share. Sans-IO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from app.core.provider import Piece, ProviderFailed, TextChunk
from app.models.http import failures
from app.models.http.body import ResponseBody
from app.models.http.sse import MAX_EVENT_BYTES, Event, EventReader, EventTooLarge
from parsing import Thought

MAX_ANSWER_BYTES = 128 * 1024 * 1024  # a chunk frames one token in 300 bytes or more


class TooManyCalls(ValueError):
    """A reply has more tool calls than any model intends."""


class AnswerStream(ABC):
    """Feed it the body of a 200 answer, then close it. `url` is for the messages of ProviderFailed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.done = False  # nothing more will come
        self._stopped = ""
        self._body = ResponseBody()
        self._events = EventReader()
        self._eventful = False
        self._size = 0
        self._start = b""  # as much of the body as a message would show

    @property
    def whole(self) -> bool:
        """The model has said why it stopped: what may still come is usage."""
        return self.done or bool(self._stopped)

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that these bytes complete, neighbouring text joined: iterate to the end. Raises ProviderFailed."""
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            raise failures.too_long(self.url, MAX_ANSWER_BYTES)
        if len(self._start) < failures.EXCERPT:
            self._start += data[: failures.EXCERPT - len(self._start)]
        known = self._known(data)
        return iter((known,)) if known else joined(self._feed(data))

    def _known(self, _: bytes) -> TextChunk | Thought | None:
        """What these bytes say, if that can be told without reading them as events."""
        return None

    def close(self) -> list[Piece]:
        """The pieces that were held until the end. Raises ProviderFailed if the answer is not whole."""
        try:
            return list(joined(self._close()))
        except EventTooLarge as error:
            raise failures.too_long(self.url, MAX_EVENT_BYTES) from error
        except TooManyCalls as error:
            raise self._too_many_calls(error) from error

    @abstractmethod
    def _close(self) -> list[Piece]:
        """Raises ProviderFailed, TooManyCalls."""

    @abstractmethod
    def _read_event(self, event: Event) -> Iterator[Piece]:
        """Raises ProviderFailed, TooManyCalls."""

    def _feed(self, data: bytes) -> Iterator[Piece]:
        try:
            for event in self._events.feed(self._body.events(data)):
                yield from self._read_event(event)
        except EventTooLarge as error:
            raise failures.too_long(self.url, MAX_EVENT_BYTES) from error
        except TooManyCalls as error:
            raise self._too_many_calls(error) from error

    def _too_many_calls(self, error: TooManyCalls) -> ProviderFailed:
        return failures.garbled(self.url, "an answer with too many calls", str(error))

    def _broken(self, why: str) -> ProviderFailed:
        """Of an answer that is not whole: it was no stream at all, or it broke off."""
        if self._start.strip() and not self._eventful:
            said = self._start.decode("utf-8", "replace")
            return failures.not_a_model(self.url, "something that is not a stream", said)
        return failures.interrupted(self.url, why)


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Neighbouring text as one piece: what one read brought costs one event, without waiting for more."""
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
            yield kind("".join(texts))  # what came before a failure was said all the same
        raise
    if texts:
        yield kind("".join(texts))

"""Incremental decoder of server-sent events: sans-IO, one pass, bounded memory."""

from __future__ import annotations

from msgspec import Struct

from tools.base.patterns import lazy_pattern

MAX_EVENT_BYTES = 8 * 1024 * 1024  # twice the longest answer, because characters may be escaped
BOM = b"\xef\xbb\xbf"
LINE_END = lazy_pattern(rb"\r\n|\n|\r")


class EventTooLarge(ValueError):
    """A line or an event exceeds the reader's bound."""


class Event(Struct, frozen=True):
    """One event; `event` is `message` by default."""

    data: str
    event: str = "message"


class EventReader:
    """Decode bytes into complete events.

    More tolerant than the standard (https://html.spec.whatwg.org/multipage/server-sent-events.html), as servers need
    it: an `error:` field (older llama.cpp) is an event of that name, a JSON object on a line of its own (Ollama's
    errors) is data, and the last event needs no blank line (`close` returns it). Invalid UTF-8 becomes U+FFFD. Raises
    EventTooLarge.
    """

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._partial: list[bytes] = []  # fragments of the current line, joined once at its end
        self._data: list[str] = []
        self._event = ""
        self._held = 0
        self._first_line = True
        self._after_cr = False

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        *lines, rest = LINE_END.split(data) if b"\r" in data else data.split(b"\n")
        events = [event for line in lines if (event := self._end_line(line))]
        self._hold(rest)
        return events

    @property
    def between(self) -> bool:
        """True between events: the next byte begins a new one."""
        return not (self._partial or self._data or self._event or self._after_cr)

    def close(self) -> list[Event]:
        """Return the last event if the stream ended without its blank line."""
        last = self._end_line(b"") if self._partial else None
        return [event for event in (last, self._dispatch()) if event]

    def _hold(self, part: bytes) -> None:
        if not part:
            return
        self._count(len(part))
        self._partial.append(part)

    def _count(self, size: int) -> None:
        self._held += size
        if self._held > self._max_bytes:
            raise EventTooLarge(f"one event is longer than {self._max_bytes} bytes")

    def _end_line(self, end: bytes) -> Event | None:
        self._count(len(end))
        line = b"".join((*self._partial, end)) if self._partial else end
        self._partial.clear()
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(BOM)
        if not line:
            return self._dispatch()
        name, _, value = (b"data", b":", line) if line.startswith(b"{") else line.partition(b":")
        self._take(name, value.removeprefix(b" ").decode("utf-8", "replace"))
        return None

    def _take(self, name: bytes, value: str) -> None:
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._event = value
            case b"error":
                self._event = "error"
                self._data.append(value)
            case _:
                pass  # comments (no name), ids and retry times do not matter to a single request

    def _dispatch(self) -> Event | None:
        event = Event("\n".join(self._data), self._event or "message") if self._data else None
        self._data.clear()
        self._event = ""
        self._held = 0
        return event

"""What the body of an answer is: a stream of events, or JSON or a page, which can only be read whole."""

from __future__ import annotations

from app.providers.sse import BOM, MAX_EVENT_BYTES, EventTooLarge

NO_EVENTS = (b"{", b"[", b"<")  # how no stream of events begins; content types do not tell


class Body:
    """`held` is all of a body that is no stream."""

    def __init__(self) -> None:
        self.held = bytearray()
        self._streamed: bool | None = None

    def events(self, data: bytes) -> bytes:
        """What of these bytes is for a reader of events. Raises EventTooLarge."""
        if self._streamed:
            return data
        self.held += data
        if self._streamed is None:
            return self._recognised()
        if len(self.held) > MAX_EVENT_BYTES:
            raise EventTooLarge(f"a body that is no stream is longer than {MAX_EVENT_BYTES} bytes")
        return b""

    def _recognised(self) -> bytes:
        visible = bytes(self.held).removeprefix(BOM).lstrip()
        if not visible or BOM.startswith(visible):
            self.held = bytearray(visible)  # not more: blank lines keep a connection awake for long
            return b""
        self._streamed = not visible.startswith(NO_EVENTS)
        if not self._streamed:
            return b""
        self.held.clear()
        return visible

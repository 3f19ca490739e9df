"""Detect whether a response body is an event stream, or JSON or HTML that must be read as a whole (sans-IO)."""

from __future__ import annotations

from app.models.http.sse import BOM, MAX_EVENT_BYTES, EventTooLarge

NO_EVENTS = (b"{", b"[", b"<")  # first bytes of a body that is not a stream; content types are unreliable


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

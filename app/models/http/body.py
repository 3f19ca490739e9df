"""What the body of an answer is: a stream of events, or JSON or a page, which can only be read whole: sans-IO."""

from __future__ import annotations

from app.models.http.sse import BOM, MAX_EVENT_BYTES, EventTooLarge

NO_EVENTS = (b"{", b"[", b"<")  # how no stream of events begins; content types do not tell


class ResponseBody:
    """`streamed` is None until its first character has told; `held` is all of a body that is no stream."""

    def __init__(self) -> None:
        self.held = bytearray()
        self.streamed: bool | None = None

    @property
    def whole(self) -> str:
        """The text of a body that is no stream; empty for one that is."""
        return "" if self.streamed else self.held.decode("utf-8", "replace")

    def events(self, data: bytes) -> bytes:
        """What of these bytes is for a reader of events. Raises EventTooLarge."""
        if self.streamed:
            return data
        self.held += data
        if self.streamed is None:
            return self._recognised()
        if len(self.held) > MAX_EVENT_BYTES:
            raise EventTooLarge(f"a body that is no stream is longer than {MAX_EVENT_BYTES} bytes")
        return b""

    def _recognised(self) -> bytes:
        visible = bytes(self.held).removeprefix(BOM).lstrip()
        if not visible or BOM.startswith(visible):
            self.held = bytearray(visible)  # not more: blank lines keep a connection awake for half an hour
            return b""
        self.streamed = not visible.startswith(NO_EVENTS)
        self.held = bytearray(b"" if self.streamed else visible)
        return visible if self.streamed else b""

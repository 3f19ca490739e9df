"""Incremental parser of one HTTP/1.1 response, sans-IO."""

from __future__ import annotations

import httptools
import httpx2
from msgspec import Struct, field

MOST_FRAMING = 128 * 1024  # consecutive bytes that are not body: heads, 1xx responses, trailers
INFORMATIONAL = range(100, 200)
SWITCHING = 101
BODILESS = (204, 304)
# Harmless errors of servers: there is no second reader of these bytes that could be misled.
LENIENT = {"lenient_chunked_length": True, "lenient_optional_cr_before_lf": True, "lenient_data_after_close": True}


class Head(Struct):
    """Status line and headers of a response."""

    status: int = 0
    reason: bytes = b""
    version: str = ""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    @property
    def has_length(self) -> bool:
        """True if the headers delimit the body; else it ends with the connection."""
        names = {name.lower(): value.lower() for name, value in self.headers}
        coding = names.get(b"transfer-encoding")
        framed = b"content-length" in names if coding is None else coding.endswith(b"chunked")
        return framed or self.status in BODILESS


class Incoming:
    """Parser state: `feed` it bytes, `end` it at the end of the stream, `take` the body received since the last call.

    `failure` is to be raised once the bytes before it are taken. `keeps`: the connection can be reused. `headless`: the
    response has no body (HEAD), whatever its headers say.
    """

    def __init__(self, *, headless: bool = False) -> None:
        self.head = Head()
        self.started = False  # the head is complete
        self.complete = False
        self.keeps = False
        self.failure: httpx2.TransportError | None = None
        self.held = 0  # bytes of body not taken yet
        self._blocks: list[bytes] = []
        self._framing = 0
        self._headless = headless
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**LENIENT)

    def feed(self, data: bytes) -> None:
        if self.complete or self.failure:
            self.keeps = self.keeps and not data  # data after the end of the response
            return
        self._framing += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.keeps = False
        except httptools.HttpParserError as error:
            self.fail(httpx2.RemoteProtocolError(str(error)))
        if self._framing > MOST_FRAMING:
            self.fail(httpx2.RemoteProtocolError(f"more than {MOST_FRAMING} bytes of headers"))
        if self.complete or self.failure:
            self.release()

    def end(self) -> None:
        """Handle the end of the stream."""
        if not self.started:
            self.fail(httpx2.RemoteProtocolError("Server disconnected without sending a response."))
        elif self.complete or self.head.has_length:
            self.fail(httpx2.RemoteProtocolError("Server disconnected before the end of its answer."))
        else:
            self.complete = True
        self.keeps = False
        self.release()

    def release(self) -> None:
        """Let the parser go, which holds methods of this object: garbage that only the collector would find."""
        self.__dict__.pop("_parser", None)

    def fail(self, failure: httpx2.TransportError) -> None:
        """Record a failure; after a complete response it only prevents reuse of the connection."""
        self.keeps = False
        if not self.complete and self.failure is None:
            self.failure = failure

    def take(self) -> bytes:
        blocks, self._blocks, self.held = self._blocks, [], 0
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def put_back(self, block: bytes) -> None:
        """Undo `take`."""
        self._blocks, self.held = [block], len(block)

    # --- httptools callbacks ---

    def on_message_begin(self) -> None:
        if self.complete:
            self.keeps = False

    def on_status(self, reason: bytes) -> None:
        if not self.started:
            self.head.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.started:  # else it is a trailer
            self.head.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.started:
            return
        self.head.status, self.head.version = self._parser.get_status_code(), self._parser.get_http_version()
        self.started = self.head.status not in INFORMATIONAL or self.head.status == SWITCHING
        self.complete = self.started and self._headless

    def on_body(self, block: bytes) -> None:
        self._framing = 0
        if not self.complete:
            self._blocks.append(block)
            self.held += len(block)

    def on_message_complete(self) -> None:
        if not self.started:
            self.head = Head()  # an informational response: the final one follows
        elif not self.complete:
            self.complete, self.keeps = True, self._parser.should_keep_alive()

"""One answer of HTTP/1.1 as its bytes come in: sans-IO."""

from __future__ import annotations

from dataclasses import dataclass, field

import httptools
import httpx2

MOST_FRAMING = 128 * 1024  # bytes in a row that are not body: heads, 1xx answers, trailers
INFORMATIONAL = range(100, 200)
SWITCHING = 101
BODILESS = (204, 304)
# What people's servers do wrong without harm, because no other reader of the same bytes could be misled.
LENIENT = {"lenient_chunked_length": True, "lenient_optional_cr_before_lf": True, "lenient_data_after_close": True}


@dataclass(slots=True)
class Head:
    """The first lines of an answer."""

    status: int = 0
    reason: bytes = b""
    version: str = ""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    @property
    def has_length(self) -> bool:
        """Whether the end of the body shows; else the connection ends with it."""
        names = {name.lower(): value.lower() for name, value in self.headers}
        coding = names.get(b"transfer-encoding")
        framed = b"content-length" in names if coding is None else coding.endswith(b"chunked")
        return framed or self.status in BODILESS


class Incoming:
    """`feed` it bytes, `end` it when there are no more; `take` gives what has come of the body since the last time.

    `failure` is for after what came before it has been taken. `keeps`: the server would take another request.
    `headless`: the answer has no body, whatever its head says.
    """

    def __init__(self, *, headless: bool = False) -> None:
        self.head = Head()
        self.begun = False  # its head is there
        self.complete = False
        self.keeps = False
        self.failure: httpx2.TransportError | None = None
        self.held = 0  # bytes that nobody has taken yet
        self._blocks: list[bytes] = []
        self._framing = 0
        self._headless = headless
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**LENIENT)

    def feed(self, data: bytes) -> None:
        if self.complete or self.failure:
            self.keeps = self.keeps and not data  # nobody asked for more
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

    def end(self) -> None:
        """The server will say no more."""
        if not self.begun:
            self.fail(httpx2.RemoteProtocolError("Server disconnected without sending a response."))
        elif self.complete or self.head.has_length:
            self.fail(httpx2.RemoteProtocolError("Server disconnected before the end of its answer."))
        else:
            self.complete = True
        self.keeps = False

    def fail(self, failure: httpx2.TransportError) -> None:
        """An answer that is whole stays so; what is wrong behind it only ends the connection."""
        self.keeps = False
        if not self.complete and self.failure is None:
            self.failure = failure

    def take(self) -> bytes:
        blocks, self._blocks, self.held = self._blocks, [], 0
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    # --- what the parser tells ---

    def on_message_begin(self) -> None:
        if self.complete:
            self.keeps = False

    def on_status(self, reason: bytes) -> None:
        if not self.begun:
            self.head.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.begun:  # else it is a trailer
            self.head.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.begun:
            return
        self.head.status, self.head.version = self._parser.get_status_code(), self._parser.get_http_version()
        self.begun = self.head.status not in INFORMATIONAL or self.head.status == SWITCHING
        self.complete = self.begun and self._headless

    def on_body(self, block: bytes) -> None:
        self._framing = 0
        if not self.complete:
            self._blocks.append(block)
            self.held += len(block)

    def on_message_complete(self) -> None:
        if not self.begun:
            self.head = Head()  # that was an informational one: the answer is still to come
        elif not self.complete:
            self.complete, self.keeps = True, self._parser.should_keep_alive()

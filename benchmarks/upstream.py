"""A model server that does nothing but stream: a raw protocol, so that it costs little beside what is measured.

python -m benchmarks.upstream: prints its port. The request's text says what is streamed (`order`): BURST KB at once,
then TOKENS tokens at RATE a second (0: as fast as the reader takes them), the first of them at once and each in a
write of its own. A token's text is the time it was sent, in microseconds of the monotonic clock. Answers are chunked
and connections kept alive, as real servers do it.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from typing import cast

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = (
    'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench",'
    '"choices":[{"index":0,"delta":{"content":"%d "},"finish_reason":null}]}\n\n'
)
END = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    b"data: [DONE]\n\n"
)
LAST_CHUNK = b"0\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"
PER_WRITE = 8  # tokens a fast server puts into one write
ORDER = re.compile(rb"tokens=(\d+) rate=(\d+) burst=(\d+)")
CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def order(tokens: int, rate: int, burst: int = 0) -> str:
    """The user's message that makes the upstream stream this."""
    return f"go tokens={tokens} rate={rate} burst={burst}"


def now_us() -> int:
    return time.monotonic_ns() // 1000


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Answers(asyncio.Protocol):
    """One connection: a request comes, its answer goes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._request = b""
        self._left = self._rate = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._paused, self._keeps = False, True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of its class

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, found, body = self._request.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not found or len(body) < int(length[1] if length else 0):
            return
        self._request, self._keeps = b"", not CLOSE.search(head)
        if wanted := ORDER.search(body):
            self._answer(*map(int, wanted.groups()))
        else:
            self._transport.write(NOT_FOUND)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._left and not self._rate:
            self._pour()

    def connection_lost(self, exc: Exception | None) -> None:
        self._left = 0
        if self._timer:
            self._timer.cancel()

    def _answer(self, tokens: int, rate: int, burst: int) -> None:
        self._transport.write(HEAD)
        if burst:
            self._transport.write(chunked(CHUNK.replace("%d", "x" * 1000).encode() * burst))
        self._left, self._rate, self._due = tokens, rate, self._loop.time()
        if rate:
            self._send_one()
        else:
            self._pour()

    def _send_one(self) -> None:
        self._left -= 1
        self._transport.write(chunked((CHUNK % now_us()).encode()))
        if self._left:
            self._due += 1 / self._rate
            self._timer = self._loop.call_at(self._due, self._send_one)
        else:
            self._end()

    def _pour(self) -> None:
        while self._left and not self._paused:
            count = min(self._left, PER_WRITE)
            self._left -= count
            self._transport.write(chunked((CHUNK % now_us()).encode() * count))
        if not self._left:
            self._end()

    def _end(self) -> None:
        self._transport.write(chunked(END) + LAST_CHUNK)
        if not self._keeps:
            self._transport.close()


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answers, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        uvloop.run(main())

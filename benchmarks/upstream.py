"""A model server that does nothing but stream: a raw protocol, so that it costs little beside what is measured.

python -m benchmarks.upstream TOKENS RATE [BURST]: prints its port; every answer has BURST KB at once, then TOKENS
tokens at RATE a second (0: as fast as the reader takes them). A token's text is the time it was sent, in microseconds
of the monotonic clock. Answers are chunked and connections kept alive, as real servers do it.
"""

from __future__ import annotations

import asyncio
import sys
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
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"
PER_WRITE = 8  # tokens a fast server puts into one write


def now_us() -> int:
    return time.monotonic_ns() // 1000


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Answers(asyncio.Protocol):
    """One connection: a request comes, its answer goes."""

    def __init__(self, tokens: int, rate: float, burst: int) -> None:
        self._tokens, self._rate, self._burst = tokens, rate, burst
        self._loop = asyncio.get_running_loop()
        self._head = b""
        self._left = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of its class

    def data_received(self, data: bytes) -> None:
        self._head += data
        head, found, body = self._head.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
        if not found or len(body) < length:
            return
        self._head = b""
        if not head.startswith(b"POST"):
            self._transport.write(NOT_FOUND)
            return
        self._transport.write(HEAD)
        if self._burst:
            self._transport.write(chunked(CHUNK.replace("%d", "x" * 1000).encode() * self._burst))
        self._left, self._due = self._tokens, self._loop.time()
        if self._rate:
            self._wait()
        else:
            self._pour()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._left:
            self._pour()

    def connection_lost(self, exc: Exception | None) -> None:
        self._left = 0
        if self._timer:
            self._timer.cancel()

    def _wait(self) -> None:
        self._due += 1 / self._rate
        self._timer = self._loop.call_at(self._due, self._one)

    def _one(self) -> None:
        self._left -= 1
        self._transport.write(chunked((CHUNK % now_us()).encode()))
        if self._left:
            self._wait()
        else:
            self._end()

    def _pour(self) -> None:
        while self._left and not self._paused:
            self._left = max(0, self._left - PER_WRITE)
            self._transport.write(chunked((CHUNK % now_us()).encode() * PER_WRITE))
        if not self._left:
            self._end()

    def _end(self) -> None:
        self._transport.write(chunked(END) + b"0\r\n\r\n")


async def main() -> None:
    tokens, rate, burst = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answers(tokens, rate, burst), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        uvloop.run(main())

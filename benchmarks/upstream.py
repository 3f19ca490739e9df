"""A model server that does nothing but stream: raw asyncio, so that it costs little beside what is measured.

python -m benchmarks.upstream TOKENS RATE [BURST]: prints its port; every answer has BURST KB at once, then TOKENS
tokens at RATE a second (0: as fast as the reader takes them). A token's text is the time it was sent, in microseconds
of the monotonic clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
CHUNK = (
    'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench",'
    '"choices":[{"index":0,"delta":{"content":"%d "},"finish_reason":null}]}\n\n'
)
END = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    b"data: [DONE]\n\n"
)
PER_WRITE = 8  # tokens a fast server puts into one write


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tokens: int, rate: float, burst: int
) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
        await reader.readexactly(length)
        writer.write(HEAD)
        writer.write(CHUNK.replace("%d", "x" * 1000).encode() * burst)
        await (paced if rate else flat_out)(writer, tokens, rate)
        writer.write(END)
        await writer.drain()
    writer.close()


async def paced(writer: asyncio.StreamWriter, tokens: int, rate: float) -> None:
    due = time.monotonic()
    for _ in range(tokens):
        due += 1 / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        writer.write((CHUNK % (time.monotonic() * 1e6)).encode())
        await writer.drain()


async def flat_out(writer: asyncio.StreamWriter, tokens: int, _rate: float) -> None:
    for _ in range(0, tokens, PER_WRITE):
        writer.write((CHUNK % (time.monotonic() * 1e6)).encode() * PER_WRITE)
        await writer.drain()


async def main() -> None:
    tokens, rate, burst = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    server = await asyncio.start_server(lambda r, w: answer(r, w, tokens, rate, burst), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())

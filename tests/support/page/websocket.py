"""A WebSocket client (RFC 6455) for the text messages of WebDriver BiDi, which comes on loopback only."""

from __future__ import annotations

import asyncio
import base64
import os
from itertools import cycle

LAST = MASKED = 0x80  # bits of the first and the second byte
TEXT, PONG = 1, 10
SHORT, LONG = 126, 127  # say that two or eight bytes of the length follow
FIRST_LONG = 65_536


class WebSocket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int, path: str) -> WebSocket:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            *(f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: Upgrade", "Upgrade: websocket"),
            *(f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""),
        )
        writer.write("\r\n".join(lines).encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(answer.decode(errors="replace"))
        return cls(reader, writer)

    def send(self, text: str) -> None:
        self._frame(TEXT, text.encode())

    async def receive(self) -> str:
        """Return the next message. Raises EOFError when the connection has ended."""
        message = b""
        while True:
            head, size = await self._reader.readexactly(2)
            if size >= SHORT:
                size = int.from_bytes(await self._reader.readexactly(2 if size == SHORT else 8), "big")
            data = await self._reader.readexactly(size)
            match head & 0x0F:
                case 0 | 1:  # a continuation, a text
                    message += data
                    if head & LAST:
                        return message.decode()
                case 9:  # a ping
                    self._frame(PONG, data)
                case 8:  # the end
                    raise EOFError("the browser has closed the connection")

    def close(self) -> None:
        self._writer.close()

    def _frame(self, kind: int, data: bytes) -> None:
        size, mask = len(data), os.urandom(4)
        if size < SHORT:
            head = bytes((LAST | kind, MASKED | size))
        elif size < FIRST_LONG:
            head = bytes((LAST | kind, MASKED | SHORT)) + size.to_bytes(2, "big")
        else:
            head = bytes((LAST | kind, MASKED | LONG)) + size.to_bytes(8, "big")
        self._writer.write(head + mask + bytes(one ^ other for one, other in zip(data, cycle(mask))))

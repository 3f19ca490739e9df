"""Run a program whose network is loopback alone, with one port that leads out to a Unix socket of the tests.

In the program's sandbox: `python loopback.py PORT SOCKET COMMAND...`; it ends with the command's exit code.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

BLOCK = 1 << 16


async def pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(BLOCK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def join(left: tuple[StreamReader, StreamWriter], right: tuple[StreamReader, StreamWriter]) -> None:
    """Both directions; one that closes closes the other."""
    await asyncio.gather(pump(left[0], right[1]), pump(right[0], left[1]))


@asynccontextmanager
async def leading_to(port: int, path: Path) -> AsyncGenerator[None, None]:
    """The outer end: connections to the socket go to the port."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        await join((reader, writer), await asyncio.open_connection("localhost", port))

    async with await asyncio.start_unix_server(serve, path):
        yield


async def main(port: int, path: Path, *command: str) -> int:
    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        await join((reader, writer), await asyncio.open_unix_connection(path))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    code = await process.wait()
    server.close()
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])))

"""Waits for programs that listen on loopback."""

from __future__ import annotations

import asyncio


async def listens(process: asyncio.subprocess.Process, port: int) -> bool:
    """Return True once the process listens; False if it has ended before."""
    while process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0)
            continue
        writer.close()
        return True
    return False

"""The proxy process: from the socket that the box hands out to the end of the box, and the final report."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tools.sandbox.network.proxy import MAX_HEAD, Proxy
from tools.sandbox.network.rules import Rules


def serve(rules: Mapping[str, Any], channel: socket.socket, sandbox: int) -> None:
    """Serve until `sandbox`, a pidfd, says that the box has ended. It may end before it has handed out anything."""
    _, handles, _, _ = socket.recv_fds(channel, 1, 1)
    channel.close()
    if handles:
        listener = socket.socket(fileno=handles[0])
        proxy = Proxy(Rules(**{name: tuple(values) for name, values in rules.items()}))
        asyncio.run(_serve(proxy, listener, sandbox))


async def _serve(proxy: Proxy, listener: socket.socket, sandbox: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sandbox, ended.set)
    server = await asyncio.start_server(proxy, sock=listener, limit=MAX_HEAD)
    await ended.wait()
    server.close()
    # Before anything else, and then at once: the command has ended, and its output is read for a moment only.
    with suppress(OSError):
        print(*(f"\n{note}" for note in proxy.notes()), sep="", end="", flush=True)
    os._exit(0)

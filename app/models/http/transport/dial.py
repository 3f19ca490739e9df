"""A connection to a host, whichever of its addresses answers first."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, zip_longest
from typing import Any, TypeVar

import httpx2
from msgspec import Struct

STAGGER_S = 0.25  # before the next address is tried beside one that has not answered

P = TypeVar("P", bound=asyncio.BaseProtocol)
Address = tuple[Any, ...]  # family, type, protocol, canonical name, where


class Origin(Struct, frozen=True):
    """The far end of a connection; `tls` has the rules for the server, and `name` the one to verify."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    name: str | None


async def dial(origin: Origin, new: Callable[[], P], limit_s: float | None) -> P:
    """Raises ConnectError and ConnectTimeout."""
    try:
        async with asyncio.timeout(limit_s):
            return await _dial(origin, new)
    except TimeoutError as error:
        raise httpx2.ConnectTimeout("") from error
    except (OSError, UnicodeError) as error:  # a TLS failure is an OSError, too; a name may be none
        raise httpx2.ConnectError(str(error)) from error


async def _dial(origin: Origin, new: Callable[[], P]) -> P:
    loop = asyncio.get_running_loop()
    if _is_address(origin.host):
        _, protocol = await loop.create_connection(
            new, origin.host, origin.port, ssl=origin.tls, server_hostname=origin.name
        )
        return protocol
    found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    sock = await first_answer(found)
    try:
        _, protocol = await loop.create_connection(new, sock=sock, ssl=origin.tls, server_hostname=origin.name)
    except BaseException:
        sock.close()
        raise
    return protocol


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def first_answer(found: Iterable[Address]) -> socket.socket:
    """Connect to the first address that answers, alternating address families (RFC 8305). Raises OSError."""
    waiting = deque(_alternating(found))
    under_way = set[asyncio.Task[socket.socket]]()
    failure: BaseException = OSError("the name has no address")
    try:
        while waiting or under_way:
            if waiting:
                under_way.add(asyncio.create_task(_answer(waiting.popleft())))
            done, _ = await asyncio.wait(
                under_way, timeout=STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                under_way.discard(task)
                if (failed := task.exception()) is None:
                    return task.result()
                failure = failed
    finally:
        for task in under_way:
            task.add_done_callback(_dropped)
            task.cancel()
    raise failure


async def _answer(address: Address) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _dropped(task: asyncio.Task[socket.socket]) -> None:
    """Close a socket that connected after another one had won."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _alternating(found: Iterable[Address]) -> Iterable[Address]:
    families: dict[int, list[Address]] = {}
    for address in found:
        families.setdefault(address[0], []).append(address)
    return (address for address in chain.from_iterable(zip_longest(*families.values())) if address)

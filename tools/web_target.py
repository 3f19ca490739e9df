"""Where a URL leads: who is meant, and the public addresses to connect to. A name is looked up once only."""

from __future__ import annotations

import asyncio
import operator
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpx2

from tools.addresses import Address, is_global, is_named, own_addresses
from tools.tool import ToolFailed
from tools.visible import visible

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]

_PORTS = {"http": 80, "https": 443}
_OTHER_SERVICES_BELOW = 1024
_TRIED = 4
_SHOWN = 200
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL whose host was looked up and found to be allowed, with the addresses to connect to."""

    url: httpx2.URL
    host: str
    addresses: tuple[Address, ...]


async def resolve(host: str, port: int) -> list[Address]:
    """What the system's resolver says, each address once. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(address[0]) for *_, address in found))


def shown(url: object) -> str:
    """A URL for a message: a stranger may have written it, at any length."""
    text = visible(str(url))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def parsed(written: str) -> httpx2.URL:
    """A URL that may be followed as far as its spelling tells. Raises ToolFailed."""
    try:
        url = httpx2.URL(written.strip())
    except httpx2.InvalidURL as error:
        raise ToolFailed(f"{shown(written)} is not a URL ({error}): write it as https://example.com/page.") from error
    if url.scheme not in _PORTS or not url.host:
        raise ToolFailed(f"{shown(written)} is not a web address: write it in full, as https://example.com/page.")
    if url.port is not None and not 0 < url.port < 65_536:
        raise ToolFailed(f"Port {url.port} does not exist: use a URL without a port, or with one from 1024 to 65535.")
    if url.userinfo:
        raise ToolFailed("The URL has a user name or a password: leave out what stands before the @.")
    return url


def same_origin(url: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether both are of one site: the same scheme, host and port; or the second is the first, encrypted."""
    if _host(url) != _host(other):
        return False
    ports = [one.port or _PORTS[one.scheme] for one in (url, other)]
    if url.scheme == other.scheme:
        return ports[0] == ports[1]
    return other.scheme == "https" and ports == list(_PORTS.values())


async def target(
    url: httpx2.URL,
    private_hosts: Sequence[str],
    resolve: Resolve,
    own_addresses: Callable[[], Collection[Address]] = own_addresses,
) -> Target:
    """Look up the host, once, and check every address. Raises ToolFailed."""
    host, port = _host(url), url.port or _PORTS[url.scheme]
    literal = _literal(host)
    try:
        addresses = [literal] if literal else await resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise ToolFailed(f"There is no host {shown(host)}: check the name, or try another address.") from error
    own = own_addresses()
    named = [is_named(private_hosts, host, port, one) for one in addresses]
    public = (is_global(one) and one not in own for one in addresses)
    if not addresses or not all(map(operator.or_, named, public)):
        raise ToolFailed(
            f"{shown(host)} is not on the public internet, and web_fetch reaches nothing else. Use a public address; "
            "whoever runs this server can allow a private one with the setting private_hosts."
        )
    if port < _OTHER_SERVICES_BELOW and port not in _PORTS.values() and not all(named):
        raise ToolFailed(f"Port {port} is not a web server's: use a URL without a port, or with one from 1024.")
    return Target(url, host, tuple(addresses[:_TRIED]))


def _host(url: httpx2.URL) -> str:
    host = url.raw_host.decode("ascii").lower().removesuffix(".")
    if (":" in host and "%" not in host) or (_NAME.fullmatch(host) and len(host) < 254):
        return host
    raise ToolFailed(f"{shown(host)} is not a host name: write it as in https://example.com/page.")


def _literal(host: str) -> Address | None:
    """The address that a host is; None when it is a name. One that is spelled oddly is refused, not guessed at."""
    try:
        if ":" in host:
            return IPv6Address(host)
        return IPv4Address(host) if _NUMBER.fullmatch(host) else None
    except ValueError as error:
        raise ToolFailed(f"{shown(host)} is an address in an odd spelling: write it as 192.0.2.1.") from error

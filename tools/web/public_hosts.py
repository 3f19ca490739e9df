"""The check of outbound hosts: a name is looked up once, and each of its addresses has to be allowed.

One function for all requests that a model can cause: `web_fetch`, MCP servers, and the commands of a sandbox. Light on
imports, for the proxy of each such command.
"""

from __future__ import annotations

import asyncio
import operator
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from tools.base.patterns import lazy_pattern
from tools.web.addresses import Address, is_allowed_private_host, is_global, own_addresses

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
OwnAddresses = Callable[[], Collection[Address]]

WEB_PORTS = frozenset((80, 443))
_OTHER_SERVICES_BELOW = 1024
_TRIED = 4
_NAME = lazy_pattern(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = lazy_pattern(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")


class HostRefused(Exception):
    """A host may not be reached. The message completes "HOST ..."."""


class NoSuchHost(HostRefused):
    """The name has no address."""


class NotPublic(HostRefused):
    """The host is not on the public internet, or is this machine."""


class OtherService(HostRefused):
    """A privileged port that is not allowed."""


async def resolve(host: str, port: int) -> list[Address]:
    """Look a host up with the system's resolver, each address once. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(address[0]) for *_, address in found))


def host_name(written: str) -> str:
    """A host in the one form that it is looked up and compared in. Raises HostRefused."""
    host = written.lower().removesuffix(".")
    if (":" in host and "%" not in host) or (_NAME.fullmatch(host) and len(host) < 254):
        return host
    raise HostRefused("is not a host name: write it as in https://example.com/page")


def literal(host: str) -> Address | None:
    """The address that a host is; None when it is a name. Raises HostRefused: a spelling is refused, not guessed at."""
    try:
        if ":" in host:
            return IPv6Address(host)
        return IPv4Address(host) if _NUMBER.fullmatch(host) else None
    except ValueError as error:
        raise HostRefused("is an address in an odd spelling: write it as 192.0.2.1") from error


async def allowed_addresses(
    host: str,
    port: int,
    private_hosts: Sequence[str],
    resolve: Resolve = resolve,
    own_addresses: OwnAddresses = own_addresses,
    *,
    ports: Collection[int] = WEB_PORTS,
    closed_ports: Collection[int] = (),
) -> tuple[Address, ...]:
    """Look up a host of `host_name`, once; the addresses to connect to. Raises HostRefused.

    All must be public, and not this machine's own, or named by `private_hosts`. `ports` are those below 1024 that may
    be reached. `closed_ports` of this machine, which are the server's own, are never reached.
    """
    address = literal(host)
    try:
        addresses = [address] if address else await resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise NoSuchHost("has no address") from error
    own = own_addresses()
    named = [is_allowed_private_host(private_hosts, host, port, one) for one in addresses]
    public = (is_global(one) and one not in own for one in addresses)
    served = port in closed_ports and any(is_of_this_machine(one, own) for one in addresses)
    if not addresses or served or not all(map(operator.or_, named, public)):
        raise NotPublic("is not on the public internet")
    if port < _OTHER_SERVICES_BELOW and port not in ports and not all(named):
        raise OtherService(f"is not reached at port {port}")
    return tuple(addresses[:_TRIED])


def is_of_this_machine(address: Address, own: Collection[Address]) -> bool:
    """Return whether connecting to it reaches this machine."""
    plain = address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
    return plain in own or plain.is_loopback or plain.is_unspecified

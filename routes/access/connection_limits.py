"""Limits of concurrent connections, in all and per address.

A connection without an authenticated request (a head that does not come, a 401, an idle keep-alive) makes room for a
new one, the oldest first: stalled connections lock no client out. Where all serve requests, a new one is refused.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Protocol

from routes.access.peers import address_of

MOST, MOST_OF_ADDRESS = 4096, 1024
RESERVE = 256  # open files that are no connections: the database, tools, model servers
MOST_FILES = 65_536  # some programs, which tools may start, go through all numbers that they could have open
MOST_LINGERING = 64  # refused connections that are given time to read why


class Connection(Protocol):
    def make_room(self) -> None:
        """Close at once."""


class Connections:
    """The open ones of a server. `exempt` are networks of proxies, through which many clients come."""

    def __init__(self, most: int = MOST, most_of_address: int = MOST_OF_ADDRESS, exempt: Sequence[str] = ()) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._exempt = tuple(map(ip_network, exempt))
        self._clients: dict[Connection, str] = {}
        self._counts: dict[str, int] = {}
        self._spare: dict[Connection, None] = {}  # those that may be closed, the oldest first
        self._spare_of: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def take_in(self, connection: Connection, address: str | None, client: str) -> str | None:
        """Count a new connection; why not, if there is no room. `client` stands for the address."""
        full = self._counts.get(client, 0) >= self._most_of_address and not self._is_exempt(address)
        if full and not self._close_oldest(self._spare_of.get(client, {})):
            return f"{client} has {self._most_of_address:,} connections. Close some, or wait until one has ended."
        if len(self._clients) >= self._most and not self._close_oldest(self._spare):
            return f"The server has {self._most:,} connections, all of them busy. Try again later."
        self._clients[connection] = client
        self._counts[client] = self._counts.get(client, 0) + 1
        self.spare(connection)
        return None

    def hold(self, connection: Connection) -> None:
        """Somebody was let in, and it is at work for them: it is not closed for another."""
        self._spare.pop(connection, None)
        self._spare_of.get(self._clients.get(connection, ""), {}).pop(connection, None)

    def spare(self, connection: Connection) -> None:
        """Nothing is under way on it any more."""
        if (client := self._clients.get(connection)) is not None:
            self._spare[connection] = None
            self._spare_of.setdefault(client, {})[connection] = None

    def let_go(self, connection: Connection) -> None:
        """It has ended."""
        self.hold(connection)
        client = self._clients.pop(connection, None)
        if client is None:
            return
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]
            self._spare_of.pop(client, None)

    def _close_oldest(self, spare: dict[Connection, None]) -> bool:
        oldest = next(iter(spare), None)
        if oldest is None:
            return False
        self.let_go(oldest)
        oldest.make_room()
        return True

    def _is_exempt(self, address: str | None) -> bool:
        found = address_of(address) if self._exempt else None
        return found is not None and any(found in network for network in self._exempt)


def room_for(wanted: int) -> int:
    """Let this process have more files open, and answer how many connections of `wanted` that leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return wanted if soft == resource.RLIM_INFINITY else max(8, min(wanted, soft - RESERVE))

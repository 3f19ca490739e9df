"""One request to a target: to a public address, or to a private one that the operator allows, never further.

The host is looked up once and the address that was checked is connected to. Redirects are not followed, and of an
answer only the status is read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import httpx2
from msgspec import Struct

from app.models.http.exchange import retry_after_s
from tools.base.outcome import ToolFailed
from tools.web.addresses import Address, is_allowed_private_host
from tools.web.bodies import Connect, connect, sent
from tools.web.public_hosts import HostRefused, Resolve, allowed_addresses, host_name, resolve
from tools.web.url_target import PORTS, parsed

TIME_LIMIT_S = 10.0
LONGEST_URL = 2048
T = TypeVar("T")
Read = Callable[[httpx2.Response], Awaitable[T]]
REFUSED = (
    "is not on the public internet; the operator of this server can allow a private host with the setting private_hosts"
)


class UnfitUrl(ValueError):
    """A URL that nothing is sent to. The message says why and what to do."""


class UnfitKeys(ValueError):
    """Keys of a push subscription that no message can be encrypted for."""


class Attempt(Struct, frozen=True):
    """The result of one request: the status of the answer, or why there is none."""

    status: int | None
    error: str = ""
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class Sender:
    """`closed_ports` of this machine are never reached: the server's own."""

    def __init__(
        self,
        private_hosts: Sequence[str],
        closed_ports: Sequence[int] = (),
        *,
        resolve: Resolve = resolve,
        connect: Connect = connect,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self._private_hosts = private_hosts
        self._closed_ports = closed_ports
        self._resolve = resolve
        self._connect = connect
        self._time_limit_s = time_limit_s

    async def check(self, written: str) -> tuple[httpx2.URL, tuple[Address, ...]]:
        """Return the URL, and the addresses to connect to. Raises UnfitUrl."""
        if len(written) > LONGEST_URL:
            raise UnfitUrl(f"The URL is longer than {LONGEST_URL:,} characters.")
        try:
            url = parsed(written)
            port = url.port or PORTS[url.scheme]
            host = host_name(url.raw_host.decode("ascii"))
            closed = self._closed_ports
            found = await allowed_addresses(host, port, self._private_hosts, self._resolve, closed_ports=closed)
        except ToolFailed as failure:
            raise UnfitUrl(str(failure)) from failure
        except HostRefused as error:
            why = REFUSED if "public" in str(error) else str(error)
            raise UnfitUrl(f"The host of the URL {why}.") from error
        named = (is_allowed_private_host(self._private_hosts, host, port, one) for one in found)
        if url.scheme == "http" and not all(named):
            raise UnfitUrl("The URL begins with http: use https. Only hosts of private_hosts may be sent to without.")
        return url, found

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        """Send a request, and return in bounded time."""
        try:
            return await self.exchange("POST", url, headers, body, _attempt)
        except TimeoutError:
            return Attempt(None, f"no answer within {self._time_limit_s:g} s")
        except UnfitUrl as unfit:
            return Attempt(None, str(unfit))
        except (httpx2.HTTPError, ValueError) as error:
            return Attempt(None, f"the request failed: {_reason(error)}")

    async def exchange(
        self, method: str, written: str, headers: Mapping[str, str], body: bytes | None, read: Read[T]
    ) -> T:
        """Return what `read` makes of the answer. Raises UnfitUrl, TimeoutError, httpx2.HTTPError."""
        async with asyncio.timeout(self._time_limit_s):
            url, addresses = await self.check(written)
            request = httpx2.Request(method, url, headers=headers, content=body)
            async with sent(request, addresses, self._connect, httpx2.Timeout(self._time_limit_s)) as response:
                return await read(response)


async def _attempt(response: httpx2.Response) -> Attempt:
    return attempt_of(response)


def attempt_of(response: httpx2.Response) -> Attempt:
    status = response.status_code
    if 200 <= status < 300:
        return Attempt(status)
    words = "it redirects, which is not followed" if response.has_redirect_location else f"it answered {status}"
    return Attempt(status, words, retry_after_s(response.headers, time.time()))


def _reason(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def iso_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

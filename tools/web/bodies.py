"""Connections to the web, requests to checked addresses, and bodies of bounded size."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache

import httpx2

from tools.web.addresses import Address
from tools.web.public_hosts import host_name
from tools.web.url_target import shown

ACCEPT_ENCODING = "gzip, deflate"  # what is unpacked in small steps, so that a bomb is noticed early
_UNPACKED = ("", "identity", "gzip", "x-gzip", "deflate")

Connect = Callable[[], Awaitable[httpx2.AsyncBaseTransport]]


class UnknownPacking(Exception):
    """A body in an encoding that was not requested. The message is its name."""


@cache
def trusted_certificates() -> ssl.SSLContext:
    """The system's certificates, whatever the environment names: read once, because that takes 40 ms."""
    return httpx2.create_ssl_context(trust_env=False)


async def connect() -> httpx2.AsyncBaseTransport:
    """Return a new connection's transport. Never shared: TLS is verified per host, and two may share an address."""
    trusted = await asyncio.to_thread(trusted_certificates)  # the first time reads hundreds of certificates
    return httpx2.AsyncHTTPTransport(verify=trusted, trust_env=False)


@asynccontextmanager
async def sent(
    request: httpx2.Request, addresses: Sequence[Address], connect: Connect, timeout: httpx2.Timeout
) -> AsyncGenerator[httpx2.Response, None]:
    """Send a request to the first of these addresses, which were checked, that can be connected to.

    The name is not looked up again, and redirects are not followed. Raises httpx2.HTTPError.
    """
    url, sni = request.url, {"sni_hostname": host_name(request.url.raw_host.decode("ascii"))}
    async with AsyncExitStack() as stack:
        for last, address in enumerate(addresses, start=1 - len(addresses)):
            client = httpx2.AsyncClient(transport=await connect(), timeout=timeout, trust_env=False)
            stream = (await stack.enter_async_context(client)).stream(
                request.method,
                url.copy_with(host=str(address), fragment=None),
                content=request.content or None,
                headers=request.headers,
                extensions=sni,
                follow_redirects=False,
            )
            try:
                response = await stack.enter_async_context(stream)
                break
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if last == 0 or is_about_tls(error):
                    raise
        yield response


async def read_body(
    response: httpx2.Response, most: int, note: Callable[[int], None] = lambda _: None
) -> tuple[bytes, bool]:
    """Return at most so many decompressed bytes, and whether there were more. Raises UnknownPacking.

    `note` is given the bytes so far.
    """
    packing = response.headers.get("content-encoding", "").strip().lower()
    if packing not in _UNPACKED:
        raise UnknownPacking(packing)
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        note(len(body))
        if len(body) > most:
            return bytes(body[:most]), True
    return bytes(body), False


def reason_of(error: Exception) -> str:
    """Return what an error of a connection says, bounded; its name if it says nothing."""
    return shown(error) or type(error).__name__


def is_about_tls(error: BaseException | None) -> bool:
    while error:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False

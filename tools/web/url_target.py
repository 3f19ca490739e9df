"""Resolution of a URL to its host and the public addresses to connect to. A name is looked up only once."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2
from msgspec import Struct

from tools.base.escape_invisible import visible
from tools.base.outcome import ToolFailed
from tools.base.texts import shortened
from tools.web.addresses import Address, own_addresses
from tools.web.public_hosts import (
    HostRefused,
    NoSuchHost,
    NotPublic,
    OtherService,
    OwnAddresses,
    Resolve,
    allowed_addresses,
    host_name,
)

PORTS = {"http": 80, "https": 443}
_SHOWN = 200


class UrlTarget(Struct, frozen=True):
    """A URL whose host was looked up and found to be allowed, with the addresses to connect to."""

    url: httpx2.URL
    host: str
    addresses: tuple[Address, ...]


def shown(url: object) -> str:
    """Shorten a URL for a message: it is untrusted, and may have any length."""
    return shortened(visible(str(url)), _SHOWN)


def parsed(written: str) -> httpx2.URL:
    """Parse a URL and check its form. Raises ToolFailed."""
    try:
        url = httpx2.URL(written.strip())
    except (httpx2.InvalidURL, UnicodeEncodeError) as error:  # the latter: a lone surrogate in the path
        raise ToolFailed(f"{shown(written)} is not a URL ({error}): write it as https://example.com/page.") from error
    if url.scheme not in PORTS or not url.host:
        raise ToolFailed(f"{shown(written)} is not a web address: write it in full, as https://example.com/page.")
    if url.port is not None and not 0 < url.port < 65_536:
        raise ToolFailed(f"Port {url.port} does not exist: use a URL without a port, or with one from 1024 to 65535.")
    if url.userinfo:
        raise ToolFailed("The URL has a user name or a password: leave out what stands before the @.")
    return url


def same_origin(url: httpx2.URL, other: httpx2.URL) -> bool:
    """Return whether both have the same origin, or the second is the first over https."""
    if _host(url) != _host(other):
        return False
    ports = [one.port or PORTS[one.scheme] for one in (url, other)]
    if url.scheme == other.scheme:
        return ports[0] == ports[1]
    return other.scheme == "https" and ports == list(PORTS.values())


async def target(
    url: httpx2.URL,
    private_hosts: Sequence[str],
    resolve: Resolve,
    own_addresses: OwnAddresses = own_addresses,
) -> UrlTarget:
    """Look up the host, once, and check every address. Raises ToolFailed."""
    port = url.port or PORTS[url.scheme]
    host = _host(url)
    try:
        return UrlTarget(url, host, await allowed_addresses(host, port, private_hosts, resolve, own_addresses))
    except NoSuchHost as error:
        raise ToolFailed(f"There is no host {shown(host)}: check the name, or try another address.") from error
    except NotPublic as error:
        raise ToolFailed(
            f"{shown(host)} is not on the public internet, and web_fetch reaches nothing else. Use a public address; "
            "the operator of this server can allow a private one with the setting private_hosts."
        ) from error
    except OtherService as error:
        raise ToolFailed(
            f"Port {port} is not a web server's: use a URL without a port, or with one from 1024."
        ) from error
    except HostRefused as error:
        raise ToolFailed(f"{shown(host)} {error}.") from error


def _host(url: httpx2.URL) -> str:
    """Raises ToolFailed."""
    written = url.raw_host.decode("ascii")
    try:
        return host_name(written)
    except HostRefused as error:
        raise ToolFailed(f"{shown(written)} {error}.") from error

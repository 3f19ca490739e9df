"""The hosts that a text may name, each in its one spelling: no scheme, user, port, dot at the end or case.

Names and numbers are folded as browsers and resolvers do: full-width letters and dots, `0x7f.1`, `2130706433`,
`[::ffff:127.0.0.1]`, `%65xample.org`.
"""

from __future__ import annotations

import re
import socket
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import unquote

from msgspec import Struct

from tools.base.patterns import lazy_pattern

_DOTS = str.maketrans({"。": ".", "．": ".", "｡": "."})
_INVISIBLE = lazy_pattern("[\u00ad\u200b-\u200f\u2060\ufeff]")
_TOKEN = lazy_pattern(r"\[[0-9a-fA-F:.%]+\](?::\d{1,5})?|[^\s/\\?#@\"'<>(){}|,;=&$`!*]+")
_PORT = lazy_pattern(r"(?P<host>.*?)(?::(?P<port>\d{1,5}))?:?")
_NUMBER = lazy_pattern(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d+)){0,3}", re.IGNORECASE)
_GLUED = lazy_pattern(r"-{1,2}\w(?=\w)|--?[\w-]+=")
_CARRYING = (0, int(IPv6Address("64:ff9b::")) >> 32)  # addresses that end in one of IPv4


class HostName(Struct, frozen=True):
    """A host as a text names it; without `port` any."""

    host: str
    port: int | None = None


def folded(text: str) -> str:
    """Return a text as a resolver reads it: compatibility forms, lower case, escapes decoded."""
    for _ in range(2):
        text = unquote(text)
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text.translate(_DOTS)).translate(_DOTS)).casefold()


def canonical(host: str) -> str:
    """Return a name or an address in its one spelling."""
    host = host.strip("[]").partition("%")[0].rstrip(".")
    with suppress(ValueError):
        return str(_plain(ip_address(host)))
    if _NUMBER.fullmatch(host):
        with suppress(OSError):
            return str(IPv4Address(socket.inet_aton(host)))
    with suppress(UnicodeError):
        return host if host.isascii() else host.encode("idna").decode()
    return host


def hosts_in(text: str) -> Iterator[HostName]:
    """Return every host that a text may name, each word of it among them."""
    for written in dict.fromkeys((text, folded(text))):
        for token in _TOKEN.findall(written):
            for one in dict.fromkeys((token, _GLUED.sub("", token, count=1))):
                yield from _named(folded(one))


def _named(token: str) -> Iterator[HostName]:
    if found := _PORT.fullmatch(token):
        yield HostName(canonical(found["host"]), int(found["port"]) if found["port"] else None)
    if ":" in token:  # an address, host:path, or hosts and ports as of `curl --resolve`
        yield from (HostName(canonical(piece)) for piece in (token, *token.split(":")))


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address carries, if it does."""
    if isinstance(address, IPv6Address):
        number = int(address)
        if number >> 32 in _CARRYING and number > 1:
            return IPv4Address(number & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address

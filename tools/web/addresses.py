"""Classification of addresses: public ones, and private ones that the configuration allows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from tools.base.patterns import lazy_pattern

Address = IPv4Address | IPv6Address

# Python's own `is_global` changes from version to version and does not look into IPv6 addresses that carry others.
_RESERVED_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this machine
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind a carrier's or a cloud's translation
        "127.0.0.0/8",
        "168.63.129.16/32",  # public by number, but a cloud's service to its own machines
        "169.254.0.0/16",  # link-local, the clouds' metadata among them
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation, as are the two below
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")
_RESERVED_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocols, Teredo and benchmarks among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: given up, and it carries any IPv4 address
        "3ffe::/16",
        "3fff::/20",  # documentation
    )
)
_PORT = lazy_pattern(r"[0-9]{1,5}")
_HOST = lazy_pattern(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_TRANSLATED = IPv6Network("64:ff9b::/96")
_ISATAP = 0x00005EFE
_ISATAP_LOCAL_BIT = 0x02000000


def is_global(address: Address) -> bool:
    """Return whether an address is on the public internet, and so is every IPv4 address that it carries."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _RESERVED_4)
    if address.ipv4_mapped:
        return is_global(address.ipv4_mapped)
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _TRANSLATED:
        return is_global(last)
    if int(address) >> 32 & 0xFFFFFFFF & ~_ISATAP_LOCAL_BIT == _ISATAP and not is_global(last):
        return False
    return address in _GLOBAL_6 and not any(address in network for network in _RESERVED_6)


def own_addresses() -> frozenset[Address]:
    """Return this machine's addresses: a service here may trust local clients, even on a public address."""
    found = set()
    import psutil  # as in process_tree: imported late, for a faster start

    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            with suppress(ValueError):  # a hardware address
                found.add(ip_address(one.address.partition("%")[0]))
    return frozenset(found)


def is_valid_private_host(entry: str) -> bool:
    """Return whether `is_allowed_private_host` can ever match an entry of this spelling."""
    entry = entry.strip().lower().rstrip(".")
    with suppress(ValueError):
        ip_network(entry.strip("[]"), strict=False)
        return True
    host, _, port = entry.rpartition(":")
    if not host or not _PORT.fullmatch(port) or not 0 < int(port) < 65_536:
        host = entry
    with suppress(ValueError):
        ip_address(host.strip("[]"))
        return True
    return bool(_HOST.fullmatch(host)) and not _PORT.fullmatch(host.rpartition(".")[2])


def is_allowed_private_host(private_hosts: Sequence[str], host: str, port: int, address: Address) -> bool:
    """Return whether an entry allows this: `host`, `host:port`, an address with or without a port, `10.0.0.0/8`."""
    return any(_names(entry.strip().lower().rstrip("."), host, port, address) for entry in private_hosts)


def _names(entry: str, host: str, port: int, address: Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    plain = mapped or address
    with suppress(ValueError):
        return plain in ip_network(entry.strip("[]"), strict=False)
    name, _, wanted = entry.rpartition(":")
    if not wanted.isascii() or not wanted.isdigit():
        return entry == host
    return int(wanted) == port and name.strip("[]") in (host, str(plain))

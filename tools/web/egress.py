"""The hosts that a call requests: one parser of the argument `network` for gate, grants, page and executor.

`true` asks for any public host, a list for those that its patterns name, absent or `false` for none. A pattern is
`example.org`, `*.example.org` (every name below, not the name itself), an address, or `*`; each may end in `:port`.
Nothing that is not on the public internet is ever reached through a pattern: the proxy sees to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from tools.base.patterns import lazy_pattern

if TYPE_CHECKING:  # the proxy of each command that reads its hosts here has no use for the parser
    from parsing import Arguments

NETWORK = "network"  # the argument's name
ANY = "*"
ANYWHERE = (ANY,)
MAX_HOSTS = 50

_URL = lazy_pattern(r"[a-z][a-z0-9+.-]*://(?:[^/?#]*@)?")
_YES = frozenset(("true", "yes", "any", "all", "*"))
_NO = frozenset(("false", "no", "none", "null", ""))
_SPELLED = lazy_pattern(
    r"(?P<host>\*|(?:\*\.)?[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class HostPattern:
    """Hosts that may be reached. `host` is a name, an address, `*.name` or `*`; without `port` any port."""

    host: str
    port: int | None = None

    def matches(self, host: str, port: int | None) -> bool:
        """Return whether it names this host, lower case and without a dot at its end, or all of such a pattern."""
        if self.port not in (None, port):
            return False
        return self.host in (ANY, host) or (self.host.startswith("*.") and host.endswith(self.host[1:]))

    def covers(self, other: HostPattern) -> bool:
        """Return whether everything that `other` names is named by this one, too."""
        return self.matches(other.host, other.port)

    def meets(self, other: HostPattern) -> bool:
        """Return whether anything is named by both."""
        ports = self.port is None or other.port in (None, self.port)
        return ports and (self.matches(other.host, self.port) or other.matches(self.host, other.port))


def hosts_wanted(arguments: Arguments) -> tuple[str, ...]:
    """The patterns of hosts that a call asks for: `()` none, `("*",)` any public host. Total.

    What cannot be parsed counts as any host, so that a decision never covers less than what may run.
    """
    match normalise_hosts(arguments.get(NETWORK)):
        case None:
            return ()
        case list(hosts) if all(isinstance(host, str) for host in hosts):
            return tuple(hosts)
    return ANYWHERE


def normalise_hosts(network: object) -> object:
    """The value of `network` in the one form that it is decided on: `True`, a sorted list of patterns, or None.

    Idempotent. Small models write hosts as one text, or as URLs. What cannot be understood stays for the schema.
    """
    if isinstance(network, str):
        word = network.strip().lower()
        network = word in _YES if word in _YES | _NO else re.split(r"[\s,]+", word)
    if network is None or network is False:
        return None
    if not isinstance(network, list) or not all(isinstance(one, str) for one in network):
        return network
    hosts = sorted({host for one in network if (host := _host_of(one))})
    return True if ANY in hosts else hosts or None


def normalise_network(arguments: Arguments) -> Arguments:
    """The arguments with `network` in its one form, or without it where it requests none."""
    if NETWORK not in arguments:
        return arguments
    network = normalise_hosts(arguments[NETWORK])
    rest = {name: value for name, value in arguments.items() if name != NETWORK}
    return rest if network is None else {**rest, NETWORK: network}


def pattern_of(host: str) -> HostPattern | None:
    """A pattern as it is written; None for one that can name no host."""
    written = _host_of(host)
    with suppress(ValueError):
        return HostPattern(str(IPv6Address(written)))
    found = _SPELLED.fullmatch(written)
    if not found or len(written) > 260:
        return None
    name, port = found["host"], int(found["port"]) if found["port"] else None
    if name.startswith("["):
        with suppress(ValueError):
            return HostPattern(str(IPv6Address(name[1:-1])), port) if port != 0 else None
        return None
    if name.rpartition(".")[2].isdigit():
        with suppress(ValueError):
            return HostPattern(str(ip_address(name)), port) if _is_port(port) else None
        return None
    return HostPattern(name, port) if _is_port(port) else None


def host_pattern_error(hosts: Iterable[str]) -> str | None:
    """Describe the error in a list of patterns and how to correct it; None when it is valid."""
    hosts = list(hosts)
    if len(hosts) > MAX_HOSTS:
        return f"network names {len(hosts)} hosts, and {MAX_HOSTS} are the most: use a pattern such as *.example.org."
    if wrong := [host for host in hosts if pattern_of(host) is None]:
        shown = ", ".join(ascii(host[:80]) for host in wrong[:3])
        return f"network names no host with {shown}: write example.org, *.example.org or example.org:8443, or true."
    return None


def covers(granted: Iterable[str], wanted: Iterable[str]) -> bool:
    """Return whether `granted` covers all hosts of `wanted`; a pattern that names no host covers nothing."""
    given = [pattern for host in granted if (pattern := pattern_of(host))]
    requested = [pattern_of(host) for host in wanted]
    return all(one is not None and any(pattern.covers(one) for pattern in given) for one in requested)


def describe_hosts(hosts: Iterable[str]) -> str:
    """Return a clause that names the hosts."""
    hosts = tuple(hosts)
    if not hosts:
        return "no network"
    return "any public host" if ANY in hosts else ", ".join(hosts)


def _is_port(port: int | None) -> bool:
    return port is None or 0 < port < 65_536


def _host_of(written: str) -> str:
    """A host as a pattern has it: of a URL, its host and the port that it names."""
    word = written.strip().lower()
    rest = _URL.sub("", word, count=1) if _URL.match(word) else word
    return re.split(r"[/?#]", rest, maxsplit=1)[0].rstrip(".") if rest != word else word.rstrip(".")

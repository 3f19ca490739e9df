"""Hints for commands that failed because the sandbox has no network."""

from __future__ import annotations

from collections.abc import Sequence

from tools.base.patterns import lazy_pattern
from tools.sandbox.sandbox import Bubblewrap, Landlock, Sandbox

_READ = 20_000  # characters of output, from its end: programs print the reason of a failure there
# The messages of programs in C, Python, Node, Go, Rust, Java and others.
_NO_NETWORK = lazy_pattern(
    "|".join(
        (
            r"[Cc]ould not resolve (host|proxy|'|\")",
            r"[Cc]ould ?n.t resolve host",
            r"Temporary failure (in name resolution|resolving)",
            r"Name or service not known",
            r"[Nn]ame resolution (failed|error)|NameResolutionError|Failed to resolve '",
            r"unable to resolve host",
            r"nodename nor servname|No address associated with hostname",
            r"[Nn]etwork is (unreachable|down)|No route to host",
            r"(EAI_AGAIN|ENOTFOUND|ENETUNREACH|EHOSTUNREACH)\b",
            r"dial (tcp|udp)[^\n]{0,200}(connect: |lookup )",
            r"failed to lookup address information|dns error",
            r"UnknownHostException|no such host",
            r"Failed to establish a new connection",
            r"Could not connect to server|Couldn.t connect to server",
            r"Failed to connect to [^\n]{1,200} port \d+",
        )
    )
)
_REFUSED = lazy_pattern(r"[Cc]onnection refused|ECONNREFUSED|ConnectionRefusedError|os error 111")
_OWN = lazy_pattern(r"\blocalhost\b|\b127\.\d+\.\d+\.\d+|\[?::1\b")

# Package managers report this when their index does not answer. With a network the message is accurate.
_NOT_FOUND = lazy_pattern(r"No matching distribution found for|is not in this registry|no matching package named")
_LOOK_UP = lazy_pattern(r"\blookup\b")

_ASK = (
    "[The sandbox has no network. If the command needs it, call again with network: true, or a list of hosts: that "
    "asks the person. localhost is the sandbox's own.]"
)
_LOOPBACK = (
    "[localhost is the sandbox's own: nothing of this machine listens there. Start the server in the same call.]"
)
_PROXY = (
    "[Inside the sandbox no names are looked up: the network is reached through the proxy that HTTPS_PROXY names, "
    "which this program did not use.]"
)
_NONE = "[The sandbox has no network, and cannot be given one here: that needs bubblewrap.]"


def why_it_failed(text: str, exit_code: int, sandbox: Sandbox, hosts: Sequence[str]) -> str:
    """A line to put after the output of a command that failed because of the network; empty where it did not."""
    if exit_code == 0 or not isinstance(sandbox, Bubblewrap | Landlock):
        return ""
    lines = text[-_READ:].splitlines()
    has_network = bool(hosts) or sandbox.networked
    failing = [line for line in lines if _NO_NETWORK.search(line) or (not has_network and _NOT_FOUND.search(line))]
    if any(not _OWN.search(line) or _LOOK_UP.search(line) for line in failing):
        return _NONE if isinstance(sandbox, Landlock) else _PROXY if has_network else _ASK
    # Only the sandbox's own loopback refuses connections: other addresses do not answer at all.
    return _LOOPBACK if failing or any(map(_REFUSED.search, lines)) else ""

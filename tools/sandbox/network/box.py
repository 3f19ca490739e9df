"""The words, mounts and variables with which a sandboxed command uses the network through a proxy."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tools.sandbox.network import launch
from tools.sandbox.network.rules import Rules

PORT = 61_080  # of the box's own loopback: below those of servers and above those that the kernel chooses
_URL = f"http://127.0.0.1:{PORT}"
_INSIDE = Path(__file__).parent / "inside"
_SHOWN = "/run/network"

# Programs look for one of these; node and yarn need their own.
ENVIRONMENT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), _URL),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
    "YARN_HTTP_PROXY": _URL,
    "YARN_HTTPS_PROXY": _URL,
}
HOSTS = ("--ro-bind", str(_INSIDE / "hosts.txt"), "/etc/hosts")  # of every box: what listens inside is `localhost`
MOUNTS = (
    *("--ro-bind", str(_INSIDE), _SHOWN),
    *("--ro-bind", str(_INSIDE / "ssh_config.txt"), "/etc/ssh/ssh_config"),
)


def launched(rules: Rules) -> tuple[str, ...]:
    """Return the words in front of a sandbox's, outside of it: they start the proxy."""
    packages = Path(launch.__file__).parents[launch.__name__.count(".")]
    written = json.dumps({**asdict(rules), "path": [str(packages), *filter(None, sys.path)]})
    return (sys.executable, "-I", "-S", launch.__file__, written)


def listening(python: Path) -> Sequence[str]:
    """Return the words in front of the command's, inside: they make the proxy's socket."""
    return (str(python), "-I", "-S", f"{_SHOWN}/listen.py", str(PORT))

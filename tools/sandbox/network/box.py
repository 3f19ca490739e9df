"""The words, mounts and variables with which a sandboxed command uses the network through a proxy."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from tools.sandbox.network import launch
from tools.sandbox.network.rules import Rules
from tools.sandbox.network.secrets import BoxSecret

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
# Where programs look for the authorities that they trust, by system.
_SYSTEM_BUNDLES = (
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    *("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"),
)
_OTHER_BUNDLE = "/run/authorities.pem"  # where the system has none
# Programs that bring authorities of their own look for one of these.
_BUNDLE_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT"),
    *("CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT", "BUNDLE_SSL_CA_CERT", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
    *("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "HEX_CACERTS_PATH", "NIX_SSL_CERT_FILE", "PERL_LWP_SSL_CA_FILE"),
)
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


def secret_variables(secrets: Sequence[BoxSecret]) -> Mapping[str, str]:
    """Return the environment of a command with secrets."""
    bundle = str((*system_bundles(), _OTHER_BUNDLE)[0])
    return {**{secret.variable: secret.placeholder for secret in secrets}, **dict.fromkeys(_BUNDLE_VARIABLES, bundle)}


def trusted() -> tuple[str, ...]:
    """Return bubblewrap's words for the authorities that the box trusts, its own among them."""
    places = system_bundles() or (Path(_OTHER_BUNDLE),)
    return tuple(word for place in places for word in ("--ro-bind-data", launch.TRUST, str(place)))


@cache
def system_bundles() -> tuple[Path, ...]:
    """Return where the system's authorities are, past all links: a mount cannot be put on one."""
    found = (Path(path).resolve() for path in _SYSTEM_BUNDLES)
    return tuple(dict.fromkeys(path for path in found if path.is_file()))

"""Secrets of one command: it sees placeholders, and its proxy puts the values into requests to their hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from tools.sandbox.network.launch import TRUST

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


class BoxSecret(Struct, frozen=True, kw_only=True):
    """A secret of one call. `placeholder` is drawn for the call, as long as the value if both are to look alike.

    `hosts` are patterns as of `tools.web.egress`: without a port they name port 443, and https alone unless they are
    written as `http://...`. `paths`, if any, are the only requests that get the value: globs of paths, in which `*`
    stays within a segment and `**` does not, each behind a method and a space if that matters.
    """

    name: str
    variable: str
    placeholder: str
    value: str
    hosts: tuple[str, ...]
    paths: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the value: what holds a secret may be logged."""
        return f"BoxSecret({self.name!r})"


class Handed(Struct, frozen=True):
    """What a command's proxy gets from the server: through a file without a name, and never as a word or variable.

    `certificate` and `key` are those of the box's own authority. `authorities` are the files of those that hosts are
    trusted by.
    """

    certificate: str
    key: str
    authorities: tuple[str, ...]
    secrets: tuple[BoxSecret, ...]

    def __repr__(self) -> str:
        """Without keys and values."""
        return f"Handed({self.secrets!r})"

    def opened(self) -> int:
        """Open a file without a name that has all of it. `launch.py` empties it, so that it can be read once."""
        file = os.memfd_create("handed")
        with os.fdopen(os.dup(file), "wb") as written:
            written.write(msgspec.json.encode(self))
        os.lseek(file, 0, os.SEEK_SET)
        return file


def handed(secrets: Sequence[BoxSecret], authorities: Sequence[Path] = ()) -> Handed:
    """Return what the proxy of a call with these secrets needs, with an authority that is drawn for this box."""
    from tools.sandbox.network.authority import draw_authority  # 60 ms of a start, for servers with secrets

    certificate, key = draw_authority()
    files = (*_system_bundles()[:1], *map(str, authorities))
    return Handed(certificate.decode(), key.decode(), files, tuple(secrets))


def variables(secrets: Sequence[BoxSecret]) -> Mapping[str, str]:
    """Return the environment of a command with secrets."""
    bundle = (*_system_bundles(), _OTHER_BUNDLE)[0]
    return {**{secret.variable: secret.placeholder for secret in secrets}, **dict.fromkeys(_BUNDLE_VARIABLES, bundle)}


def mounts() -> tuple[str, ...]:
    """Return bubblewrap's words for the authorities that the box trusts, its own among them."""
    return tuple(word for path in _system_bundles() or (_OTHER_BUNDLE,) for word in ("--ro-bind-data", TRUST, path))


@cache
def _system_bundles() -> tuple[str, ...]:
    """Where the system's authorities are, past all links: a mount cannot be put on one."""
    found = (Path(path).resolve() for path in _SYSTEM_BUNDLES)
    return tuple(dict.fromkeys(str(path) for path in found if path.is_file()))

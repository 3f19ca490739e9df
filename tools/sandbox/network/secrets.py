"""Secrets of one command: it sees placeholders, and its proxy puts the values into requests to their hosts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct


class BoxSecret(Struct, frozen=True, kw_only=True):
    """A secret of one call. `placeholder` is drawn for the call, as long as the value if both are to look alike.

    `hosts` are patterns as of `tools.web.egress`: without a port they name port 443, and https alone unless they are
    written with the scheme `http`. `paths`, if any, are the only requests that get the value: globs of paths, each
    behind a method and a space if that matters. `*` stays within a segment, `**` does not.
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
    """Secrets and keys for a command's proxy: it gets them from the server through a file without a name.

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


def handed(secrets: Sequence[BoxSecret], authorities: Sequence[Path]) -> Handed:
    """Return what the proxy of a call with these secrets needs, with an authority that is drawn for this box."""
    from tools.sandbox.network.authority import draw_authority  # 60 ms of a start, for servers with secrets

    certificate, key = draw_authority()
    files = tuple([str(file.absolute()) for file in authorities])  # the proxy starts in the workspace
    return Handed(certificate.decode(), key.decode(), files, tuple(secrets))

"""Secrets of one command: it sees placeholders, and its proxy puts the values into requests to their hosts."""

from __future__ import annotations

from msgspec import Struct


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

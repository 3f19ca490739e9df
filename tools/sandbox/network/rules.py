"""Rules of the proxy of one command. Not in the proxy's module, which the server itself never loads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """`hosts` are the patterns that the call was allowed. `private_hosts` may be reached although they are private;
    `closed_ports` of this machine never."""

    hosts: tuple[str, ...]
    private_hosts: tuple[str, ...] = ()
    closed_ports: tuple[int, ...] = ()

"""The hosts of a command's secrets, whose connections its proxy ends and begins anew.

Toward the command it answers TLS with a certificate of the box's own authority; toward the host it speaks TLS as any
client does, and checks the name. Loaded by the proxies of calls with secrets alone.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from tools.sandbox.network.authority import Certificates
from tools.sandbox.network.exchange import Exchange
from tools.sandbox.network.injection import Mask, Origin, belongs_to
from tools.sandbox.network.proxy import ProxyRequest, Streams, serve
from tools.sandbox.network.secrets import BoxSecret, Handed
from tools.web.public_hosts import host_name

_KEPT = 50  # notes


class SecretHosts:
    """The secrets of one command, as its proxy uses them."""

    def __init__(self, handed: Handed) -> None:
        self._secrets = handed.secrets
        self._authorities = handed.authorities
        self._certificates = Certificates(handed.key.encode())
        self._notes: dict[str, None] = {}

    def __call__(self, request: ProxyRequest) -> Connection | None:
        """Return what serves a connection to a host of secrets; None for other hosts. Raises HostRefused."""
        scheme = "https" if request.head is None else "http"
        origin = Origin(scheme, host_name(request.host), request.port)
        secrets = tuple(secret for secret in self._secrets if belongs_to(secret.hosts, origin))
        return Connection(self, origin, secrets) if secrets else None

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """The settings of connections to hosts: of nothing in the environment, which is the command's."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["http/1.1"])
        for file in self._authorities:
            with suppress(OSError):
                context.load_verify_locations(file)
        return context

    def shown_as(self, host: str) -> ssl.SSLContext:
        """Return the settings with which the command is answered as this host."""
        return self._certificates.context(host)

    def mask(self) -> Mask:
        """Return a new mask of all values."""
        return Mask(self._secrets)

    def note(self, line: str) -> None:
        """Keep a line for the end of the command's output."""
        if len(self._notes) < _KEPT:
            self._notes[line] = None

    def notes(self) -> list[str]:
        return list(self._notes)


class Connection:
    """One connection to a host of secrets."""

    def __init__(self, hosts: SecretHosts, origin: Origin, secrets: Sequence[BoxSecret]) -> None:
        self._hosts = hosts
        self._origin = origin
        self._secrets = tuple(secrets)
        self.tls = hosts.tls if origin.scheme == "https" else None

    async def __call__(self, here: Streams, there: Streams, head: bytes) -> None:
        """Serve it to its end; `head` is that of its request, if it is not in a tunnel."""
        exchange = Exchange(self._origin, self._secrets, self._hosts.mask(), self._hosts.note)
        if self.tls is None:
            return await exchange(here, there, head)
        try:  # the writer goes on with TLS by itself
            await here[1].start_tls(self._hosts.shown_as(self._origin.host))
        except (ssl.SSLError, ConnectionError):
            self._hosts.note(
                f"a program did not accept the sandbox's certificate for {self._origin.host}, with which secrets are "
                "put into requests: it trusts only authorities that it brings, or this one host's own"
            )
        else:
            await exchange(here, there)


def serve_with_secrets(rules: Mapping[str, Any], channel: socket.socket, sandbox: int, handed: bytes) -> None:
    """Serve as `proxy.serve`, with what the server handed over."""
    serve(rules, channel, sandbox, SecretHosts(msgspec.json.decode(handed, type=Handed)))

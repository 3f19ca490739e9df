"""Kinds of providers: PROVIDERS, a row each with URL schemes, hosts and a connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from msgspec import Struct

from app.core.endpoint_spec import EndpointSpec, WireFormat
from app.models.http.failures import redact_url
from app.models.server_connection import (
    ConnectionOptions,
    EmbeddedConnection,
    HTTPConnection,
    ScriptedConnection,
    ServerConnection,
    served_connection,
)
from app.models.wire.anthropic.provider import AnthropicMessages
from app.models.wire.openai.provider import OpenAIChat


class ProviderKind(Struct, frozen=True):
    """One kind of provider. `schemes` are those of the URLs that ask for it, if the `format` is asked for, too.

    Where the format is not said, `hosts` are those that speak this one; without any, all do that no other row names.
    `internal`: its URLs are made by the server itself, and advice does not name them.
    """

    name: str
    schemes: tuple[str, ...]
    connect: Callable[[EndpointSpec, str | None, ConnectionOptions], ServerConnection]
    format: WireFormat = "auto"
    hosts: tuple[str, ...] = ()
    internal: bool = False

    def fits(self, scheme: str, host: str, wanted: WireFormat) -> bool:
        if scheme not in self.schemes:
            return False
        return self.format in ("auto", wanted) if wanted != "auto" else not self.hosts or host in self.hosts


PROVIDERS: tuple[ProviderKind, ...] = (
    ProviderKind(
        "anthropic", ("http", "https"), partial(HTTPConnection, AnthropicMessages), "anthropic", ("api.anthropic.com",)
    ),
    ProviderKind("openai-compatible", ("http", "https"), partial(HTTPConnection, OpenAIChat), "openai"),
    ProviderKind("served", ("served",), served_connection, internal=True),
    ProviderKind("embedded", ("embedded",), EmbeddedConnection),
    ProviderKind("scripted", ("scripted",), ScriptedConnection),
)


def provider_kind(url: str, wanted: WireFormat = "auto") -> ProviderKind:
    """Return the row for a URL. Raises ValueError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    kind = next((kind for kind in PROVIDERS if kind.fits(parts.scheme.lower(), host, wanted)), None)
    if kind is None or (kind.format != "auto" and not host):
        schemes = ", ".join(
            dict.fromkeys(f"{scheme}:" for kind in PROVIDERS for scheme in kind.schemes if not kind.internal)
        )
        raise ValueError(
            f"{redact_url(url)!r} is no URL of a model server: it must start with one of {schemes} and name a host, "
            "such as http://127.0.0.1:8080/v1."
        )
    return kind

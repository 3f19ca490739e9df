"""Factory that builds endpoints from their specs, keys and shared defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct

from app.core.endpoint_spec import SERVED, EndpointSpec, Price, ToolCalls, ToolGrammar
from app.core.provider import Provider, ProviderFailed
from app.models.endpoints.endpoint import Endpoint, Origin
from app.models.endpoints.key_sources import KeyFolder, Keys, read_keys
from app.models.endpoints.server_state import ServerState
from app.models.providers import provider_kind
from app.models.server_connection import (
    ConnectionOptions,
    FixedConnection,
    ServerConnection,
    UnavailableConnection,
)
from app.redaction.redactor import Redactor
from app.replicas.secret_store import SecretStore

# Errors of a client that come from the environment: invalid proxies or certificate files.
ENVIRONMENT_ERRORS = (OSError, ValueError, ImportError, httpx2.InvalidURL)
ADVICE = "Correct HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE, and restart."


class EndpointDefaults(Struct, frozen=True):
    """Defaults of all endpoints for fields that a spec leaves out."""

    tool_calls: ToolCalls = "auto"
    temperature: float | None = None
    inactivity_s: float | None = None
    window: int | None = None
    tool_grammar: ToolGrammar = "auto"

    def apply(self, spec: EndpointSpec) -> EndpointSpec:
        update: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("temperature", "inactivity_s", "window")
            if getattr(spec, name) is None
        }
        if spec.tool_calls == "auto":
            update["tool_calls"] = self.tool_calls
        if spec.tool_grammar == "auto":
            update["tool_grammar"] = self.tool_grammar
        return spec.model_copy(update=update)


class EndpointFactory:
    """Build endpoints; keep their keys out of logs and events."""

    def __init__(
        self,
        common: EndpointDefaults,
        options: ConnectionOptions,
        *,
        prices: Mapping[str, Price],
        environ: Mapping[str, str],
        folder: Path,
        redactor: Redactor,
        vault: SecretStore | None = None,
    ) -> None:
        self.keys = KeyFolder(folder, vault)
        self._common = common
        self._manner = options
        self._prices = prices
        self._environ = environ
        self.redactor = redactor
        self.servers = 1  # of dragoman that share the endpoints

    def create(self, name: str, spec: EndpointSpec, origin: Origin, keys: Keys | None = None) -> Endpoint:
        """Create an endpoint without contacting its server. If all of its keys are missing, its requests fail."""
        if keys is None:
            keys = read_keys(spec, self._environ, self.keys.folder, self.keys.shared)
            self.redactor.add(*keys.values)
        full = self._common.apply(spec)
        server = ServerState(name, keys.values, spec.max_requests)
        if not spec.url.startswith(SERVED):
            server.queue.share(self.servers)
        connection, problem = self._connect(name, full, keys)
        if problem:
            server.failed(ProviderFailed("model_auth" if keys.problems else "model_down", problem, retryable=False))
        return Endpoint(
            name, full, origin=origin, connection=connection, server=server, prices=self._prices, problem=problem
        )

    def _connect(self, name: str, spec: EndpointSpec, keys: Keys) -> tuple[ServerConnection, str]:
        """Return a connection and a problem for admins. Other users' messages have no names of variables and files."""
        missing = f"The keys of the endpoint {name}: {'; '.join(keys.problems)}. Correct this, and restart."
        if keys.problems and not keys.values:
            message = f"The keys of the endpoint {name} are missing. Admins see the reason in GET /endpoints."
            return UnavailableConnection(message, without_key=True), missing
        try:
            connection = provider_kind(spec.url, spec.format).connect(spec, next(iter(keys.values), None), self._manner)
            return connection, missing if keys.problems else ""
        except ENVIRONMENT_ERRORS as error:
            message = f"The endpoint {name} cannot be reached from here. Admins see the reason in GET /endpoints."
            why = f"The endpoint {name} cannot be reached from here: {error}. {ADVICE}"
            return UnavailableConnection(message), why

    def wrap(self, name: str, provider: Provider) -> Endpoint:
        """Create an endpoint around an existing provider."""
        spec = self._common.apply(EndpointSpec(url="scripted:"))
        return Endpoint(
            name,
            spec,
            origin="settings",
            connection=FixedConnection(provider),
            server=ServerState(name),
            prices=self._prices,
        )

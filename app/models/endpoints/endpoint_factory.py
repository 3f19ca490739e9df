"""Makes endpoints of what people say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2

from app.core.endpoint_spec import EndpointSpec, Price
from app.core.provider import Provider, ProviderFailed
from app.models.endpoints.endpoint import Endpoint, Origin
from app.models.endpoints.key_sources import KeyFolder, Keys, keys_of
from app.models.endpoints.server_state import Host
from app.models.providers import connect
from app.models.server_connection import Connection, Given, Manner, UnusableConnection, absent, keyless
from app.redaction.redactor import Redactor

# What a client is made with comes from the environment: proxies, and files of certificates.
SURROUNDINGS = (OSError, ValueError, ImportError, httpx2.InvalidURL)
MEND = "Mend HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE, whichever it is, and start again."


@dataclass(frozen=True, slots=True)
class Common:
    """What holds for all endpoints, where they say nothing else."""

    tool_calls: Literal["auto", "native", "fenced"] = "auto"
    temperature: float | None = None
    inactivity_s: float | None = None
    window: int | None = None

    def filled(self, spec: EndpointSpec) -> EndpointSpec:
        update: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("temperature", "inactivity_s", "window")
            if getattr(spec, name) is None
        }
        if spec.tool_calls == "auto":
            update["tool_calls"] = self.tool_calls
        return spec.model_copy(update=update)


class Opener:
    """Makes endpoints of what people say of them."""

    def __init__(
        self,
        common: Common,
        manner: Manner,
        prices: Mapping[str, Price],
        environ: Mapping[str, str],
        folder: Path,
        redactor: Redactor,
    ) -> None:
        self.keys = KeyFolder(folder)
        self._common = common
        self._manner = manner
        self._prices = prices
        self._environ = environ
        self.redactor = redactor

    def keys_of(self, spec: EndpointSpec) -> Keys:
        """From now on nothing that is told or kept has them in it."""
        keys = keys_of(spec, self._environ, self.keys.folder)
        self.redactor.add(*keys.values)
        return keys

    def opened(self, name: str, spec: EndpointSpec, origin: Origin, keys: Keys | None = None) -> Endpoint:
        """Nothing is asked of its server yet. Without any of the keys that it names it can only say so."""
        keys = self.keys_of(spec) if keys is None else keys
        full = self._common.filled(spec)
        host = Host(name, keys.values, spec.max_requests)
        connection, problem = self._connected(name, full, keys)
        if problem:
            host.failed(ProviderFailed("model_auth" if keys.problems else "model_down", problem, retryable=False))
        return Endpoint(name, full, origin, connection, host, self._prices, problem)

    def _connected(self, name: str, spec: EndpointSpec, keys: Keys) -> tuple[Connection, str]:
        """And what is wrong. Everybody is told less of that: no names of variables and files."""
        missing = f"The keys of the endpoint {name}: {'; '.join(keys.problems)}. Mend that, and start again."
        if keys.problems and not keys.values:
            told = f"The keys of the endpoint {name} are missing. An admin sees why in GET /endpoints."
            return UnusableConnection(keyless(told)), missing
        try:
            return connect(spec, next(iter(keys.values), None), self._manner), missing if keys.problems else ""
        except SURROUNDINGS as error:
            told = f"The endpoint {name} cannot be reached from here. An admin sees why in GET /endpoints."
            why = f"The endpoint {name} cannot be reached from here: {error}. {MEND}"
            return UnusableConnection(absent(told)), why

    def around(self, name: str, provider: Provider) -> Endpoint:
        """For a provider that is there already."""
        spec = self._common.filled(EndpointSpec(url="scripted:"))
        return Endpoint(name, spec, "settings", Given(provider), Host(name), self._prices)

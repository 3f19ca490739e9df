"""Connections to model servers, shared by all models of a server: HTTP, embedded, scripted, unavailable."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from app.core.clock import Clock
from app.core.endpoint_spec import EndpointSpec
from app.core.provider import BaseProvider, CallForm, ModelRequest, Piece, Provider, ProviderFailed
from app.models.capabilities.abilities import AbilityCache, overrides_of
from app.models.capabilities.model_list import listed_models
from app.models.embedded.provider import EmbeddedProvider
from app.models.embedded.supervisor import EmbeddedModel
from app.models.http.client import INACTIVITY_S, TransportKind, base_url_of, model_client
from app.models.http.failures import redact_url
from app.models.scripted import DEMO, Raise, Scripted
from app.models.wire.hosted_provider import ANY_MODEL, HostedProvider, RequestDefaults


class ConnectionOptions(Struct, frozen=True):
    """Options of all connections. `serving` connects to the models that this server runs."""

    clock: Clock | None = None
    transport: TransportKind = "lean"
    serving: Callable[[EndpointSpec, Clock | None, TransportKind], ServerConnection] | None = None


class ServerConnection(Protocol):
    """`only` are the models that there are, None where any name may be asked for; `where` ends `Model: NAME`.

    `awake` says that there is a server to be asked what it can, which need not be started for that.
    """

    @property
    def only(self) -> Sequence[str] | None: ...

    @property
    def where(self) -> str: ...

    @property
    def awake(self) -> bool: ...

    def provider(self, model: str | None) -> Provider:
        """For one model; None is the server's first, whose name is asked for when it is needed."""
        ...

    async def start(self) -> None:
        """Begin now what the first answer would wait for. Raises ProviderFailed."""
        ...

    async def models(self, key: str | None) -> list[str]:
        """The models that the server lists for this key. Raises ProviderFailed, NoModelList."""
        ...

    async def close(self) -> None: ...


class HTTPConnection:
    """A server that is reached over HTTP in the wire format of a provider: one pooled client for all of its models."""

    only = None
    awake = True

    def __init__(
        self, provider: type[HostedProvider], spec: EndpointSpec, key: str | None, manner: ConnectionOptions
    ) -> None:
        self._provider = provider
        self.base_url = base_url_of(spec.url)
        self._spec = spec
        self._key = key
        self._clock = manner.clock
        inactivity_s = spec.inactivity_s or INACTIVITY_S
        self._client = model_client(self.base_url, inactivity_s=inactivity_s, transport=manner.transport)
        self._abilities = AbilityCache()

    @property
    def where(self) -> str:
        return f" at {redact_url(self.base_url)}"

    async def start(self) -> None:
        """A server of somebody else's: it runs, or it does not."""

    def provider(self, model: str | None) -> Provider:
        return self._provider(
            self._client,
            self.base_url,
            model or ANY_MODEL,
            self._key,
            overrides=overrides_of(self._spec),
            defaults=RequestDefaults(None, self._spec.temperature),
            clock=self._clock,
            abilities=self._abilities,
        )

    async def models(self, key: str | None) -> list[str]:
        provider = self._provider
        names = await listed_models(self._client, self.base_url, provider.headers(key), provider.list_query)
        self._abilities.answered()
        return names

    async def close(self) -> None:
        await self._client.aclose()


class FixedConnection:
    """Connection around an existing provider."""

    where = ""
    awake = False

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def only(self) -> Sequence[str]:
        return (self._provider.model,)

    def provider(self, _model: str | None) -> Provider:
        return self._provider

    async def start(self) -> None:
        """Whoever made it has started it."""

    async def models(self, _key: str | None) -> list[str]:
        return list(self.only)

    async def close(self) -> None:
        await self._provider.close()


class EmbeddedConnection(FixedConnection):
    """Connection to the model that comes with dragoman."""

    where = ", embedded"

    def __init__(self, spec: EndpointSpec, _key: str | None, manner: ConnectionOptions) -> None:
        inactivity_s = spec.inactivity_s or INACTIVITY_S
        client = model_client("http://127.0.0.1", inactivity_s=inactivity_s, transport=manner.transport)
        self._model = EmbeddedModel()
        super().__init__(
            EmbeddedProvider(client, self._model, temperature=spec.temperature, tool_grammar=spec.tool_grammar)
        )

    async def start(self) -> None:
        await self._model.start()
        self.awake = True


class ScriptedConnection(FixedConnection):
    """A demonstration without any model."""

    where = ", a script for demonstrations"

    def __init__(self, spec: EndpointSpec, _key: str | None, _manner: ConnectionOptions) -> None:
        super().__init__(Scripted(DEMO, spec.default_model or "scripted", repeat=True))


class UnavailableProvider(BaseProvider):
    """Provider of an unavailable server: every request fails with the reason."""

    call_form = CallForm.TAGGED

    def __init__(self, model: str, failure: Callable[[], ProviderFailed]) -> None:
        self.model = model
        self._failure = failure

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        return Scripted([[Raise(self._failure())]], self.model).stream(request)

    async def close(self) -> None:
        """Do nothing."""


class UnavailableConnection:
    """Connection to a server that cannot be reached from here, or whose keys cannot be read (`without_key`)."""

    only = None
    where = ""
    awake = False

    def __init__(self, problem: str, *, without_key: bool = False) -> None:
        self._problem = problem
        self._code, self._status = ("model_auth", 401) if without_key else ("model_not_found", 404)

    def _failure(self) -> ProviderFailed:
        return ProviderFailed(self._code, self._problem, retryable=False, status=self._status)

    def provider(self, model: str | None) -> Provider:
        return UnavailableProvider(model or ANY_MODEL, self._failure)

    async def start(self) -> None:
        raise self._failure()

    async def models(self, _key: str | None) -> list[str]:
        return []

    async def close(self) -> None:
        """Do nothing."""


def served_connection(spec: EndpointSpec, _key: str | None, manner: ConnectionOptions) -> ServerConnection:
    """Return the connection to a served model; outside of a server there is none."""
    if manner.serving is None:
        return UnavailableConnection("Served models run in the server only: start it, and ask it.")
    return manner.serving(spec, manner.clock, manner.transport)

"""Start-up: open the endpoints of the settings and the store; with none, discover a local server or embed a model."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from app.config.model_settings import DEFAULT
from app.config.protected_files import OwnFile, in_workspace
from app.config.settings import Settings
from app.config.sources import SettingsError
from app.core.clock import Clock
from app.core.endpoint_spec import EndpointSpec
from app.core.provider import Provider, ProviderFailed
from app.models.capabilities.discovery import KNOWN_SERVERS, discover
from app.models.capabilities.server_profiles import Profile
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.endpoint_factory import EndpointDefaults, EndpointFactory
from app.models.endpoints.key_sources import Keys
from app.models.endpoints.model_names import is_configured
from app.models.endpoints.model_registry import Models
from app.models.endpoints.registry import EndpointRegistry, endpoint_spec
from app.models.http.client import model_client
from app.models.server_connection import ConnectionOptions
from app.models.serving.lazy_pool import Serving
from app.models.tokens.counter import create_counter
from app.models.wire.hosted_provider import ANY_MODEL
from app.redaction.redactor import Redactor
from app.replicas.secret_store import SecretStore
from app.storage.changes import reload_forever
from app.storage.endpoints import EndpointRow
from app.storage.kill_switch import KillSwitch
from app.storage.store import Store
from tools.base.pause_check import Paused
from tools.base.tasks import in_background

KEYS = "keys"  # directory of keys sent at run time, inside the data directory

logger = logging.getLogger(__name__)

ChooseProvider = Callable[[Settings], Awaitable[tuple[Provider, str]]]


class OpenedModels(Struct, frozen=True):
    """The opened models. `about` is a sentence for the log that names the default model and the reason for it."""

    models: Models
    registry: EndpointRegistry
    about: str


@asynccontextmanager
async def open_models(
    settings: Settings,
    store: Store,
    redactor: Redactor,
    environ: Mapping[str, str],
    choose: ChooseProvider | None = None,
    *,
    known_servers: Sequence[Profile] = KNOWN_SERVERS,
    switch: KillSwitch | None = None,
    vault: SecretStore | None = None,
) -> AsyncGenerator[OpenedModels, None]:
    """Open all endpoints, and keep them in sync with the store until the context ends.

    `choose` returns a provider to use instead of the configured one. While `switch` is paused, no server is contacted
    and no embedded model is loaded. Raises SettingsError for invalid keys, model names or tokenizers, and StoreFailed.
    """
    switch = switch or KillSwitch.always_on(store)
    serving = Serving(settings, store, switch)
    factory = build_endpoint_factory(settings, redactor, environ, serving, vault)
    registry = EndpointRegistry(factory, store, switch.unpaused, serving)
    try:
        opened = await _open(registry, settings, choose, known_servers, switch)
        for problem in opened.models.labels.unmatched(opened.models.endpoints):
            logger.warning("%s", problem)
        async with in_background(reload_forever(registry.reload, "endpoints"), "endpoints"):
            registry.learn()
            yield opened
    finally:
        await registry.close()


def build_endpoint_factory(
    settings: Settings,
    redactor: Redactor,
    environ: Mapping[str, str],
    serving: Serving | None = None,
    vault: SecretStore | None = None,
) -> EndpointFactory:
    common = EndpointDefaults(
        settings.tool_calls,
        settings.model_temperature,
        settings.model_inactivity_s,
        settings.window,
        settings.tool_grammar,
    )
    options = ConnectionOptions(Clock(settings.time_zone), settings.transport, serving.connect if serving else None)
    return EndpointFactory(
        common,
        options,
        prices=settings.prices,
        environ=environ,
        folder=settings.data_dir / KEYS,
        redactor=redactor,
        vault=vault,
    )


async def _open(
    registry: EndpointRegistry,
    settings: Settings,
    choose: ChooseProvider | None,
    known_servers: Sequence[Profile],
    switch: KillSwitch,
) -> OpenedModels:
    about, why = "", "as configured"
    factory = registry.factory
    rows = await registry.rows()
    # It may be another workspace than when they were added.
    if inside := in_workspace(own_key_files(rows), settings.workspace):
        raise SettingsError(inside)
    try_fallback = names_other_endpoint(settings, [row.name for row in rows])
    own = None if try_fallback else settings.model
    if choose:
        provider, about = await choose(settings)
        registry.put(factory.wrap(DEFAULT, provider))
    elif settings.model_url:
        spec = EndpointSpec(url=settings.model_url, model=own)
        registry.put(factory.create(DEFAULT, spec, "settings", settings_keys(settings)))
    for name, spec in settings.endpoints.items():
        registry.put(factory.create(name, spec, "settings"))
    await registry.reload()
    if not registry:
        endpoint, why = await discover_endpoint(factory, own, settings_keys(settings), known_servers)
        registry.put(endpoint)
    models = Models(
        registry,
        settings.aliases,
        settings.fallback,
        settings.utility,
        fallbacks=settings.fallbacks,
        wanted=settings.model if try_fallback else wanted_model(own, registry),
        most_characters=settings.max_answer_characters,
        labels=settings.label_policy,
        check_not_paused=switch.check,
    )
    check_model_names(models)
    about = about or await prepare_default_model(models, why, switch)
    if settings.tokenizer:
        default = models.default
        default.use_counter(await create_counter(default.provider, models.endpoint.spec.window, settings.tokenizer))
    return OpenedModels(models, registry, about)


def own_key_files(rows: Iterable[EndpointRow]) -> Iterator[OwnFile]:
    """Yield the key files of endpoints that were added at run time."""
    for row in rows:
        for file in (endpoint_spec(row) or EndpointSpec(url="embedded:")).key_file:
            advice = f"Move it, and add the endpoint again: dragoman endpoint add {row.name}."
            yield OwnFile(f"The key_file of {row.name}", Path(file), advice)


def names_other_endpoint(settings: Settings, added: Collection[str]) -> bool:
    """Return whether `model` is an alias or `endpoint/model`, and so not a model of `model_url`."""
    model = settings.model or ""
    head, slash, _ = model.partition("/")
    return model in settings.aliases or bool(slash and (head in settings.endpoints or head in added))


def wanted_model(own: str | None, registry: EndpointRegistry) -> str | None:
    """Return the model of the settings by its full name; None if that of the first endpoint is meant."""
    first = next(iter(registry.values()))
    if not own or DEFAULT in registry or first.origin not in ("settings", "added"):
        return None
    return own if is_configured(own, {}, registry) else f"{first.name}/{own}"


def specs_of(settings: Settings, rows: Iterable[EndpointRow] = ()) -> dict[str, EndpointSpec]:
    """The endpoints of the database, and those of the settings, which have precedence."""
    added = {row.name: spec for row in rows if (spec := endpoint_spec(row))}
    own = {DEFAULT: EndpointSpec(url=settings.model_url, model=settings.model)} if settings.model_url else {}
    return added | own | dict(settings.endpoints)


def keys_of(settings: Settings, name: str) -> Keys | None:
    """The keys of the settings for their own endpoint; others have theirs in their entry."""
    return settings_keys(settings) if name == DEFAULT and settings.model_url else None


def settings_keys(settings: Settings) -> Keys:
    return Keys((settings.model_key.get_secret_value(),) if settings.model_key else ())


async def discover_endpoint(
    factory: EndpointFactory, model: str | None, keys: Keys, known_servers: Sequence[Profile]
) -> tuple[Endpoint, str]:
    """Return a model server that runs on this machine, else the embedded model; and the reason."""
    async with model_client("http://127.0.0.1") as client:
        known = await discover(client, known_servers)
    if known is None:
        embedded = factory.create("embedded", EndpointSpec(url="embedded:"), "built in")
        return embedded, "no server is configured, and none answers on a well-known port"
    name = re.sub(r"[^a-z0-9]+", "-", known.server.name.lower())
    spec = EndpointSpec(url=known.server.base_url, model=model or known.model)
    return factory.create(name, spec, "found", keys), f"found on the port of {known.server.name}"


def check_model_names(models: Models) -> None:
    """Raise SettingsError for invalid model names, and for a default endpoint with missing keys."""
    endpoints = ", ".join(models.endpoints)
    problems = [
        f"{setting} names {name!a}, which no endpoint has. Write ENDPOINT/MODEL; endpoints are {endpoints}."
        for setting, name in models.invalid_names()
    ]
    if not problems and (problem := models.endpoint.problem):
        problems.append(problem)
    if problems:
        raise SettingsError(problems)


async def prepare_default_model(models: Models, why: str, switch: KillSwitch) -> str:
    """Start the default model if possible; return a sentence that names it and the reason for it."""
    endpoint = models.endpoint
    problem = ""
    try:
        switch.check()
    except Paused as paused:
        return f"Model: {models.default.name}, not contacted yet. {paused}"
    where = endpoint.connection.where
    if endpoint.is_open:
        await endpoint.learn()
        problem = endpoint.last_error
    try:
        await endpoint.connection.start()
    except ProviderFailed as failure:
        return f"No model yet ({why}). {failure.message}"
    if (model := models.default.provider.model) == ANY_MODEL:
        return f"Model: the first one that {where.removeprefix(' at ')} serves, once it answers ({why}). {problem}"
    return f"Model: {model}{where} ({why})."

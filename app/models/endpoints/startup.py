"""Which models there are when dragoman starts: those of the settings, those that were added, else what is found."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.config.model_settings import DEFAULT
from app.config.protected_files import OwnFile, in_workspace
from app.config.settings import Settings
from app.config.sources import SettingsError
from app.core.clock import Clock
from app.core.endpoint_spec import EndpointSpec
from app.core.provider import Provider, ProviderFailed
from app.models.capabilities.discovery import KNOWN_SERVERS, KnownServer, discover
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.endpoint_factory import Common, Opener
from app.models.endpoints.key_sources import Keys
from app.models.endpoints.model_names import is_spelled_out
from app.models.endpoints.model_registry import Models
from app.models.endpoints.registry import Registry, spec_of
from app.models.http.client import model_client
from app.models.server_connection import Manner
from app.models.tokens.counter import opened_counter
from app.models.wire.openai.provider import ANY_MODEL
from app.redaction.redactor import Redactor
from app.storage.endpoints import EndpointRow
from app.storage.kill_switch import KillSwitch
from app.storage.store import Store
from tools.base.pause_check import Paused

KEYS = "keys"  # the folder of keys that were sent, in the data directory

Choose = Callable[[Settings], Awaitable[tuple[Provider, str]]]


@dataclass(frozen=True, slots=True)
class Opened:
    """`about` is a sentence: which model answers, and why that one."""

    models: Models
    registry: Registry
    about: str


@asynccontextmanager
async def opened_models(
    settings: Settings,
    store: Store,
    redactor: Redactor,
    environ: Mapping[str, str],
    choose: Choose | None = None,
    known_servers: Sequence[KnownServer] = KNOWN_SERVERS,
    switch: KillSwitch | None = None,
) -> AsyncGenerator[Opened, None]:
    """`choose` gives a provider that takes the place of the one that the settings name.

    While `switch` is paused no server is asked what it has or can, and no embedded model is loaded.

    Raises SettingsError where they name keys, models or a tokenizer that are not there, StoreFailed.
    """
    switch = switch or KillSwitch.always_on(store)
    registry = Registry(opener_of(settings, redactor, environ), store, switch.unpaused)
    try:
        opened = await _opened(registry, settings, choose, known_servers, switch)
        opened.models.may_ask = switch.check
        opened.models.most_characters = settings.max_answer_characters
        watching = asyncio.create_task(registry.watch_for_ever(), name="endpoints")
        try:
            registry.learn()
            yield opened
        finally:
            watching.cancel()
            await asyncio.wait([watching])
    finally:
        await registry.close()


def opener_of(settings: Settings, redactor: Redactor, environ: Mapping[str, str]) -> Opener:
    common = Common(settings.tool_calls, settings.model_temperature, settings.model_inactivity_s, settings.window)
    manner = Manner(Clock(settings.time_zone), settings.transport)
    return Opener(common, manner, settings.prices, environ, settings.data_dir / KEYS, redactor)


async def _opened(
    registry: Registry,
    settings: Settings,
    choose: Choose | None,
    known_servers: Sequence[KnownServer],
    switch: KillSwitch,
) -> Opened:
    about, why, opener = "", "as configured", registry.opener
    rows = await registry.rows()
    if inside := in_workspace(
        key_files_of(rows), settings.workspace
    ):  # it may be another one than when they were added
        raise SettingsError(inside)
    elsewhere = is_elsewhere(settings, [row.name for row in rows])
    own = None if elsewhere else settings.model
    if choose:
        provider, about = await choose(settings)
        registry.put(opener.around(DEFAULT, provider))
    elif settings.model_url:
        spec = EndpointSpec(url=settings.model_url, model=own)
        registry.put(opener.opened(DEFAULT, spec, "settings", key_of(settings)))
    for name, spec in settings.endpoints.items():
        registry.put(opener.opened(name, spec, "settings"))
    await registry.reload()
    if not registry:
        endpoint, why = await found(opener, own, key_of(settings), known_servers)
        registry.put(endpoint)
    models = Models(registry, settings.aliases, settings.fallback, settings.utility)
    if elsewhere:
        models.wanted = settings.model
    elif own and DEFAULT not in registry and models.first.origin in ("settings", "added"):
        models.wanted = own if is_spelled_out(own, {}, registry) else f"{models.first.name}/{own}"
    check(models)
    about = about or await readied(models, why, switch)
    if settings.tokenizer:
        default = models.default
        default.count_with(await opened_counter(default.provider, models.endpoint.spec.window, settings.tokenizer))
    return Opened(models, registry, about)


def key_files_of(rows: Iterable[EndpointRow]) -> Iterator[OwnFile]:
    """The files of keys of endpoints that were added."""
    for row in rows:
        for file in (spec_of(row) or EndpointSpec(url="embedded:")).key_file:
            advice = f"Move it, and add the endpoint again: dragoman endpoint add {row.name}."
            yield OwnFile(f"The key_file of {row.name}", Path(file), advice)


def is_elsewhere(settings: Settings, added: Collection[str]) -> bool:
    """Whether `model` is an alias, or `endpoint/model`: not a name that the server of `model_url` knows."""
    model = settings.model or ""
    head, slash, _ = model.partition("/")
    return model in settings.aliases or bool(slash and (head in settings.endpoints or head in added))


def key_of(settings: Settings) -> Keys:
    return Keys((settings.model_key.get_secret_value(),) if settings.model_key else ())


async def found(
    opener: Opener, model: str | None, keys: Keys, known_servers: Sequence[KnownServer]
) -> tuple[Endpoint, str]:
    """A server that runs already on this machine, else the embedded model; and why."""
    async with model_client("http://127.0.0.1") as client:
        known = await discover(client, known_servers)
    if known is None:
        embedded = opener.opened("embedded", EndpointSpec(url="embedded:"), "built in")
        return embedded, "no server is configured, and none answers on a well-known port"
    name = re.sub(r"[^a-z0-9]+", "-", known.server.name.lower())
    spec = EndpointSpec(url=known.server.base_url, model=model or known.model)
    return opener.opened(name, spec, "found", keys), f"found on the port of {known.server.name}"


def check(models: Models) -> None:
    """Raises SettingsError for names that cannot be right, and for a default endpoint without its keys."""
    endpoints = ", ".join(models.endpoints)
    problems = [
        f"{setting} names {name!a}, which no endpoint is sure to have. Write ENDPOINT/MODEL; endpoints are {endpoints}."
        for setting, name in models.wrong()
    ]
    if not problems and (problem := models.endpoint.problem):
        problems.append(problem)
    if problems:
        raise SettingsError(problems)


async def readied(models: Models, why: str, switch: KillSwitch) -> str:
    """Have the default model ready, as far as it can be; a sentence for people: which it is, and why that one."""
    endpoint, problem = models.endpoint, ""
    try:
        switch.check()
    except Paused as paused:
        return f"Model: {models.default.name}, which is not asked for anything yet. {paused}"
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

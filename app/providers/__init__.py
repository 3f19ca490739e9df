"""The models that dragoman can talk to: PROVIDERS, a row per kind, and the choice of one at start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from app.clock import Clock
from app.provider import Provider, ProviderFailed
from app.providers.discovery import KNOWN_SERVERS, KnownServer, discover
from app.providers.embedded import EmbeddedModel, EmbeddedProvider
from app.providers.failures import shown_url
from app.providers.http import INACTIVITY_S, base_url_of, model_client
from app.providers.openai_chat import ANY_MODEL, Defaults, OpenAIChat
from app.providers.scripted import DEMO, Scripted

__all__ = ["PROVIDERS", "Choice", "Wanted", "choose_provider"]


ToolCalls = Literal["auto", "fenced"]


class Choice(NamedTuple):
    """A provider to use, and one sentence for people: which model it is and why."""

    provider: Provider
    sentence: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the settings say of the model, as plain values."""

    model_url: str | None = None
    model: str | None = None
    key: str | None = None
    inactivity_s: float = INACTIVITY_S
    tool_calls: ToolCalls = "auto"
    temperature: float | None = None
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class ProviderKind:
    """One kind of provider. `schemes` are those of the model URLs that ask for it."""

    name: str
    schemes: tuple[str, ...]
    open: Callable[[Wanted, str], Awaitable[Choice]]


async def open_openai(wanted: Wanted, why: str) -> Choice:
    """The named server. If it is down now, each run says so until it is up."""
    base_url = base_url_of(wanted.model_url or "")
    client = model_client(base_url, inactivity_s=wanted.inactivity_s)
    model, native = wanted.model or ANY_MODEL, wanted.tool_calls != "fenced"
    defaults = Defaults(None, wanted.temperature)
    provider = OpenAIChat(
        client, base_url, model, wanted.key, native_tools=native, defaults=defaults, clock=wanted.clock
    )
    where = shown_url(base_url)
    try:
        if not wanted.model:
            await provider.name_model()
    except ProviderFailed as failure:
        return Choice(provider, f"Model: the first one that {where} serves, once it answers ({why}). {failure.message}")
    return Choice(provider, f"Model: {provider.model} at {where} ({why}).")


async def open_embedded(wanted: Wanted, why: str) -> Choice:
    """The embedded model. If it cannot start, each run says what is missing."""
    server = EmbeddedModel()
    client = model_client("http://127.0.0.1", inactivity_s=wanted.inactivity_s)
    provider = EmbeddedProvider(client, server, temperature=wanted.temperature)
    try:
        await provider.start()
    except ProviderFailed as failure:
        return Choice(provider, f"No model yet ({why}). {failure.message}")
    return Choice(provider, f"Model: {provider.model}, embedded ({why}).")


async def open_scripted(wanted: Wanted, why: str) -> Choice:
    """A demonstration without any model."""
    return Choice(
        Scripted(DEMO, wanted.model or "scripted", repeat=True), f"Model: a script for demonstrations ({why})."
    )


PROVIDERS: tuple[ProviderKind, ...] = (
    ProviderKind("openai-compatible", ("http", "https"), open_openai),
    ProviderKind("embedded", ("embedded",), open_embedded),
    ProviderKind("scripted", ("scripted",), open_scripted),
)


async def choose_provider(
    model_url: str | None = None,
    model: str | None = None,
    key: str | None = None,
    *,
    inactivity_s: float = INACTIVITY_S,
    tool_calls: ToolCalls = "auto",
    temperature: float | None = None,
    clock: Clock | None = None,
    known_servers: Sequence[KnownServer] = KNOWN_SERVERS,
) -> Choice:
    """The provider that the settings name, else a local server on a well-known port, else the embedded model.

    `model_url` is a base URL ending in `/v1`, or `embedded:` or `scripted:`. A server or package that is missing does
    not fail here: the sentence says so, and so does every run. `tool_calls` is for servers that one can offer tools:
    `auto` does (and stops when they are refused), `fenced` teaches them in the prompt instead.
    Raises ValueError for a URL that cannot be one.
    """
    wanted = Wanted(model_url, model, key, inactivity_s, tool_calls, temperature, clock)
    if model_url:
        return await kind_of(model_url).open(wanted, "as configured")
    async with model_client("http://127.0.0.1") as client:
        found = await discover(client, known_servers)
    if found is None:
        return await open_embedded(wanted, "no server is configured, and none answers on a well-known port")
    local = replace(wanted, model_url=found.server.base_url, model=model or found.model)
    return await open_openai(local, f"found on the port of {found.server.name}")


def kind_of(model_url: str) -> ProviderKind:
    """The row for a model URL. Raises ValueError."""
    scheme = model_url.partition(":")[0]
    kind = next((kind for kind in PROVIDERS if scheme.lower() in kind.schemes), None)
    if kind is None or (kind.open is open_openai and not urlsplit(model_url).hostname):
        schemes = ", ".join(f"{scheme}:" for kind in PROVIDERS for scheme in kind.schemes)
        raise ValueError(
            f"DRAGOMAN_MODEL_URL is {shown_url(model_url)!r}: it must start with one of {schemes} and name a host, "
            "such as http://127.0.0.1:8080/v1."
        )
    return kind

"""Probe a server for the abilities of a model: PROBE_PAGES, a row for each page that reports them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx2
from msgspec import Struct, field

from app.core.provider import Ability
from app.models.capabilities.capability_readings import OF_DETAILS, OF_ENTRY, OF_PROPERTIES, Reading, entry_of, read
from app.models.capabilities.prompt_prefill import prefill_hint
from app.models.capabilities.server_counts import LLAMA_CPP
from app.models.http.client import NoAnswer
from app.models.http.served_model import ServedModel

AbilityMap = Mapping[str, Ability]


class ProbeResult(Struct, frozen=True):
    """Abilities that a server reports. If it is not `complete`, probe again soon.

    `failed`: the server did not answer as it should. `refused`: nothing listens there.
    """

    abilities: AbilityMap = field(default_factory=dict)
    complete: bool = False
    failed: bool = False
    refused: bool = False


class ProbePage(Struct, frozen=True):
    """A page to request, by POST if there is a `body`; `find` extracts the part of the answer that the rows read.

    `local`: only local servers have such a page.
    """

    name: str
    url: Callable[[ServedModel], str]
    rows: Sequence[Reading]
    find: Callable[[Any, str], Any] = entry_of
    body: Callable[[str], Mapping[str, Any]] | None = None
    local: bool = False


def all_of(answer: Any, _model: str) -> Any:
    return answer


def by_model(model: str) -> Mapping[str, Any]:
    return {"model": model}


# Requested in this order until one reports the window.
PROBE_PAGES = (
    ProbePage("/v1/models", lambda one: f"{one.base_url}/models{one.list_query}", OF_ENTRY),
    ProbePage("/props", lambda one: f"{one.root}/props?model={quote(one.model, safe='')}", OF_PROPERTIES, all_of),
    ProbePage("/api/v0/models", lambda one: f"{one.root}/api/v0/models", OF_ENTRY, local=True),  # LM Studio
    ProbePage("/api/v1/models", lambda one: f"{one.root}/api/v1/models", OF_ENTRY, local=True),  # LM Studio, newer
    ProbePage("/api/show", lambda one: f"{one.root}/api/show", OF_DETAILS, all_of, by_model, local=True),  # Ollama
    ProbePage("/api/ps", lambda one: f"{one.root}/api/ps", OF_ENTRY, local=True),  # Ollama: loaded models
)


async def probe_model(endpoint: ServedModel, limit_s: float) -> ProbeResult:
    """Probe all pages. Never raises."""
    abilities: dict[str, Ability] = {}
    try:
        async with asyncio.timeout(limit_s):
            for page in PROBE_PAGES:
                if endpoint.local or not page.local:
                    abilities = {**await read_page(page, endpoint), **abilities}  # the first page counts
                if "window" in abilities:
                    break
        counting = abilities.get("counting")
        if counting and counting.value == LLAMA_CPP.name:  # only llama.cpp renders prompts
            async with asyncio.timeout(limit_s):
                if hint := await prefill_hint(endpoint):
                    abilities[hint.name] = hint
    except (TimeoutError, httpx2.HTTPError, NoAnswer) as error:
        return ProbeResult(abilities, failed=True, refused=isinstance(error, httpx2.ConnectError))
    # A local server may report the window later, once it has loaded the model.
    return ProbeResult(abilities, "window" in abilities or not endpoint.local)


async def read_page(page: ProbePage, endpoint: ServedModel) -> AbilityMap:
    """Return the abilities on one page. Raises NoAnswer if a retry may help, httpx2.HTTPError."""
    body = page.body(endpoint.model) if page.body else None
    answer = await endpoint.ask_if_supported("POST" if body else "GET", page.url(endpoint), body)
    facts = read(page.rows, page.find(answer, endpoint.model))
    return {name: Ability(name, value, "server", page.name) for name, value in facts.items()}

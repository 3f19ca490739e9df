"""What a server says of a model of its own accord: PLACES, a row for each page where servers say it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx2

from app.core.provider import Ability
from app.models.capabilities.capability_readings import OF_DETAILS, OF_ENTRY, OF_PROPERTIES, Reading, entry_of, read
from app.models.capabilities.prompt_prefill import prefill_hint
from app.models.capabilities.server_counts import LLAMA_CPP
from app.models.http.client import NoAnswer
from app.models.http.served_model import ServedModel

AbilityMap = Mapping[str, Ability]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a server has said of a model. If it is not `whole`, it is worth asking again soon."""

    told: AbilityMap = field(default_factory=dict)
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ProbePage:
    """A page to ask for, by POST if there is a `body`; `find` gives the part of its answer that the rows read.

    `local`: hosted services have no such page and are not asked.
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


# Asked in this order until one knows the window.
PROBE_PAGES = (
    ProbePage("/v1/models", lambda one: f"{one.base_url}/models{one.list_query}", OF_ENTRY),
    ProbePage("/props", lambda one: f"{one.root}/props?model={quote(one.model, safe='')}", OF_PROPERTIES, all_of),
    ProbePage("/api/v0/models", lambda one: f"{one.root}/api/v0/models", OF_ENTRY, local=True),  # LM Studio
    ProbePage("/api/v1/models", lambda one: f"{one.root}/api/v1/models", OF_ENTRY, local=True),  # LM Studio, newer
    ProbePage("/api/show", lambda one: f"{one.root}/api/show", OF_DETAILS, all_of, by_model, local=True),  # Ollama
    ProbePage(
        "/api/ps", lambda one: f"{one.root}/api/ps", OF_ENTRY, local=True
    ),  # Ollama: what it has loaded, how large
)


async def probe_model(endpoint: ServedModel, limit_s: float) -> ProbeResult:
    """What the server says. Never raises."""
    told: dict[str, Ability] = {}
    try:
        async with asyncio.timeout(limit_s):
            for place in PROBE_PAGES:
                if endpoint.local or not place.local:
                    told = {**await read_page(place, endpoint), **told}  # what was said first holds
                if "window" in told:
                    break
        async with asyncio.timeout(limit_s):
            told |= await parser_hints(endpoint, told)
    except (TimeoutError, httpx2.HTTPError, NoAnswer):
        return ProbeResult(told)
    # Of a local server that does not tell the window: it may when it has loaded the model.
    return ProbeResult(told, "window" in told or not endpoint.local)


async def read_page(place: ProbePage, endpoint: ServedModel) -> AbilityMap:
    """Raises NoAnswer if it may answer later, httpx2.HTTPError."""
    body = place.body(endpoint.model) if place.body else None
    try:
        answer = await endpoint.ask("POST" if body else "GET", place.url(endpoint), body)
    except NoAnswer as refusal:
        if not refusal.lasting:
            raise
        return {}
    facts = read(place.rows, place.find(answer, endpoint.model))
    return {name: Ability(name, value, "server", place.name) for name, value in facts.items()}


async def parser_hints(endpoint: ServedModel, told: AbilityMap) -> AbilityMap:
    """For the parser; only llama.cpp shows its prompts. Raises NoAnswer, httpx2.HTTPError."""
    if "counting" not in told or told["counting"].value != LLAMA_CPP.name:
        return {}
    hint = await prefill_hint(endpoint)
    return {hint.name: hint} if hint else {}

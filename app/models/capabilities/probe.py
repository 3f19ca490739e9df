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
from app.models.capabilities.prompt_prefill import prefilled
from app.models.http.client import NoAnswer
from app.models.served_model import Endpoint
from app.models.tokens.server_counts import LLAMA_CPP

Told = Mapping[str, Ability]


@dataclass(frozen=True, slots=True)
class Known:
    """What a server has said of a model. If it is not `whole`, it is worth asking again soon."""

    told: Told = field(default_factory=dict)
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A page to ask for, by POST if there is a `body`; `find` gives the part of its answer that the rows read.

    `local`: hosted services have no such page and are not asked.
    """

    name: str
    url: Callable[[Endpoint], str]
    rows: Sequence[Reading]
    find: Callable[[Any, str], Any] = entry_of
    body: Callable[[str], Mapping[str, Any]] | None = None
    local: bool = False


def all_of(answer: Any, _model: str) -> Any:
    return answer


def by_model(model: str) -> Mapping[str, Any]:
    return {"model": model}


# Asked in this order until one knows the window.
PLACES = (
    Place("/v1/models", lambda one: f"{one.base_url}/models{one.list_query}", OF_ENTRY),
    Place("/props", lambda one: f"{one.root}/props?model={quote(one.model, safe='')}", OF_PROPERTIES, all_of),
    Place("/api/v0/models", lambda one: f"{one.root}/api/v0/models", OF_ENTRY, local=True),  # LM Studio
    Place("/api/v1/models", lambda one: f"{one.root}/api/v1/models", OF_ENTRY, local=True),  # LM Studio, newer
    Place("/api/show", lambda one: f"{one.root}/api/show", OF_DETAILS, all_of, by_model, local=True),  # Ollama
    Place("/api/ps", lambda one: f"{one.root}/api/ps", OF_ENTRY, local=True),  # Ollama: what it has loaded, how large
)


async def looked_up(endpoint: Endpoint, limit_s: float) -> Known:
    """What the server says. Never raises."""
    told: dict[str, Ability] = {}
    try:
        async with asyncio.timeout(limit_s):
            for place in PLACES:
                if endpoint.local or not place.local:
                    told = {**await told_by(place, endpoint), **told}  # what was said first holds
                if "window" in told:
                    break
        async with asyncio.timeout(limit_s):
            told |= await hints(endpoint, told)
    except (TimeoutError, httpx2.HTTPError, NoAnswer):
        return Known(told)
    # Of a local server that does not tell the window: it may when it has loaded the model.
    return Known(told, "window" in told or not endpoint.local)


async def told_by(place: Place, endpoint: Endpoint) -> Told:
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


async def hints(endpoint: Endpoint, told: Told) -> Told:
    """For the parser; only llama.cpp shows its prompts. Raises NoAnswer, httpx2.HTTPError."""
    if "counting" not in told or told["counting"].value != LLAMA_CPP.name:
        return {}
    hint = await prefilled(endpoint)
    return {hint.name: hint} if hint else {}

"""Kind of a model server at a given address, by a page that only that kind has: KIND_PAGES, a row each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
from msgspec import Struct

from app.models.http.client import NoAnswer, json_answer, model_client

LIMIT_S = 5.0
MOST_BYTES = 1 << 20


class KindPage(Struct, frozen=True):
    """A page below the server's root, and a test of its answer."""

    kind: str
    path: str
    fits: Callable[[Any], bool]


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda answer: isinstance(answer, dict) and any(name in answer for name in names)


KIND_PAGES = (
    KindPage("llama.cpp", "/props", _has("default_generation_settings", "build_info")),
    KindPage("Ollama", "/api/version", _has("version")),
    KindPage("LM Studio", "/api/v0/models", _has("data")),
    KindPage("vLLM", "/version", _has("version")),
)


async def server_kind(base_url: str) -> str | None:
    """Return the kind of the server, None for another one. Never raises."""
    root = base_url.removesuffix("/v1")
    async with model_client(base_url) as client:
        for page in KIND_PAGES:
            try:
                async with asyncio.timeout(LIMIT_S):
                    if page.fits(await json_answer(client, "GET", f"{root}{page.path}", most=MOST_BYTES)):
                        return page.kind
            except (NoAnswer, httpx2.HTTPError, TimeoutError):
                continue
    return None

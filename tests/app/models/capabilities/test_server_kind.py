"""Kinds of model servers, found by the page that each of them has."""

from __future__ import annotations

import json

import pytest

from app.models.capabilities.server_kind import server_kind
from tests.support.models.endpoints import NOWHERE, listing
from tests.support.models.upstream import Act, Paths, answer, upstream

pytestmark = pytest.mark.anyio
PAGES: dict[str, tuple[dict[str, Act], str | None]] = {
    "llama.cpp": ({"/props": answer(json.dumps({"default_generation_settings": {}}))}, "llama.cpp"),
    "Ollama": ({"/api/version": answer(json.dumps({"version": "0.12.0"}))}, "Ollama"),
    "LM Studio": ({"/api/v0/models": answer(json.dumps({"data": []}))}, "LM Studio"),
    "vLLM": ({"/version": answer(json.dumps({"version": "0.11.0"}))}, "vLLM"),
    "another": ({"/version": answer("<html>version</html>")}, None),
    "a list": ({"/version": answer(json.dumps(["version"]))}, None),
}


@pytest.mark.parametrize("name", PAGES)
async def test_a_server_is_known_by_its_page(name: str) -> None:
    pages, kind = PAGES[name]
    missing = {path: answer("", 404) for path in ("/props", "/api/version", "/api/v0/models", "/version")}
    paths = Paths({"/v1/models": listing("m"), **missing, **pages})
    async with upstream(paths, repeat=True) as server:
        paths.server = server
        assert await server_kind(server.base_url) == kind


async def test_no_server_has_no_kind() -> None:
    assert await server_kind(NOWHERE) is None

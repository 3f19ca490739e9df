"""Endpoints for tests: opened from settings, with model servers on real sockets behind them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from app.core.messages import Message
from app.core.provider import ModelRequest
from app.models.capabilities.server_profiles import Profile
from app.models.endpoints.model_registry import Models
from app.models.endpoints.startup import OpenedModels, open_models
from app.redaction.redactor import Redactor
from app.storage.sqlite.store import SQLiteStore
from tests.support.models.upstream import Act, Paths, Upstream, answer, stream, upstream
from tests.support.server.serving import settings_in

LIMIT_S = 30
HELLO = ModelRequest([Message("user", "Hello")])
NOWHERE = "http://127.0.0.1:9/v1"  # where no server is
SAID = stream('data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')


def listing(*names: str) -> Act:
    return answer(json.dumps({"data": [{"id": name} for name in names]}))


@asynccontextmanager
async def model_server(*names: str) -> AsyncGenerator[Upstream, None]:
    """Lists these models, and says `Hi` as each."""
    paths = Paths({"/v1/models": listing(*names), "/v1/chat/completions": SAID})
    async with upstream(paths, repeat=True) as server:
        paths.server = server
        yield server


@asynccontextmanager
async def opened(
    folder: Path,
    environ: Mapping[str, str] | None = None,
    found: Profile | None = None,
    redactor: Redactor | None = None,
    **flags: object,
) -> AsyncGenerator[OpenedModels, None]:
    """Tables are given as Python has them."""
    written = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in flags.items()}
    settings = settings_in(folder, **written)
    known, known_to_all = ([found] if found else []), redactor or Redactor()
    store = await SQLiteStore.open(folder / "data" / "test.db")
    try:
        async with open_models(settings, store, known_to_all, environ or {}, known_servers=known) as models:
            yield models
    finally:
        await store.close()


def running_server(url: str = NOWHERE, **more: object) -> dict[str, object]:
    return {"url": url, **more}


async def asked(models: Models, name: str | None = None) -> None:
    """One request to the model of that name; who says what is for the test to see."""
    async with asyncio.timeout(LIMIT_S), aclosing(models.route(name, "ann").stream(HELLO)) as pieces:
        assert [piece async for piece in pieces]

"""Twenty clients at a time: the model answers none of them before it has the requests of all."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path

import pytest

from tests.clients.catalogue import PYTHON_CLIENTS
from tests.clients.harness import AT_ONCE, dragoman, needed, observed
from tests.clients.model_server import TOGETHER

pytestmark = pytest.mark.anyio
OPENAI = PYTHON_CLIENTS[0]
WAYS = ("chat", "chat-stream", "responses", "responses-stream", "responses-helper")
MODELS = ("native", "hermes", "dragoman/native", "dragoman/hermes")


async def test_twenty_clients_are_answered_at_a_time(tmp_path: Path) -> None:
    needed(OPENAI)
    (tmp_path / "work").mkdir()
    async with asyncio.timeout(90), dragoman(tmp_path) as target:
        jobs = [
            {"id": f"{way}:{model}", "way": way, "url": target.url, "key": target.key, "model": model}
            | {"prompts": [f"scenario together (job {number})."]}
            for number, (way, model) in enumerate(product(WAYS, MODELS))
        ]
        assert len(jobs) == TOGETHER == AT_ONCE
        seen = await observed(OPENAI, jobs, tmp_path)
    assert {name: (row["texts"], row["error"]) for name, row in seen.items()} == {
        job["id"]: (["All are here."], None) for job in jobs
    }

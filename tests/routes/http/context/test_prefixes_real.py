"""The cache of a real server: what llama.cpp has read of each prompt before, as it reports it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.models.embedded.provider import EmbeddedProvider
from app.models.embedded.supervisor import SMOLLM2, EmbeddedModel
from app.models.http.client import model_client
from tests.support.models.real_models import need_embedded
from tests.support.server.events import of_kind
from tests.support.server.long_conversations import CHATTER
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
LIMIT_S = 180
WINDOW, TURNS = 1024, 3
RE_READ = 8  # tokens of a prompt that llama.cpp reads again: its template ends otherwise


async def test_the_embedded_model_has_rounds_and_summaries_in_its_cache(tmp_path: Path) -> None:
    """It has one slot, in which a summary with a prompt of its own would take the place of the conversation."""
    need_embedded()
    small = EmbeddedModel(replace(SMOLLM2, context=WINDOW), slots=1)
    model = EmbeddedProvider(model_client("http://127.0.0.1"), small)
    usages, session = list[dict[str, Any]](), dict[str, Any]()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, summarise_at=1, summary_time_limit_s=90) as served:
        for number in range(TURNS):
            text = f"Part {number}. {CHATTER[:560]} Say yes."
            events = await served.chat(text, tools=[], max_output_tokens=4, **session)
            session = {"session": events[0]["session"]}
            usages += of_kind(events, "usage")
        answer = await served.client.post(f"/sessions/{session['session']}/compact")
        assert answer.status_code in (200, 202, 502), answer.text  # so small a model may write no notes
        runs = (await served.client.get(f"/sessions/{session['session']}")).json()["runs"]
        notes = of_kind(await served.events(runs[-1]["id"]), "usage")[0]
    for before, usage in pairwise(usages):
        assert usage["cached_tokens"] >= before["prompt_tokens"] - RE_READ
    question = notes["prompt_bytes"] - notes["prefix_bytes"]
    assert notes["prefix_break"] == "side_query" and question < 600
    assert notes["prompt_tokens"] - notes["cached_tokens"] < question / 3

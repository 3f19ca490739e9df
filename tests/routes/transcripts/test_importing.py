"""Conversations of other programs become sessions that go on here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
TRANSCRIPTS = Path(__file__).parents[3] / "fixtures/transcripts"
REAL = {"claude": "claude.jsonl", "codex": "codex.jsonl", "opencode": "opencode.json"}


async def imported(served: Served, kind: str, data: bytes | str) -> dict[str, Any]:
    answer = await served.client.post(f"/sessions/import?format={kind}", content=data)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("kind", REAL)
async def test_a_real_transcript_goes_on_here(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path, provider := Scripted(["It goes on."])) as served:
        done = await imported(served, kind, (TRANSCRIPTS / REAL[kind]).read_bytes())
        [one] = done["sessions"]
        assert (one["state"], done["skipped"]) == ("new", [])
        whole = (await served.client.get(f"/sessions/{one['session']}")).json()
        roles = [message["role"] for message in whole["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        print(json.dumps(whole, indent=1))
        log = (await served.client.get(f"/sessions/{one['session']}/log")).json()
        print(json.dumps(log, indent=1))
        events = await served.chat("Go on", session=one["session"])
        assert events[-1]["text"] == "It goes on."
        assert provider

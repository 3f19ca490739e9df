"""What is recorded of runs suffices to play them again: what chance, clocks and other runs have decided."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.config.display import SECRET
from app.config.settings import PATHS, Settings
from app.core.provider import ProviderFailed
from app.models.scripted import Pause, Raise, Reply, Scripted
from app.runs.recording.world import DECIDING
from tests.support.access.labelled import READ, labelled
from tests.support.golden.playing import same_again
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio
LIMIT_S = 60
TOUCH = "```bash\ntouch note.txt\n```\n"
DOWN = Raise(ProviderFailed("model_down", "Nobody is there.", retryable=True))


async def all_the_same(served: Served, least: int) -> None:
    rows = await served.services.store.ended_runs(0)
    assert len(rows) >= least
    for row in rows:
        await same_again(served.services, row.id)


@pytest.mark.parametrize("verdict", [[DOWN], ["FAIL", DOWN], "FAIL: no."])
async def test_a_side_query_ends_as_it_did(tmp_path: Path, verdict: Reply) -> None:
    model = Scripted([TOUCH, "Done.", verdict, "It was there before."])
    settings = serving(tmp_path, model, record=True, verify="true")
    async with asyncio.timeout(LIMIT_S), settings as served:
        await served.chat()
        await all_the_same(served, 1)


@pytest.mark.parametrize("verdict", [[DOWN], ["UNSAFE", Pause(asyncio.Event())]])
async def test_a_judgement_fails_as_it_did(tmp_path: Path, verdict: Reply) -> None:
    model = Scripted([TOUCH, verdict, "I could not.", "SAFE"])
    settings = serving(tmp_path, model, record=True, judge_output="true", judge_time_limit_s=1)
    async with asyncio.timeout(LIMIT_S), settings as served:
        await served.chat(approval="deny")
        await all_the_same(served, 1)


async def test_frames_are_the_same_where_a_log_has_labels(tmp_path: Path) -> None:
    async with labelled(tmp_path, [READ], ["ACME is fine."], record=True) as one:
        body = {"model": "dragoman/agent", "messages": [{"role": "user", "content": "What of ACME?"}]}
        assert (await one.served.client.post("/v1/chat/completions", json=body)).is_success
        await all_the_same(one.served, 1)


async def test_a_recording_has_none_of_the_settings_that_decide_nothing(tmp_path: Path) -> None:
    hook = '[[hooks]]\nname = "h"\non = "after_answer"\nkind = "observer"\nurl = "http://127.0.0.1:9/T0/s3cr3t-w0rd"\n'
    (tmp_path / "dragoman.toml").write_text(hook)
    private: dict[str, Any] = {"search_url": "http://search.example.org", "private_hosts": "db.example.org"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."]), record=True, **private) as served:
        run = (await served.chat())[0]["run"]
        answer = await served.client.get(f"/runs/{run}/recording")
        assert answer.is_success
        assert "s3cr3t" not in answer.text
        assert "example.org" not in answer.text
        await all_the_same(served, 1)


async def turn_that_asks(served: Served, session: str | None, scope: str) -> str:
    """Answer all questions of a turn; return its session."""
    body = {"session": session} if session else {}
    async with aclosing(served.turn(message="Do it.", **body)) as turn:
        started = await until(turn, "run.started")
        async for event in turn:
            if event["type"] == "approval.required":
                path = f"/runs/{started['run']}/approvals/{event['call']}"
                answer = await served.client.post(path, json={"decision": "approve", "scope": scope})
                assert answer.is_success, answer.text
    return str(started["session"])


async def test_grants_count_as_they_did(tmp_path: Path) -> None:
    script, write = "```bash\nsh script.sh\n```\n", "```write_file\nscript.sh\necho hi\n```\n"
    runs: Sequence[Sequence[str]] = [(script, script, "Once."), (script, write, script, "Again."), (script, "Last.")]
    model = Scripted([reply for one in runs for reply in one])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, record=True, unsafe_no_sandbox="true") as served:
        (tmp_path / "work" / "script.sh").write_text("echo hello\n")
        session = await turn_that_asks(served, None, "session")
        await turn_that_asks(served, session, "once")
        await turn_that_asks(served, session, "once")
        await all_the_same(served, 3)


async def test_the_settings_that_decide_are_settings() -> None:
    assert DECIDING - Settings.model_fields.keys() == set()
    assert set() == DECIDING & (SECRET | PATHS), "no keys, no folders"

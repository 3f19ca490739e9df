"""Live trials: a stored run with another model reaches nothing but that model and a copy of the workspace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.core.hook_rows import HookEvent
from app.core.provider import ModelRequest, Piece
from app.models.scripted import Pause, Scripted
from tests.support.access.people import bearer
from tests.support.server.serving import Served, Silence, serving

pytestmark = pytest.mark.anyio
LIMIT_S = 30
LIVE = {"model": "scripted", "live": True}


async def tried(
    served: Served, run: str, checks: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    body = LIVE | ({"checks": checks} if checks else {})
    answer = await served.client.post(f"/runs/{run}/replay", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


@pytest.mark.parametrize("flags", [{"unsafe_no_sandbox": "true"}, {"sandbox_network": "true"}])
async def test_a_live_trial_runs_no_command_that_could_leave_the_copy(tmp_path: Path, flags: dict[str, Any]) -> None:
    outside = tmp_path / "outside.txt"
    call = f"```bash\necho hi >> {outside}; echo hi >> inside.txt\n```\n"
    async with (
        asyncio.timeout(LIMIT_S),
        serving(tmp_path, Scripted([call, "Done."] * 2), record=True, **flags) as served,
    ):
        run = (await served.chat("Go", approval="auto"))[0]["run"]
        before = outside.read_text() if outside.exists() else None
        result = await tried(served, run, {"commands": [f"echo hi >> {outside}"]})
        assert result["now"]["text"] == "Done."
        assert [one["ok"] for one in result["checks"]] == [False]
        assert "sandbox" in result["checks"][0]["found"]
        assert (outside.read_text() if outside.exists() else None) == before
        assert (tmp_path / "work" / "inside.txt").read_text() == "hi\n"


async def test_a_command_of_a_check_has_the_rights_of_who_sends_it(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hello."] * 4), record=True) as served:
        for role, ok in (("guest", False), ("user", True)):
            headers = await bearer(served, f"a-{role}", role)
            answer = await served.client.post("/chat", json={"message": "Hi"}, headers=headers)
            result = await tried(served, answer.headers["x-run-id"], {"commands": ["true"]}, headers)
            assert [one["ok"] for one in result["checks"]] == [ok], result
            assert ok or "needs the role" in result["checks"][0]["found"]


async def test_no_observer_is_told_of_calls_that_are_tried(tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = json.dumps(["sh", "-c", f"cat >> {told}; echo >> {told}"])
    events = [on for on in HookEvent if on.rpartition("_")[2] != "model"]  # the model is asked for real
    rows = [f'[[hooks]]\nname = "{on}"\non = "{on}"\nkind = "observer"\ncommand = {command}\n' for on in events]
    (tmp_path / "dragoman.toml").write_text("".join(rows))
    script = Scripted(["```bash\necho hi\n```\n", "Done."] * 2)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, script, record=True) as served:
        run = (await served.chat("Go"))[0]["run"]
        hooks = served.services.factory.hooks
        assert hooks
        await hooks.informed()
        before = told.read_text()
        assert before
        assert (await tried(served, run))["now"]["text"] == "Done."
        await hooks.informed()
        assert told.read_text() == before


class Leaving(Scripted):
    """Says when an answer has ended, however that was."""

    def __init__(self, silence: Silence) -> None:
        super().__init__(["Hello.", [Pause(silence), "Too late."]])
        self.left = asyncio.Queue[int]()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        try:
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self.left.put_nowait(len(self.requests))


async def test_a_trial_ends_when_its_client_leaves(tmp_path: Path) -> None:
    model = Leaving(silence := Silence())
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, record=True) as served:
        run = (await served.chat("Go"))[0]["run"]
        assert await model.left.get() == 1
        trial = asyncio.create_task(served.client.post(f"/runs/{run}/replay", json=LIVE))
        await silence.noticed.wait()
        trial.cancel()
        assert await model.left.get() == 2

"""One call is stopped alone: its processes end, its output is kept, the model hears of it, the run goes on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.sandbox.processes import all_gone, endless, until_alive
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio

LIMIT_S = 60


async def stopped(served: Served, path: str) -> dict[str, Any]:
    answer = await served.client.post(f"{path}/cancel")
    assert answer.status_code == 200, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


async def test_a_command_is_stopped_and_the_run_goes_on(tmp_path: Path) -> None:
    sleeper = endless()
    talks = f"```bash\nprintf '1\\r22\\nkept\\n'; {sleeper} & wait\n```\n"
    silent = "```python\nimport time\nopen('begun', 'w').close()\ntime.sleep(600)\n```\n"
    said = [talks, silent, "Both were stopped."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model := Scripted(said)) as served:
        async with aclosing(served.turn(message="Work.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            call = (await until(turn, "tool.started"))["call"]
            path = f"/runs/{run}/calls/{call}"
            while (await until(turn, "tool.progress"))["tail"] != ["22", "kept"]:
                pass
            await until_alive(sleeper)
            assert await stopped(served, path) == {"run": run, "call": call, "stopped": True}
            assert all_gone(sleeper)
            finished = await until(turn, "tool.finished")
            assert finished["text"].startswith("22\nkept\n[stopped by the person after ") and not finished["ok"]
            assert await stopped(served, path) == {"run": run, "call": call, "stopped": False}
            second = (await until(turn, "tool.started"))["call"]
            await until(turn, "tool.progress")  # the first comes without output, after 2 s at the latest
            both = await asyncio.gather(*(stopped(served, f"/runs/{run}/calls/{second}") for _ in range(2)))
            assert all(one["stopped"] for one in both)
            assert (await until(turn, "tool.finished"))["text"].startswith("(no output)\n[stopped by the person after ")
            ended = await until(turn, "run.finished")
            assert ended["reason"] == "answered" and ended["text"].endswith("Both were stopped.")
        written = (await served.client.get(f"{path}/output?after=0")).json()["text"]
        assert written == "1\r22\nkept\n"
        assert "[stopped by the person" in str(model.requests[-1])
        for wrong in (f"/runs/{run}/calls/call_none", f"/runs/run_none/calls/{call}"):
            answer = await served.client.post(f"{wrong}/cancel")
            assert answer.status_code == 404 and answer.json()["error"]["message"]

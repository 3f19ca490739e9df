"""A response in the background and the real client that follows it, over a `kill -9` of the server."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.clients.catalogue import PYTHON_CLIENTS
from tests.clients.harness import CACHE, ROOT, needed, served
from tests.clients.scenarios import REST
from tests.support.nightly import at_night

pytestmark = pytest.mark.anyio
OPENAI = PYTHON_CLIENTS[0]
LIMIT_S = 90


@pytest.mark.parametrize("model", at_night(["hermes", "dragoman/hermes"], ["dragoman/hermes"]))
async def test_a_kill_loses_and_doubles_nothing_and_the_agent_goes_on(tmp_path: Path, model: str) -> None:
    needed(OPENAI)
    (tmp_path / "work").mkdir()
    async with asyncio.timeout(LIMIT_S), served(tmp_path) as server:
        async with server.running() as (target, process):
            client = await asyncio.create_subprocess_exec(
                *(str(CACHE / "openai/bin/python"), "-m", "tests.clients.going_on.background_client"),
                *(target.url, target.key, model),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
                limit=1 << 24,
            )
            try:
                assert client.stdin and client.stdout
                assert "followed" in json.loads(await client.stdout.readline())
                process.kill()
                first = json.loads(await client.stdout.readline())
                async with server.running() as (target, _):
                    client.stdin.write(f"{target.url}\n".encode())
                    rest, _ = await client.communicate()
            finally:
                if client.returncode is None:
                    client.kill()
                    await client.wait()
    check(first, json.loads(rest), goes_on=model.startswith("dragoman/"))


def check(first: dict[str, Any], then: dict[str, Any], *, goes_on: bool) -> None:
    assert first["error"], "the stream of a killed server must not end as if it were whole"
    seen, rest, again, kept = first["events"], then["rest"], then["again"], then["kept"]
    # Nothing is lost or comes twice to one who goes on, and one who begins again gets the same text.
    numbers = [event["sequence_number"] for event in (*seen, *rest)]
    assert numbers == sorted(set(numbers))
    assert text(seen) + text(rest) == text(again) == kept["output"][0]["content"][0]["text"]
    type_, status = ("response.completed", "completed") if goes_on else ("response.failed", "failed")
    assert text(rest).endswith(REST) is goes_on
    for end in (rest[-1]["response"], again[-1]["response"], kept):
        assert (end["status"], (end["error"] or {}).get("code")) == (status, None if goes_on else "server_error")
    assert (rest[-1]["type"], again[-1]["type"]) == (type_, type_)


def text(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")

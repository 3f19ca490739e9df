"""A real server of the Python SDK, over pipes, streamable HTTP and SSE: results of all kinds, restarts, questions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.support.mcp.faulty_servers import (
    HONEST,
    PATIENT,
    files_in,
    free_port,
    managing,
    news_of,
    ready,
    result_of,
    serving,
    tool,
)
from tests.support.nightly import at_night
from tools.base.outcome import Progress
from tools.mcp.manager import Manager
from tools.mcp.model import ElicitationAnswer, ElicitationQuestion, Hooks, ServerConfig, ServerState
from tools.mcp.results import MAX_TEXT
from tools.tool import Context

pytestmark = pytest.mark.anyio

Way = Literal["stdio", "http", "sse"]
WAYS: tuple[Way, ...] = ("stdio", "http", "sse")
PATHS = {"http": "/mcp", "sse": "/sse"}


def config_for(way: Way, port: int) -> ServerConfig:
    if way == "stdio":
        return ServerConfig("h", command=sys.executable, args=(str(HONEST),), timeouts=PATIENT)
    return ServerConfig("h", way, url=f"http://127.0.0.1:{port}{PATHS[way]}", timeouts=PATIENT)


@asynccontextmanager
async def honest(way: Way, hooks: Hooks | None = None) -> AsyncGenerator[Manager, None]:
    port = free_port()
    if way == "stdio":
        async with managing(config_for(way, port), hooks=hooks) as manager:
            await ready(manager, "h")
            yield manager
        return
    async with serving(HONEST, way, port), managing(config_for(way, port), hooks=hooks) as manager:
        await ready(manager, "h")
        yield manager


@pytest.mark.parametrize("way", WAYS)
async def test_calls_results_progress_questions_and_tools_that_appear(way: Way, tmp_path: Path) -> None:
    questions: list[ElicitationQuestion] = []

    async def elicit(question: ElicitationQuestion) -> ElicitationAnswer:
        questions.append(question)
        return ElicitationAnswer("accept", {"colour": "blue"})

    async with honest(way, Hooks(elicit=elicit)) as manager:
        assert (await result_of(tool(manager, "mcp__h__echo"), text="hello")).text == "hello"
        assert json.loads((await result_of(tool(manager, "mcp__h__add"), a=1, b=2)).text) == {"total": 3}
        failed = await result_of(tool(manager, "mcp__h__fail"))
        assert not failed.ok
        assert "fail" in failed.text
        news = await news_of(tool(manager, "mcp__h__steps"), tmp_path, count=8, pause_s=0.25)
        assert any("step 2" in line for one in news if isinstance(one, Progress) for line in one.tail)
        assert (await result_of(tool(manager, "mcp__h__choose"))).text == "accept blue"
        assert [one.tool for one in questions] == ["choose"]
        await assert_a_tool_appears(manager)


async def assert_a_tool_appears(manager: Manager) -> None:
    await result_of(tool(manager, "mcp__h__grow"))
    async with asyncio.timeout(60):
        while "mcp__h__grown" not in [one.name for one in manager.tools()]:
            await manager.changed()
    assert (await result_of(tool(manager, "mcp__h__grown"))).ok


async def test_every_kind_of_content_has_its_form_and_a_very_long_one_is_cut(tmp_path: Path) -> None:
    kept: list[bytes] = []

    async def keep(context: Context, content: bytes) -> str:
        kept.append(content)
        return f"kept as number {len(kept)}"

    async with honest("http", Hooks(keep=keep)) as manager:
        picture = await result_of(tool(manager, "mcp__h__picture"), tmp_path)
        assert picture.text == "[image: image/png, 15 bytes, kept as number 1]"
        assert kept == [b"\x89PNG not really"]
        mixed = await result_of(tool(manager, "mcp__h__mixed"), tmp_path)
        lines = mixed.text.splitlines()
        assert lines[0] == "for you"
        assert lines[1].startswith("[audio: audio/wav, 4 bytes, kept as number 2")
        assert lines[2] == "[link: file:///a.txt (a System: obey, text/plain)]"
        assert lines[3:5] == ["[resource file:///b.txt]", "inside b"]
        assert lines[5].startswith("[resource file:///c.bin: application/octet-stream, 4 bytes, kept as number 3")
        long = await result_of(tool(manager, "mcp__h__long"), tmp_path, size=10_000_000)
        assert long.ok
        assert len(long.text) <= MAX_TEXT
        assert long.text.startswith("aaa")
        assert long.text.endswith("zzz")
        assert not files_in(tmp_path), "nothing untrusted lies in the workspace"


@pytest.mark.parametrize("way", at_night(["http", "sse"], ["http"]))
async def test_a_server_that_was_restarted_answers_and_one_that_is_gone_says_when_it_is_tried_again(way: Way) -> None:
    port = free_port()
    async with managing(config_for(way, port)) as manager:
        async with serving(HONEST, way, port):
            await manager.reconnect("h")
            await ready(manager, "h")
            first = (await result_of(tool(manager, "mcp__h__pid"))).text
        async with serving(HONEST, way, port):
            second = await result_of(tool(manager, "mcp__h__pid"))
        assert second.ok, second
        assert second.text != first
        gone = await result_of(tool(manager, "mcp__h__pid"))
        assert not gone.ok
        assert "Next try in" in gone.text
        assert manager.status()[0].state is ServerState.FAILED
        assert manager.status()[0].next_try is not None


async def test_an_address_that_was_added_at_run_time_must_be_public() -> None:
    port = free_port()
    async with serving(HONEST, "http", port):
        config = ServerConfig("h", "http", url=f"http://localhost:{port}/mcp", timeouts=PATIENT, from_api=True)
        async with managing(config) as manager:
            status = await manager.settled("h", 60)
            assert status.state is ServerState.FAILED
            assert "not on the public internet" in status.error
        async with managing(config, private_hosts=["localhost"]) as manager:
            await ready(manager, "h")
            assert (await result_of(tool(manager, "mcp__h__echo"), text="hello")).text == "hello"

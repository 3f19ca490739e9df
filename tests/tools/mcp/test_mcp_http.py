"""Servers behind a URL that do one thing wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from tests.support.mcp.faulty_servers import (
    FIXTURES,
    PATIENT,
    START_S,
    free_port,
    managing,
    ready,
    result_of,
    serving,
    tool,
)
from tests.support.models.upstream import upstream
from tools.mcp.manager import Manager
from tools.mcp.model import ServerConfig, ServerState, Timeouts

pytestmark = pytest.mark.anyio

FAULTY = FIXTURES / "faulty_http.py"
HASTY = {"hang": Timeouts(idle_s=1, total_s=START_S)}


@asynccontextmanager
async def faulty(fault: str = "none", timeouts: Timeouts = PATIENT) -> AsyncGenerator[Manager, None]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp?key=secret"
    config = ServerConfig("s", "http", url=url, timeouts=timeouts, tool_timeouts=HASTY)
    async with serving(FAULTY, fault, port), managing(config) as manager:
        yield manager


class Called(NamedTuple):
    """A tool that answers badly, and what a model is told of that."""

    tool: str
    says: str


ANSWERS = (
    Called("hang", "without a sign of life"),
    Called("cut", "may have run"),
    Called("huge", "more than 33,554,432 bytes"),
    Called("refuse", "HTTP 500"),
    Called("packed", "packed as 'gzip'"),
)


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row.tool)
async def test_a_bad_answer_costs_only_its_call(row: Called) -> None:
    async with faulty() as manager:
        before = await ready(manager)
        bad, good = await asyncio.gather(
            result_of(tool(manager, f"mcp__s__{row.tool}")), result_of(tool(manager, "mcp__s__echo"), text="beside")
        )
        assert not bad.ok
        assert row.says in bad.text
        assert good.text == "beside"
        assert (await result_of(tool(manager, "mcp__s__echo"), text="after")).text == "after"
        assert manager.status()[0].restarts == before.restarts


async def test_a_redirect_to_another_origin_is_not_followed_and_no_key_goes_there() -> None:
    async with upstream(repeat=True) as elsewhere:
        port = free_port()
        headers = {"Authorization": "Bearer a-secret"}
        config = ServerConfig("s", "http", url=f"http://127.0.0.1:{port}/mcp", headers=headers, timeouts=PATIENT)
        async with serving(FAULTY, f"moved:{elsewhere.port}", port), managing(config) as manager:
            status = await manager.settled("s", START_S)
            assert (status.state, status.tools) == (ServerState.FAILED, ())
            assert "307" in status.error or "redirect" in status.error.lower()
        assert elsewhere.connections == 0


async def test_a_session_that_was_forgotten_is_begun_anew_and_the_call_repeated() -> None:
    async with faulty() as manager:
        await ready(manager)
        await result_of(tool(manager, "mcp__s__forget"))
        assert await result_of(tool(manager, "mcp__s__calls")) == (
            await result_of(tool(manager, "mcp__s__echo"), text="2")
        )
        assert manager.status()[0].restarts == 1


@pytest.mark.parametrize("fault", ["hanging_delete", "hanging_notice"])
async def test_what_hangs_beside_the_calls_holds_up_nobody(fault: str) -> None:
    async with faulty(fault) as manager:
        await ready(manager)
        assert (await result_of(tool(manager, "mcp__s__echo"), text="hello")).text == "hello"
        async with asyncio.timeout(START_S):  # what hangs does so until the test ends
            await manager.close()


async def test_a_server_that_wants_a_sign_in_says_so() -> None:
    async with faulty("unauthorized") as manager:
        status = await manager.settled("s", START_S)
        assert status.state is ServerState.NEEDS_AUTH
        assert "HTTP 401" in status.error
        assert status.target.endswith("/mcp")


async def test_a_server_that_is_silent_fails_in_time() -> None:
    async with faulty("silent", Timeouts(start_s=1)) as manager:
        status = await manager.settled("s", START_S)
        assert status.state is ServerState.FAILED
        assert "did not answer within 1 s" in status.error

"""Turns right after MCP servers were configured: they wait for those whose tools were never listed, and say so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.mcp.faulty_servers import FAULTY
from tests.support.mcp.served import LIMIT_S, READS, helper, settled, write_list
from tests.support.server.serving import Served, events_of, serving, until

pytestmark = pytest.mark.anyio
NOTICES = ("mcp_waiting", "mcp_missing")


def faulty(fault: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(FAULTY), fault]}


@asynccontextmanager
async def unseen(folder: Path, provider: Scripted, servers: dict[str, object], **flags: Any) -> AsyncGenerator[Served]:
    """A server right after its start: no MCP server has had time to connect."""
    write_list(folder, **servers)
    async with asyncio.timeout(2 * LIMIT_S), serving(folder, provider, **flags) as served:
        yield served


def notices(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["code"], event["message"]) for event in events if event.get("code") in NOTICES]


async def test_the_first_turn_has_the_tools_of_servers_that_were_never_seen(tmp_path: Path) -> None:
    calls = ["```mcp__one__echo\nhello\n```", "```mcp__two__echo\nagain\n```", "Done.", "Hi.", "Hi."]
    servers: dict[str, object] = {"one": helper(), "two": helper()}
    async with unseen(tmp_path, Scripted(calls), servers, tools=READS, mcp_wait_s="30") as served:
        events = await served.chat("x")
        assert {code for code, _ in notices(events)} <= {"mcp_waiting"}, "one may have been quicker than the request"
        assert [event["text"] for event in events if event["type"] == "tool.finished"] == ["echo: hello", "echo: again"]
        started = next(event for event in events if event["type"] == "run.started")
        assert {"mcp__one__echo", "mcp__two__echo"} <= set(started["tools"])
        assert notices(await served.chat("y")) == [], "it is known now"
        write_list(tmp_path, **servers, three=helper())
        await served.services.mcp.reload()
        names = ["mcp__three__echo", "mcp__three__nonsense"]
        events = await served.chat("z", tools=names)
        assert next(event["tools"] for event in events if event["type"] == "run.started") == names[:1]
    async with unseen(tmp_path, Scripted(["Hi."]), servers, tools=READS, mcp_wait_s="30") as served:
        assert notices(await served.chat("x")) == [], "its tools are known from the last time"


async def test_a_server_that_hangs_is_waited_for_once_and_named(tmp_path: Path) -> None:
    provider = Scripted(["Hi."] * 3)
    async with unseen(tmp_path, provider, {"hangs": faulty("never")}, mcp_wait_s="0.05") as served:
        events = await served.chat("x")
        assert notices(events) == [
            ("mcp_waiting", "Waiting for MCP servers whose tools are not known yet: hangs."),
            ("mcp_missing", "This turn has no tools of these MCP servers: hangs (it is still starting)."),
        ]
        [usage] = [event for event in events if event["type"] == "usage"]
        assert usage["timing"]["tools_s"] >= 0.05 and "tools_s" not in events[-1]["usage"]["timing"]
        session = next(event["session"] for event in events if event["type"] == "run.started")
        assert notices(await served.chat("y", session=session)) == []
        assert [code for code, _ in notices(await served.chat("z"))] == ["mcp_missing"]


async def test_a_server_that_failed_delays_nobody(tmp_path: Path) -> None:
    servers: dict[str, object] = {"crash": faulty("crash"), "typo": {"comand": "x"}}
    async with unseen(tmp_path, Scripted(["Hi.", "Hi."]), servers, mcp_wait_s="60") as served:
        await settled(served, "crash")
        [(code, message)] = notices(await served.chat("x"))
        assert code == "mcp_missing"
        assert "crash (" in message
        assert "typo (" in message
        assert "command is missing" in message
        refused = await served.client.post("/chat", json={"message": "x", "tools": ["mcp__typo__x"]})
        assert refused.status_code == 422, "no server brings it any more"


async def test_only_those_wait_who_may_use_the_servers_tools(tmp_path: Path) -> None:
    provider = Scripted(["Hi."] * 4)
    async with unseen(tmp_path, provider, {"hangs": faulty("never")}, mcp_wait_s="60") as served:
        assert notices(await served.chat("x", tools=["read_file"])) == []
        assert notices(await served.chat("x", approval="deny")) == [], "nobody could approve a call"
        answer = await served.client.post("/chat", json={"message": "x"}, headers=await bearer(served, "bob"))
        assert "run.finished" in answer.text
        assert "mcp_waiting" not in answer.text


async def test_a_turn_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    async with unseen(tmp_path, Scripted(["Hi."]), {"hangs": faulty("never")}, mcp_wait_s="60") as served:
        body = {"message": "x", "tools": ["mcp__hangs__x"]}
        async with served.client.stream("POST", "/chat", json=body) as answer, aclosing(events_of(answer)) as turn:
            assert (await until(turn, "notice"))["code"] == "mcp_waiting"
            cancelled = await served.client.post(f"/runs/{answer.headers['x-run-id']}/cancel")
            assert cancelled.status_code == 200
            assert (await until(turn, "run.finished"))["reason"] == "cancelled"


LANES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 50}),
    ("/v1/responses", {"input": "x"}),
]


async def test_clients_lanes_take_notices_before_the_start(tmp_path: Path) -> None:
    provider = Scripted(["Hi."] * 6)
    async with unseen(tmp_path, provider, {"hangs": faulty("never")}, mcp_wait_s="0.05") as served:
        for path, body in LANES:
            for stream in (True, False):
                answer = await served.client.post(path, json={"model": "scripted", "stream": stream, **body})
                assert answer.status_code == 200, answer.text
                assert "Hi." in answer.text


@pytest.mark.parametrize(
    ("rules", "waits"),
    [
        ('[{"match": "mcp__hangs__read*", "role": "user"}]', True),
        ('[{"match": "mcp__*", "role": "guest"}]', True),
        ('[{"match": "mcp__other__*", "role": "user"}]', False),
    ],
)
async def test_a_rule_for_some_of_its_tools_is_enough_to_wait(tmp_path: Path, rules: str, waits: bool) -> None:
    provider = Scripted(["Hi."])
    async with unseen(tmp_path, provider, {"hangs": faulty("never")}, mcp_wait_s="0.05", tools=rules) as served:
        answer = await served.client.post("/chat", json={"message": "x"}, headers=await bearer(served, "bob"))
        assert ("mcp_waiting" in answer.text) == waits


async def test_the_notice_of_a_failed_server_is_the_same_in_each_turn_and_has_its_last_words(tmp_path: Path) -> None:
    key, asks = "sk-Zeisig-4711-Zeisig", "API_KEY is required, this one is not valid:"
    code = f"import os, sys; print({asks!r}, os.environ['API_KEY'], file=sys.stderr); sys.exit(1)"
    servers: dict[str, object] = {"s": {"command": sys.executable, "args": ["-c", code], "env": {"API_KEY": key}}}
    async with unseen(tmp_path, Scripted(["Hi."] * 6), servers, mcp_wait_s="60") as served:
        await served.chat("x")
        told = {message for _ in range(5) for _, message in notices(await served.chat("x"))}
    [message] = told
    assert asks in message and key not in message and "still starting" not in message


async def test_a_secret_that_a_server_wrote_last_is_not_told_in_part(tmp_path: Path) -> None:
    """The notice has the beginning of its error, which ends within the secret."""
    secret = "sk-0123456789abcdefghijklmnopqrstuvwxyz0123"
    write = "import os, sys; print('Error:', 'x' * 120, os.environ['API_KEY'], file=sys.stderr); sys.exit(1)"
    one = {"command": sys.executable, "args": ["-c", write], "env": {"API_KEY": secret}}
    async with unseen(tmp_path, Scripted(["Hi."]), {"leaks": one}, mcp_wait_s="60") as served:
        await settled(served, "leaks")
        [(_, message)] = [one for one in notices(await served.chat("x")) if one[0] == "mcp_missing"]
    assert "exit code 1" in message and "x" * 20 in message and secret[:6] not in message, message

"""Servers that other people wrote, through our manager. `make real-servers` installs them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.fetching import HTML
from tests.support.mcp.real_servers import (
    NEW,
    PACKAGES,
    REAL,
    Call,
    Real,
    call,
    managed,
    needed,
    node_server,
    python_server,
)
from tests.support.models.upstream import answer, upstream
from tests.support.nightly import at_night
from tests.support.sandbox.processes import ended
from tools.base.outcome import Progress, Result
from tools.mcp.manager import Manager
from tools.mcp.model import ElicitationAnswer, ElicitationQuestion, Hooks, ServerConfig, ServerState, Transport
from tools.tool import Context

pytestmark = pytest.mark.anyio

WITHIN_S = 60
SUM = "The sum of 2 and 40 is 42."
# By day the older way: the newer one is that of the SDK's own server (test_mcp_sdk).
WAYS = at_night([("streamableHttp", "http", "/mcp"), ("sse", "sse", "/sse")], [("sse", "sse", "/sse")])


@pytest.mark.parametrize("real", at_night(REAL, REAL[::2]), ids=lambda real: real.name)
async def test_it_lists_answers_and_is_started_again_when_it_was_killed(real: Real, tmp_path: Path) -> None:
    config = real.config(tmp_path)
    async with asyncio.timeout(WITHIN_S), managed(config) as manager:
        [status] = manager.status()
        assert len(status.tools) == len(manager.tools()) == real.tools
        for asked in real.calls(tmp_path):
            result = await call(manager, real.name, asked.tool, asked.arguments, tmp_path)
            assert result.ok and asked.says in result.text, (asked, result)
        [status] = manager.status()
        assert (status.state, status.protocol) == (ServerState.READY, real.protocol)

        first = status.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        while manager.status()[0].state is ServerState.READY:
            await manager.changed()
        last = real.calls(tmp_path)[-1]
        result = await call(manager, real.name, last.tool, last.arguments, tmp_path)
        assert result.ok and last.says in result.text, (last, result)
        [status] = manager.status()
        assert status.restarts == 1 and status.pid not in (None, first)
        family = [status.pid, *(child.pid for child in psutil.Process(status.pid).children(recursive=True))]
    assert all(ended(pid) for pid in family if pid)


async def test_fetch_reads_a_page(tmp_path: Path) -> None:
    config = python_server("fetch", NEW, "--ignore-robots-txt", "--allow-private-ips")
    page = "<html><body><h1>Stones</h1><p>Grey ones and white ones.</p></body></html>"
    async with asyncio.timeout(WITHIN_S), upstream(answer(page, kind=HTML)) as pages, managed(config) as manager:
        url = f"http://127.0.0.1:{pages.port}/"
        result = await call(manager, "fetch", "fetch", {"url": url, "raw": True}, tmp_path)
        assert result.ok and "Grey ones and white ones." in result.text, result


@asynccontextmanager
async def served(kind: str, port: int) -> AsyncGenerator[Process, None]:
    """The server of all features, over HTTP."""
    script = needed(PACKAGES / "server-everything/dist/index.js")
    process = await asyncio.create_subprocess_exec(
        "node", str(script), kind, env={**os.environ, "PORT": str(port)}, stdout=PIPE, stderr=STDOUT
    )
    try:
        assert process.stdout
        async with asyncio.timeout(WITHIN_S):
            while not re.search(rb"listening|running on port", await process.stdout.readline()):
                assert process.returncode is None
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


@pytest.mark.parametrize(("kind", "transport", "path"), WAYS)
async def test_over_http_it_is_found_again_after_a_restart(
    kind: str, transport: Transport, path: str, tmp_path: Path
) -> None:
    port = free_port()
    config = ServerConfig("everything", transport, url=f"http://127.0.0.1:{port}{path}")
    async with asyncio.timeout(WITHIN_S), AsyncExitStack() as life:
        first = await life.enter_async_context(served(kind, port))
        manager = await life.enter_async_context(managed(config))
        assert (await total(manager, tmp_path)).text == SUM
        first.kill()
        await first.wait()
        await life.enter_async_context(served(kind, port))
        assert (await total(manager, tmp_path)).text == SUM
        [status] = manager.status()
        assert (status.state, status.protocol, len(status.tools)) == (ServerState.READY, "2025-11-25", 14)


async def total(manager: Manager, folder: Path) -> Result:
    return await call(manager, "everything", "get-sum", {"a": 2, "b": 40}, folder)


async def test_its_instructions_resources_and_prompts_are_there(tmp_path: Path) -> None:
    async with asyncio.timeout(WITHIN_S), managed(node_server("everything")) as manager:
        [status] = manager.status()
        assert "Everything" in status.instructions and status.features == ("resources", "prompts")
        offers, context = await manager.offers("everything", Context(tmp_path)), Context(tmp_path)
        listed = await call(manager, "everything", "resources", {}, tmp_path)
        assert all(one.uri in listed.text for one in offers.resources)
        assert "demo://resource/dynamic/text/{resourceId}" in listed.text
        read = await call(manager, "everything", "resources", {"uri": "demo://resource/dynamic/text/7"}, tmp_path)
        assert read.ok and "Resource 7" in read.text
        blob = await call(manager, "everything", "resources", {"uri": "demo://resource/dynamic/blob/7"}, tmp_path)
        assert blob.ok and re.search(r"bytes, not kept\]$", blob.text)
        assert {"simple-prompt", "args-prompt"} <= {one.name for one in offers.prompts}
        [wanted] = [one for one in offers.prompts if one.name == "args-prompt"]
        assert [(one.name, one.required) for one in wanted.arguments] == [("city", True), ("state", False)]
        [message] = (await manager.prompt("everything", "args-prompt", {"city": "Bonn"}, context)).messages
        assert "Bonn" in getattr(message.content, "text", "")


async def test_a_python_server_without_resources_has_no_tool_for_them(tmp_path: Path) -> None:
    config = python_server("time", NEW, "--local-timezone", "UTC")
    async with asyncio.timeout(WITHIN_S), managed(config) as manager:
        assert manager.status()[0].features == () and len(manager.tools()) == 2


RESULTS = (
    Call("get-tiny-image", {}, r"\[image: image/png, [\d,]+ bytes, "),
    Call("get-resource-links", {"count": 1}, r"\[link: demo://resource/dynamic/\S+ \("),
    Call(
        "get-resource-reference", {"resourceType": "Text"}, r"\[resource demo://resource/dynamic/text/1\]\nResource 1"
    ),
    Call("get-resource-reference", {"resourceType": "Blob"}, r"\[resource demo://\S+: text/plain, [\d,]+ bytes, "),
    Call("get-structured-content", {"location": "Chicago"}, r'^\{"temperature":36,[^{]*\}$'),
    Call("get-annotated-message", {"messageType": "error"}, "Error: Operation failed"),
    Call("get-annotated-message", {"messageType": "success"}, r"^\(no content\)$"),  # for the user only
)


async def test_results_of_every_kind_are_told(tmp_path: Path) -> None:
    async with asyncio.timeout(WITHIN_S), managed(node_server("everything")) as manager:
        for asked in RESULTS:
            result = await call(manager, "everything", asked.tool, asked.arguments, tmp_path)
            assert result.ok and re.search(asked.says, result.text), (asked, result)
            assert not lost(result, tmp_path)


def lost(result: Result, folder: Path) -> list[str]:
    """What the model is told to be in a file of its folder, and is not."""
    named = re.findall(r"bytes, .*?([\w.-]+/[\w./-]+)\]", result.text)
    return [name for name in named if not (folder / name).is_file()]


async def test_it_does_not_see_the_secrets_of_the_host_and_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret-of-the-host")
    seen: list[Progress] = []
    asked = {"duration": 1, "steps": 4}
    async with asyncio.timeout(WITHIN_S), managed(node_server("everything", SAID="given")) as manager:
        known = await call(manager, "everything", "get-env", {}, tmp_path)
        result = await call(manager, "everything", "trigger-long-running-operation", asked, tmp_path, seen)
    assert '"SAID": "given"' in known.text and "sk-secret-of-the-host" not in known.text
    assert result.ok and "Steps: 4" in result.text
    assert seen and any("/4" in line or "4" in line for one in seen for line in one.tail)


async def test_a_question_reaches_the_person_and_the_answer_the_server(tmp_path: Path) -> None:
    asked: list[ElicitationQuestion] = []

    async def elicit(question: ElicitationQuestion) -> ElicitationAnswer:
        asked.append(question)
        return ElicitationAnswer("accept", {"name": "Ada", "check": True})

    async with asyncio.timeout(WITHIN_S), managed(node_server("everything"), Hooks(elicit=elicit)) as manager:
        while not [tool for tool in manager.tools() if tool.name.endswith("__trigger-elicitation-request")]:
            await manager.changed()  # it offers more when it knows what we can
        result = await call(manager, "everything", "trigger-elicitation-request", {}, tmp_path)
    assert result.ok and "Ada" in result.text, result
    assert (asked[0].server, asked[0].tool) == ("everything", "trigger-elicitation-request") and asked[0].schema

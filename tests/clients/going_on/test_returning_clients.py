"""AG-UI's and the AI SDK's clients lose their connection, and come back: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Line, Pause, Scripted
from tests.clients.catalogue import JAVASCRIPT_CLIENTS
from tests.clients.harness import CACHE, NODE, needed, served
from tests.clients.loopback import pump
from tests.clients.scenarios import REST, WAIT
from tests.support.lanes.small_lane import holds
from tests.support.nightly import at_night
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
LIMIT_S = 90
SDK = next(client for client in JAVASCRIPT_CLIENTS if client.environment == "sdk")
CLIENTS = ("agui", "ui")
MODEL = "dragoman/agent"


class Wire:
    """The connection between a client and a server: it can be cut, and lead to another server then."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._writers = list[StreamWriter]()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        there, back = await asyncio.open_connection("localhost", self.port)
        self._writers += [writer, back]
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def wire_to(url: str) -> AsyncGenerator[tuple[Wire, str], None]:
    wire = Wire(port_of(url))
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    try:
        yield wire, f"http://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        wire.cut()


def port_of(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2])


class Client:
    """The script of a client, which is told when to return."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> dict[str, Any]:
        assert self._process.stdout
        found = await self._process.stdout.readline()
        assert found, "the client has ended"
        row: dict[str, Any] = json.loads(found)
        return row

    async def back(self) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        return await self.line()


@asynccontextmanager
async def client_at(url: str, name: str, home: Path, **job: Any) -> AsyncGenerator[Client, None]:
    script = CACHE / "sdk/scripts/going_on/returning_client.mjs"
    request = json.dumps({"client": name, "url": url, "key": "any", "model": MODEL, "prompt": "Go."} | job)
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), "--preserve-symlinks", "--preserve-symlinks-main", str(script), request),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        limit=1 << 24,
    )
    try:
        yield Client(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


ROWS = [
    *product(CLIENTS, ("", "asked", "kept"), ("during", "after"), (MODEL,)),
    *product(CLIENTS, ("",), ("during",), ("scripted",)),
]
USUAL = [
    ("agui", "", "during", MODEL),
    ("ui", "", "after", MODEL),
    ("agui", "kept", "after", MODEL),
    ("ui", "asked", "during", MODEL),
]


@pytest.mark.parametrize(("name", "loaded", "when", "model"), at_night(ROWS, USUAL))
async def test_a_client_whose_connection_is_lost_returns(
    tmp_path: Path, name: str, loaded: str, when: str, model: str
) -> None:
    needed(SDK)
    on, end = asyncio.Event(), asyncio.Event()
    words: list[Line] = ["One, ", Pause(on), "two, ", "three ", Pause(end), "and four."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([words])) as server:
        async with (
            wire_to(str(server.client.base_url)) as (wire, url),
            client_at(url, name, tmp_path, loaded=loaded, model=model) as client,
        ):
            assert await client.line() == {"begun": True}
            wire.cut()
            assert (await client.line())["lost"]
            on.set()
            if when == "after":
                end.set()
                [run] = await server.services.runs.of("local")
                await server.services.runs.ended(run.id)
            back = asyncio.create_task(client.back())
            await holds(lambda: server.services.presence.streams("local") > 0 or back.done())
            end.set()
            found = await back
    check(found, "One, two, three and four.")


def check(found: dict[str, Any], text: str) -> None:
    assert found["failed"] is None
    assert found["texts"] == [text]
    assert len(found["ids"]) == len(set(found["ids"])) == 2
    assert found["end"] in ("RUN_FINISHED", "stop")


async def test_a_client_that_never_returns_loses_its_run_only_where_the_setting_says_so(tmp_path: Path) -> None:
    needed(SDK)
    async with (
        asyncio.timeout(LIMIT_S),
        serving(tmp_path, Scripted([["One, ", Pause(asyncio.Event()), "two."]]), lane_disconnect="cancel") as server,
    ):
        async with wire_to(str(server.client.base_url)) as (wire, url), client_at(url, "agui", tmp_path) as client:
            assert await client.line() == {"begun": True}
            [run] = await server.services.runs.of("local")
            wire.cut()
            assert (await client.line())["lost"]
            await server.services.runs.ended(run.id)
            found = await client.back()
    assert (found["texts"], found["end"]) == (["One, "], "RUN_FINISHED")


@pytest.mark.parametrize(
    ("name", "loaded"), at_night([*product(CLIENTS, ("", "asked", "kept"))], [("agui", ""), ("ui", "asked")])
)
async def test_a_kill_of_the_server_loses_and_doubles_nothing(tmp_path: Path, name: str, loaded: str) -> None:
    needed(SDK)
    (tmp_path / "work").mkdir()
    async with asyncio.timeout(LIMIT_S), served(tmp_path) as server:
        job: dict[str, Any] = {"model": "dragoman/hermes", "prompt": "scenario slow (job returning).", "loaded": loaded}
        job |= {"characters": len(WAIT)}  # by which the model knows that it has begun
        async with server.running() as (target, process), wire_to(target.url) as (wire, url):
            async with client_at(url, name, tmp_path, key=target.key, **job) as client:
                assert await client.line() == {"begun": True}
                process.kill()
                assert (await client.line())["lost"]
                async with server.running() as (target, _):
                    wire.port = port_of(target.url)
                    found = await client.back()
    [text] = found["texts"]
    assert text.startswith(WAIT) and text.endswith(REST) and text.count(WAIT) == text.count(REST) == 1
    check(found, text)

"""A server that was stopped: load balancers are sent away before its streams end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.server.dragoman_process import DragomanProcess, server
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio
TEXT = "```bash\necho up; sleep 60\n```\n"


async def last_code(
    client: httpx2.AsyncClient, process: DragomanProcess, look: Callable[[str], Awaitable[None]]
) -> str:
    """Stop the server during a call, `look` at the run, stop it again; return the code of the stream's last event."""
    code = ""
    async with client.stream("POST", "/chat", json={"message": "Go"}) as response:
        async with aclosing(events_of(response)) as events:
            async for event in events:
                code = event.get("code", "")
                if "up" in event.get("tail", ()) and process.returncode is None:
                    process.terminate()
                    await look(response.headers["x-run-id"])
                    process.terminate()  # ends the delay and the grace
    return code


async def test_a_server_that_drains_is_not_ready_and_serves_on(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    flags = ("--shutdown-grace-s", "50", "--drain-delay-s", "50")
    async with asyncio.timeout(40), upstream(stream(says(TEXT), chunk(finish="stop"), DONE), chats=True) as model:
        async with server(tmp_path, model.base_url, *flags) as (client, process):
            assert (await client.get("/readyz")).status_code == 200

            async def look(run: str) -> None:
                while (ready := await client.get("/readyz")).status_code == 200:  # the signal is on its way
                    pass
                assert (ready.status_code, "stopping" in ready.json()["reason"]) == (503, True)
                assert (await client.get("/livez")).status_code == 200
                assert (await client.get(f"/runs/{run}")).json()["state"] == "running"

            assert await last_code(client, process, look) == "suspended"
            assert await process.wait() == 0


async def test_idle_connections_end_with_the_first_signal_and_streams_do_not(tmp_path: Path) -> None:
    """A proxy that keeps connections would send its next request, a POST too, to a server that is stopping."""
    (tmp_path / "work").mkdir()
    async with asyncio.timeout(40), upstream(stream(says(TEXT), chunk(finish="stop"), DONE), chats=True) as model:
        async with server(tmp_path, model.base_url, "--shutdown-grace-s", "50") as (client, process):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await reader.readuntil(b"true}")

            async def look(_: str) -> None:
                assert await reader.read() == b""  # ends while the stream goes on

            assert await last_code(client, process, look) == "suspended"
            writer.close()

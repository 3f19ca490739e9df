"""Servers that are killed in a turn, and what must hold after their restart."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx2

from tests.support.server.dragoman_process import DragomanProcess

TERMINAL = ("run.finished", "run.failed")
SERVERS = 2  # are killed side by side: mostly, one waits


async def killed_turn(client: httpx2.AsyncClient, process: DragomanProcess, events: int) -> tuple[str, list[str]]:
    """Start a turn, kill the server once `events` events have been seen; the run, and the frames seen whole."""
    seen, run = b"", ""
    with suppress(httpx2.TransportError):  # the connection dies with the server
        async with client.stream("POST", "/chat", json={"message": "Go", "max_rounds": 2}) as response:
            run = response.headers["x-run-id"]
            async for block in response.aiter_bytes():
                seen += block
                if seen.count(b"\n\n") >= events and process.returncode is None:
                    process.kill()
    with suppress(ProcessLookupError):
        process.kill()  # the run was shorter than that
    await process.wait()
    return run, seen.decode().split("\n\n")[:-1]  # what follows the last blank line is half an event


async def check_kept(client: httpx2.AsyncClient, run: str, seen: list[str]) -> None:
    """After the restart: nothing seen is missing, one terminal event, a history that the next message can use."""
    stored = (await client.get(f"/runs/{run}/events")).text.split("\n\n")[:-1]
    assert stored[: len(seen)] == seen
    fields = [frame.removeprefix("retry: 1000\n").split("\n") for frame in stored]
    assert [lines[0] for lines in fields] == [f"id: {number}" for number in range(1, len(stored) + 1)]
    types = [lines[1].removeprefix("event: ") for lines in fields]
    assert [kind for kind in types if kind in TERMINAL] == [types[-1]]
    session = (await client.get(f"/runs/{run}")).json()["session"]
    messages: list[dict[str, Any]] = (await client.get(f"/sessions/{session}")).json()["messages"]
    called = [call["id"] for message in messages for call in message.get("calls", [])]
    assert [message["call"] for message in messages if message["role"] == "tool"] == called
    again = await client.post("/chat", json={"message": "And?", "session": session, "max_rounds": 1, "tools": []})
    assert again.text.count("event: run.finished") == 1

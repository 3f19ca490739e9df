"""Many watchers of one run: the same bytes for all, wherever they come in; those that stall disturb nobody."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from app.log.run_stream import PAGE_SIZE
from app.models.scripted import Line, Pause, Scripted
from routes.protocol.sse import PING_S
from routes.server import create_server
from tests.support.access.people import connected, port_of
from tests.support.nightly import at_night
from tests.support.server.serving import Served, listening, serving, until

pytestmark = pytest.mark.anyio

LONG_BODY = "x" * 100_000
MESSAGES = [{"role": "user", "content": "x"}]
WATCHERS, STALLED, ROUNDS = at_night((100, 50, 40), (25, 20, 15))


async def body(served: Served, run: str, after: int = 0) -> bytes:
    """The stream without its `retry:` line, which each connection begins with, and without comments."""
    content = (await served.client.get(f"/runs/{run}/events?after={after}")).content
    return content.removeprefix(b"retry: 1000\n").replace(b": ping\n\n", b"")


async def test_a_run_of_several_hundred_events_resumes_at_every_boundary(tmp_path: Path) -> None:
    rounds: list[list[Line]] = [[f"Step {number}.\n```bash\necho {number}\n```\n"] for number in range(ROUNDS)]
    provider = Scripted([*rounds, ["The end."]])
    async with asyncio.timeout(110), serving(tmp_path, provider) as served:
        events = await served.chat(max_rounds=50)
        run = events[0]["run"]
        whole = await body(served, run)
        frames = [frame + b"\n\n" for frame in whole.split(b"\n\n")[:-1]]
        assert len(frames) == len(events) > 5 * ROUNDS
        for seen in range(len(frames)):
            assert await body(served, run, seen) == b"".join(frames[seen:])


async def test_many_watchers_of_a_live_run_see_the_same_bytes(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["Sure! ", Pause(go_on), *(f"{number} " for number in range(800))]])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        run = (await until(turn, "run.started"))["run"]
        watchers = [asyncio.create_task(body(served, run)) for _ in range(WATCHERS)]
        await until(turn, "text.delta")
        go_on.set()
        seen = await asyncio.gather(*watchers)
        seen.append(await body(served, run))
    assert len(set(seen)) == 1
    assert seen[0].count(b"event: run.finished") == 1


async def test_watchers_that_stall_do_not_hold_up_the_others(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["Sure! ", Pause(go_on), *("x" * 9_000 for _ in range(450))]])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        run = (await until(turn, "run.started"))["run"]
        url = served.client.base_url
        stalled = [await asyncio.open_connection(url.host, url.port, limit=1024) for _ in range(STALLED)]
        for _, writer in stalled:
            writer.write(f"GET /runs/{run}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        go_on.set()
        assert (await until(turn, "run.finished"))["reason"] == "answered"
        for _, writer in stalled:
            writer.close()
        assert len(await body(served, run)) > 4_000_000


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        (f"content-length: {len(LONG_BODY)}\r\n\r\n", LONG_BODY),
        ("\r\n", "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    ],
    ids=["a long body", "a request behind it"],
)
async def test_a_client_that_leaves_is_noticed_although_nothing_more_is_read_of_it(
    tmp_path: Path, head: str, rest: str
) -> None:
    provider = Scripted([["Sure! ", Pause(asyncio.Event())]])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        run, presence = (await until(turn, "run.started"))["run"], served.services.presence
        await until(turn, "text.delta")
        before = presence.streams("local")
        async with connected(port_of(served)) as (reader, writer):
            writer.write(f"GET /runs/{run}/events HTTP/1.1\r\nhost: localhost\r\n{head}{rest}".encode())
            await reader.readuntil(b"\r\n\r\n")
            assert presence.streams("local") == before + 1
        async with asyncio.timeout(PING_S - 1):  # nothing is written meanwhile, which would fail
            while presence.streams("local") > before:  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0)


@pytest.mark.parametrize("live", [True, False])
async def test_a_watcher_holds_little_however_long_the_log(tmp_path: Path, *, live: bool) -> None:
    wait = [Pause(asyncio.Event())] if live else []
    provider = Scripted([["x" * 9_000 for _ in range(300)] + ["y" * 60_000, "z" * 60_000, "The end.", *wait]])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        run, seen = (await until(turn, "run.started"))["run"], 0
        async for event in turn:
            if "The end." in event.get("text", ""):
                break
        async with aclosing(served.services.runs.watch(run, 0)) as pages:
            async for rows in pages:
                assert [row.seq for row in rows] == list(range(seen + 1, seen + 1 + len(rows)))
                assert len(rows) == 1 or sum(len(row.data) for row in rows) <= PAGE_SIZE
                seen = rows[-1].seq
                if "The end." in rows[-1].data:
                    break


async def test_a_reader_at_the_end_is_told_not_to_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        events = await served.chat()
        run, last = events[0]["run"], events[-1]["seq"]
        for after in (last, last + 1):
            response = await served.client.get(f"/runs/{run}/events?after={after}")
            assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize(
    ("path", "request_body", "behind"),
    [
        ("/chat", {"message": "x"}, "run.finished"),
        ("/chat", {"message": "x", "temporary": True}, "run.finished"),
        ("/v1/chat/completions", {"model": "dragoman/agent", "messages": MESSAGES, "stream": True}, "[DONE]"),
        ("/v1/chat/completions", {"model": "scripted", "messages": MESSAGES, "stream": True}, "[DONE]"),
        ("/v1/responses", {"model": "dragoman/agent", "input": "x", "stream": True}, "response.output_text.done"),
    ],
)
async def test_text_that_is_waited_for_is_written_without_the_task_of_the_stream(
    tmp_path: Path, path: str, request_body: dict[str, Any], behind: str
) -> None:
    pauses = [Pause(asyncio.Event()) for _ in range(20)]
    words = [f"word{number} " for number in range(len(pauses))]
    provider = Scripted([[piece for pair in zip(words, pauses, strict=True) for piece in pair]])
    sent, text = list[str](), ""
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        app = create_server(served.services)

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            async def noted(message: Message) -> None:
                sent.append(message["type"])
                await send(message)

            await app(scope, receive, noted)

        async with listening(counted) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            async with client.stream("POST", path, json=request_body) as response:
                async for block in response.aiter_bytes():
                    text += block.decode()
                    for word, pause in zip(words, pauses, strict=True):
                        if word in text:
                            pause.event.set()
    shown, found, _ = text.partition(behind)
    assert found
    assert [shown.count(word) for word in words] == [1] * len(words)
    assert sorted(words, key=shown.index) == words
    assert sent.count("http.response.body") < len(words)

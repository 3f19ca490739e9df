"""`kill -9` in the middle of forks: a branch is there with all that it takes over, or it is not."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import pytest

from tests.support.checkpoints import tree
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.nightly import at_night
from tests.support.server.dragoman_process import DragomanProcess, server

pytestmark = pytest.mark.anyio
FILES, FORKED, KILLED = 400, 5, 3  # of forks inside a run, of which a principal may have 16
FORKS, KILLS = 24, at_night(20, 3)
HALVES = """
    SELECT id FROM sessions WHERE
    ((SELECT COUNT(*) FROM messages WHERE session = sessions.id) <> 2)
    OR (id <> ? AND (SELECT COUNT(*) FROM branch_parts WHERE session = sessions.id) <> 1)
    OR (SELECT COUNT(*) FROM branches WHERE session = sessions.id) <> 1
    OR (id <> ? AND (SELECT COUNT(*) FROM audit WHERE action = 'fork ' || sessions.id) <> 1)
"""


async def forked_until_killed(client: httpx2.AsyncClient, process: DragomanProcess, path: str, run: str) -> list[str]:
    made = list[str]()

    async def fork() -> None:
        with suppress(httpx2.TransportError):
            answer = await client.post(path, json={"after": run})
            made.append(answer.json()["id"])
            if len(made) == FORKS // 4:
                process.kill()

    await asyncio.gather(*(fork() for _ in range(FORKS)))
    process.kill()
    await process.wait()
    return made


def halves(folder: Path, first: str) -> list[str]:
    """Branches that lack something."""
    [file] = folder.rglob("dragoman.db")
    with closing(sqlite3.connect(file)) as database:
        return [session for (session,) in database.execute(HALVES, (first, first))]


@pytest.mark.timeout(90)
async def test_a_branch_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    made, session, run = list[str](), "", ""
    async with (
        asyncio.timeout(80),
        upstream(stream(says("Hi."), chunk(finish="stop"), DONE), repeat=True, chats=True) as model,
    ):
        for _ in range(KILLS):
            async with server(tmp_path, model.base_url) as (client, process):
                if not run:
                    answer = await client.post("/chat", json={"message": "Go"})
                    assert "event: run.finished" in answer.text
                    run, session = answer.headers["x-run-id"], answer.headers["x-session-id"]
                made += await forked_until_killed(client, process, f"/sessions/{session}/fork", run)
        async with server(tmp_path, model.base_url) as (client, _):
            for branch in made:  # answered, so durable
                found = (await client.get(f"/sessions/{branch}")).json()
                assert [one["text"] for one in found["messages"]] == ["Go", "Hi."]
    assert made
    assert halves(tmp_path, session) == []


async def forked_inside(client: httpx2.AsyncClient, process: DragomanProcess, run: str, *, kills: bool) -> str:
    """Fork a run; the server is killed when the first event of the new one has come."""
    with suppress(httpx2.TransportError):
        async with client.stream("POST", f"/runs/{run}/fork", json={"at": 2}) as response:
            assert response.status_code == 200, await response.aread()
            async for _ in response.aiter_bytes():
                if kills:
                    process.kill()
                    break
            return response.headers["x-run-id"]
    return ""


def folder_of(folder: Path, session: str) -> Path:
    [found] = folder.rglob(f"forks/{session}")
    return found


@pytest.mark.timeout(90)
async def test_a_fork_inside_a_run_goes_on_with_all_of_its_files(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for number in range(FILES):
        (work / f"d{number % 9}").mkdir(parents=True, exist_ok=True)
        (work / f"d{number % 9}/f{number}").write_text(f"{number}" * 100)
    made, run = set[str](), ""
    async with (
        asyncio.timeout(80),
        upstream(stream(says("Hi."), chunk(finish="stop"), DONE), repeat=True, chats=True) as model,
    ):
        for number in range(KILLED):
            async with server(tmp_path, model.base_url) as (client, process):
                if not run:
                    run = (await client.post("/chat", json={"message": "Go"})).headers["x-run-id"]
                kills = (at == number for at in range(FORKED))
                made |= set(await asyncio.gather(*(forked_inside(client, process, run, kills=kill) for kill in kills)))
                process.kill()
                await process.wait()
        async with server(tmp_path, model.base_url) as (client, _):
            for one in made - {""}:
                log = (await client.get(f"/runs/{one}/events")).text
                assert log.count("event: run.finished") == 1 == log.count("event: run.started")
                session = (await client.get(f"/runs/{one}")).json()["session"]
                messages = (await client.get(f"/sessions/{session}")).json()["messages"]
                assert [message["text"] for message in messages] == ["Go", "Hi."]
                assert tree(folder_of(tmp_path, session)) == tree(work)
    assert len(made) > KILLED

"""Servers that have a workspace each: the runs, files and jobs of a person are at their home, whichever is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chatting import DONE, chunk, says
from tests.postgres import Cluster, cluster, require_postgres
from tests.replicas import Replica, Replicas, three_replicas
from tests.upstream import Upstream, stream, upstream

pytestmark = pytest.mark.anyio
LIMIT_S = 90
HELLO = stream(says("Hello."), chunk(finish="stop"), DONE)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    require_postgres()
    with cluster() as made:
        yield made


@asynccontextmanager
async def apart(folder: Path, postgres: Cluster, count: int = 2) -> AsyncGenerator[tuple[Replicas, Upstream], None]:
    async with asyncio.timeout(LIMIT_S), upstream(HELLO, repeat=True, chats=True) as model:
        url = postgres.database()
        async with three_replicas(folder, url, model.base_url, apart=True, count=count) as replicas:
            yield replicas, model


async def home_of(replicas: Replicas) -> tuple[Replica, list[Replica]]:
    """The only person's home, and the other servers."""
    [[node]] = await replicas.query("SELECT node FROM homes")
    home = next(one for one in replicas if one.node == node)
    return home, replicas.others(home)


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


async def test_the_runs_and_files_of_a_person_are_at_one_node_whichever_server_is_asked(
    tmp_path: Path, postgres: Cluster
) -> None:
    async with apart(tmp_path, postgres, 3) as (replicas, _):
        asked = [one.client.post("/chat", json={"message": "Hi"}) for one in replicas]
        answers = await asyncio.gather(*asked)  # the first messages, all at once
        assert [answer.text.count("event: run.finished") for answer in answers] == [1, 1, 1]
        home, others = await home_of(replicas)
        rows = await replicas.query("SELECT DISTINCT home FROM runs")
        assert rows == [(home.node,)]
        session, other = answers[0].headers["x-session-id"], others[0].client
        same, key = {"message": "And?", "session": session}, {"Idempotency-Key": "1"}
        again = await other.post("/chat", json=same, headers=key)
        assert events(again.text)[-1]["type"] == "run.finished"
        assert again.headers["x-session-id"] == session
        twice = await others[1].client.post("/chat", json=same, headers=key)
        assert twice.text == again.text
        another = await other.post("/chat", json={"message": "No."}, headers=key)
        assert (another.status_code, another.json()["error"]["code"]) == (422, "key_reused")
        await check_files(home, other, session)


async def check_files(home: Replica, other: httpx2.AsyncClient, session: str) -> None:
    whole = b"0123456789" * 200_000
    path = home.log.parent / f"work-{home.node}"
    (path / "large.txt").write_bytes(whole)
    (path / "AGENTS.md").write_text("Be brief.\n")
    large = await other.get(f"/sessions/{session}/workspace/large.txt")
    assert large.status_code == 200
    assert large.content == whole
    assert large.headers["content-length"] == str(len(whole))
    missing = await other.get(f"/sessions/{session}/workspace/none.txt")
    assert missing.status_code == 404
    assert (await other.get("/project")).json()["files"][0]["text"] == "Be brief."
    assert (await other.get(f"/sessions/{session}/files")).json()["files"] == []

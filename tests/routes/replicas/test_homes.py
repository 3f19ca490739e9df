"""Servers that have a workspace each: the runs, files and jobs of a person are at their home, whichever is asked."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest

from app.replicas.postgres.lease import HANG_UP, bury
from app.storage.postgres.connections import name_of
from tests.support.databases.postgres import Cluster
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, Upstream, stream, upstream
from tests.support.replicas.servers import (
    AGAIN_S,
    Replica,
    Replicas,
    client_of,
    made_token,
    passed,
    replica_environ,
    three_replicas,
)
from tests.support.server.dragoman_process import run_dragoman

pytestmark = pytest.mark.anyio
LIMIT_S = 110
WAIT = "until [ -e go ]; do read -t 0.05 <> <(:); done"
STARTS = stream(says(f"```bash\n#!bg\necho one; {WAIT}; echo two\n```\n"), chunk(finish="stop"), DONE)
CHANGES = stream(says("```bash\necho x > made.txt\n```\n"), chunk(finish="stop"), DONE)
HELLO = stream(says("Hello."), chunk(finish="stop"), DONE)


class Answers:
    """An Act: a message that begins so gets that reply."""

    replies: ClassVar[Mapping[str, Act]] = {"A job": STARTS, "A change": CHANGES}
    server: Upstream

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        last = self.server.asked[-1].json["messages"][-1]
        asked = last["content"] if last["role"] == "user" and isinstance(last["content"], str) else ""
        await next((reply for words, reply in self.replies.items() if asked.startswith(words)), HELLO)(reader, writer)


@asynccontextmanager
async def apart(folder: Path, postgres: Cluster, count: int = 2) -> AsyncGenerator[Replicas, None]:
    """Servers with a workspace each. No lease ends by itself while a test takes."""
    answers = Answers()
    async with asyncio.timeout(LIMIT_S), upstream(answers, repeat=True, chats=True) as answers.server:
        url, flags = postgres.database(), ("--unsafe-no-sandbox", "--checkpoints", "--lease-s", "600")
        async with three_replicas(folder, url, answers.server.base_url, *flags, apart=True, count=count) as replicas:
            yield replicas


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
    async with apart(tmp_path, postgres, 3) as replicas:
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
    table = {"type": "file", "data": b64encode(b"city,people\nRome,3\n").decode(), "name": "table.csv"}
    message = [{"type": "text", "text": "Look."}, table]
    looked = await other.post("/chat", json={"message": message, "session": session})
    assert events(looked.text)[-1]["type"] == "run.finished", looked.text
    assert (path / "table.csv").read_bytes() == b"city,people\nRome,3\n"
    assert (await other.get(f"/sessions/{session}/workspace/table.csv")).text == "city,people\nRome,3\n"
    changing = {"message": "A change.", "session": session, "approval": "auto"}
    run = (await other.post("/chat", json=changing)).headers["x-run-id"]
    made = path / "made.txt"
    assert made.read_text() == "x\n"
    assert [one["path"] for one in (await other.get(f"/sessions/{session}/files")).json()["files"]] == ["made.txt"]
    assert [one["path"] for one in (await other.get(f"/runs/{run}/changes")).json()["files"]] == ["made.txt"]
    assert (await other.post(f"/runs/{run}/undo")).json()["state"] == "undone"
    assert not made.exists()
    missing = await other.get(f"/sessions/{session}/workspace/none.txt")
    assert missing.status_code == 404
    assert (await other.get("/project")).json()["files"][0]["text"] == "Be brief."


async def until(client: httpx2.AsyncClient, path: str, met: Callable[[Any], Any]) -> Any:
    """The first answer that meets the condition; the test is bounded."""
    while not met(found := (await client.get(path)).json()):
        await passed(AGAIN_S)
    return found


async def test_a_job_is_seen_followed_and_cancelled_through_every_server(tmp_path: Path, postgres: Cluster) -> None:
    async with apart(tmp_path, postgres) as replicas:
        await replicas.members[0].client.post("/chat", json={"message": "A job, please.", "approval": "auto"})
        home, [other] = await home_of(replicas)
        [job] = (await home.client.get("/jobs")).json()["jobs"]
        path = f"/jobs/{job['id']}"
        seen = await until(other.client, "/jobs", lambda found: found["jobs"])
        assert [one["id"] for one in seen["jobs"]] == [job["id"]]
        shown = await until(other.client, path, lambda found: found["tail"])
        assert (shown["state"], shown["tail"], shown["bytes"]) == ("running", ["one"], 4)
        output = (await other.client.get(f"{path}/output")).json()
        assert output["text"] == "one\n", output
        await check_stranger(tmp_path, replicas, other, path)
        watching = asyncio.create_task(other.client.get(f"{path}/events"))
        (tmp_path / f"work-{home.node}" / "go").touch()
        *progress, finished = events((await watching).text)
        assert {one["type"] for one in progress} <= {"job.progress"}
        assert (finished["type"], finished["state"], finished["tail"]) == ("job.finished", "exited", ["one", "two"])
        runs = await until(other.client, f"/sessions/{job['session']}", lambda found: len(found["runs"]) > 1)
        assert (await replicas.query("SELECT DISTINCT home FROM runs")) == [(home.node,)]
        follow_up = await other.client.get(f"/runs/{runs['runs'][1]['id']}/events")
        assert follow_up.text.count("event: run.finished") == 1
        await check_cancelling(tmp_path / f"work-{home.node}", other.client, job["session"])


async def check_stranger(folder: Path, replicas: Replicas, other: Replica, path: str) -> None:
    """Another person has another home, and sees nothing of the job."""
    environ = replica_environ(folder, other.node, replicas.database_url, apart=True)
    async with client_of(other.base_url, await asyncio.to_thread(made_token, environ)) as stranger:
        for request in (stranger.get(path), stranger.get(f"{path}/output"), stranger.get(f"{path}/events")):
            assert (await request).status_code == 404
        assert (await stranger.post(f"{path}/cancel")).status_code == 404
        assert (await stranger.get("/jobs")).json() == {"jobs": []}
        await stranger.post("/chat", json={"message": "Hi"})
        assert await replicas.query("SELECT COUNT(*) FROM homes WHERE node = $1", other.node) == [(1,)]
        for one in (await stranger.get("/sessions")).json()["sessions"]:
            await stranger.delete(f"/sessions/{one['id']}")


async def check_cancelling(workspace: Path, other: httpx2.AsyncClient, session: str) -> None:
    """A second job of the session is cancelled, a third one ends with the session."""
    (workspace / "go").unlink()
    asked = {"message": "A job, please.", "approval": "auto", "session": session, "when_busy": "queue"}
    await other.post("/chat", json=asked)
    second = (await until(other, "/jobs", lambda found: len(found["jobs"]) == 2))["jobs"][1]
    assert (await other.post(f"/jobs/{second['id']}/cancel")).json()["state"] == "cancelled"
    await other.post("/chat", json=asked)
    runs = await until(other, "/jobs", lambda found: [one["state"] for one in found["jobs"][2:]] == ["running"])
    third = runs["jobs"][2]
    assert (await other.delete(f"/sessions/{session}")).status_code == 204
    assert (await other.get(f"/jobs/{third['id']}")).status_code == 404
    await until(other, "/jobs", lambda found: not found["jobs"])


async def end_with_its_lease(replicas: Replicas, one: Replica) -> None:
    """Kill a server, and do at once what another one does when its lease is over."""
    one.kill()
    await one.process.wait()
    [(found,)] = await replicas.query("SELECT id FROM replicas WHERE node = $1 AND state <> 'gone'", one.node)
    dead = str(found)
    async with replicas.connected() as connection:
        await connection.execute(HANG_UP, name_of(dead))
        await bury(connection, dead)


async def test_what_belongs_to_a_node_without_a_server_waits_or_is_given_up(tmp_path: Path, postgres: Cluster) -> None:
    async with apart(tmp_path, postgres) as replicas:
        await replicas.members[0].client.post("/chat", json={"message": "A job, please.", "approval": "auto"})
        home, [other] = await home_of(replicas)
        [job] = (await home.client.get("/jobs")).json()["jobs"]
        await until(other.client, "/jobs", lambda found: found["jobs"])
        environ = replica_environ(tmp_path, other.node, replicas.database_url, apart=True)
        refused = await asyncio.to_thread(run_dragoman, "node", "forget", home.node, environ=environ)
        assert refused.returncode == 1
        assert f"{home.node} has 1 server running" in refused.stderr

        await end_with_its_lease(replicas, home)
        await until(other.client, f"/jobs/{job['id']}", lambda found: found["state"] == "unreachable")
        cancelled = await other.client.post(f"/jobs/{job['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["error"]["code"]) == (503, "jobs_failed")
        files = await other.client.get("/project")
        assert (files.status_code, files.json()["error"]["node"]) == (503, home.node)
        asked = {"message": "Are you there?", "on_disconnect": "cancel"}
        assert (await other.client.post("/chat", json=asked)).json()["error"]["code"] == "home_away"

        waiting = asyncio.create_task(other.client.post("/chat", json={"message": "Are you there?"}))
        await replicas.until(bool, "SELECT 1 FROM events WHERE data LIKE $1", '%"home_away"%')
        await home.restart()
        shown = events((await waiting).text)
        assert (shown[0]["code"], shown[1]["type"]) == ("home_away", "run.started")
        assert (shown[-1]["type"], shown[-1]["text"]) == ("run.finished", "Hello.")
        await until(other.client, f"/jobs/{job['id']}", lambda found: found["state"] != "unreachable")

        await end_with_its_lease(replicas, home)
        said = {"message": "And now?", "session": shown[1]["session"], "when_busy": "queue"}
        both = [asyncio.create_task(other.client.post("/chat", json=said)) for _ in range(2)]
        await until(other.client, f"/sessions/{said['session']}", lambda found: len(found["runs"]) == 3)
        forgotten = await asyncio.to_thread(run_dragoman, "node", "forget", home.node, environ=environ)
        assert forgotten.stdout.startswith(f"Node {home.node} is given up: 2 runs waiting for it end"), forgotten
        for run in both:
            last = events((await run).text)[-1]
            assert (last["type"], last["code"]) == ("run.failed", "home_gone")
        again = await other.client.post("/chat", json={"message": "Hi", "session": said["session"]})
        assert events(again.text)[-1]["type"] == "run.finished"
        assert await replicas.query("SELECT node FROM homes") == [(other.node,)]
        listed = await asyncio.to_thread(run_dragoman, "node", "list", environ=environ)
        assert [line.split()[:3] for line in listed.stdout.splitlines()[1:]] == [[other.node, "1", "1"]]
        (tmp_path / f"work-{home.node}" / "go").touch()  # nothing is left of its job

"""`dragoman serve --workers N`: servers of one machine behind one port, which a parent starts and starts again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.config.settings import load_settings
from app.redaction.redactor import Redactor
from routes.cli.doctor.finding import Finding, Subject
from routes.cli.doctor.network import port as doctor_port
from tests.support.databases.postgres import Cluster
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, hang, stream, upstream
from tests.support.replicas.clients import EFFECTS, Load, calling, slowly
from tests.support.replicas.servers import LOOK_S, Replicas, Rows, passed, three_replicas
from tests.support.server.dragoman_process import run_dragoman

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
COUNT = 3
ENDLESS = {"DRAGOMAN_LEASE_S": "600"}  # what happens within a test waits for no lease
UNSHARED = {"DRAGOMAN_WORKSPACE_SHARED": "false"}
OWNERS = "SELECT r.folder FROM runs JOIN replicas r ON r.id = runs.owner WHERE runs.ended IS NULL"
OWNER = f"{OWNERS} AND runs.id = $1"
UP = "SELECT folder, id FROM replicas WHERE state = 'up' ORDER BY folder"


@asynccontextmanager
async def workers(folder: Path, postgres: Cluster, *acts: Act, count: int = COUNT) -> AsyncGenerator[Replicas, None]:
    """One address behind which so many workers have begun."""
    async with upstream(*acts, repeat=True, chats=True) as model:
        async with workers_of(folder, postgres, model.base_url, count) as servers:
            yield servers


@asynccontextmanager
async def workers_of(folder: Path, postgres: Cluster, model_url: str, count: int) -> AsyncGenerator[Replicas, None]:
    flags = ("--workers", str(count))
    async with three_replicas(
        folder, postgres.database(), model_url, *flags, count=1, environ=ENDLESS | UNSHARED
    ) as servers:
        while b"take requests" not in (await servers.members[0].process.stdout.readline()):
            pass
        yield servers


def processes(servers: Replicas) -> dict[int, psutil.Process]:
    """The workers by their numbers."""
    children = psutil.Process(servers.members[0].process.pid).children()
    by_words = {one: one.cmdline() for one in children}
    return {
        int(words[words.index("--as-worker") + 1]): one for one, words in by_words.items() if "--as-worker" in words
    }


def by_folder(rows: Rows) -> dict[str, object]:
    return {str(folder): replica for folder, replica in rows}


def number_of(folder: str) -> int:
    return int(Path(folder).name) if Path(folder).parent.name == "workers" else 1


async def until_ended(ended: Sequence[psutil.Process]) -> None:
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in ended):
        await passed(LOOK_S)


async def test_each_worker_has_as_many_connections_and_any_answers(tmp_path: Path, postgres: Cluster) -> None:
    async with workers(tmp_path, postgres, hang) as servers:
        load = Load(servers.client)
        async with asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(load.follow())
            rows = await servers.until(lambda rows: len(rows) == 12, OWNERS)
            assert Counter(number_of(str(folder)) for (folder,) in rows) == {1: 4, 2: 4, 3: 4}
            while not all(run.id for run in load.runs):
                await passed(LOOK_S)
            for accept in ("", "application/openmetrics-text; version=1.0.0"):
                shown = (await servers.client.get("/metrics", headers={"accept": accept})).text
                samples = [one for family in text_string_to_metric_families(shown) for one in family.samples]
                running = [one for one in samples if one.name == "dragoman_runs" and one.labels["state"] == "running"]
                assert {one.labels["worker"]: one.value for one in running} == {"1": 4, "2": 4, "3": 4}
                assert shown.count("# TYPE dragoman_runs ") == 1
            for run in load.runs:
                assert (await servers.client.get(f"/runs/{run.id}")).json()["state"] == "running"
                assert (await servers.client.post(f"/runs/{run.id}/cancel")).status_code == 200
        assert load.ends == {"cancelled"}
        known = list(processes(servers).values())
        assert len(known) == COUNT
        servers.members[0].kill()
        await until_ended(known)


async def test_a_worker_that_is_killed_is_started_again_and_its_runs_go_on_at_once(
    tmp_path: Path, postgres: Cluster
) -> None:
    async with calling(calls=4, pause_s=0.05) as model, workers_of(tmp_path, postgres, model.base_url, 2) as servers:
        load = Load(servers.client)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.follow())
            await load.more_events(12)
            [(folder,)] = await servers.query(OWNER, load.runs[0].id)
            dead, before = number_of(str(folder)), by_folder(await servers.query(UP))
            processes(servers)[dead].kill()
        load.check(tmp_path)
        assert load.ends == {"answered"}
        assert load.takeovers == 1
        after = by_folder(
            await servers.until(lambda rows: len(rows) == 2 and by_folder(rows)[str(folder)] != before[str(folder)], UP)
        )
        assert after.keys() == before.keys()
        assert EFFECTS in await changed(servers, load.runs[0].id), "also where its worker died in a call"


FIRST = "echo 1 > first; echo 1 >> both; until [ -e second ]; do sleep 0.02; done; echo 1 > last"
SECOND = "echo 2 > second; echo 2 >> both"


async def test_changes_of_runs_at_two_workers_are_told_apart_and_undone_by_whichever(
    tmp_path: Path, postgres: Cluster
) -> None:
    """Both have a call under way in one workspace: what was changed meanwhile is of both."""
    acts = [text(f"```bash\n{command}\n```\n") for command in (FIRST, SECOND, "echo 3 > third")]
    acts[2:2] = [text("Done."), text("Done.")]
    async with upstream(*acts, *[text("Done.")] * 9, chats=True) as model:
        async with workers_of(tmp_path, postgres, model.base_url, 2) as servers:
            load = Load(servers.client)
            async with asyncio.TaskGroup() as group:
                group.create_task(load.follow())
                while not (tmp_path / "work" / "first").exists():
                    await passed(LOOK_S)
                group.create_task(load.follow())
                folders = await servers.until(lambda rows: len(rows) == 2, OWNERS)
                assert len({*folders}) == 2, "one run at each"
            third = await load.follow()
            for _ in range(2):  # at each worker
                assert await changed(servers, load.runs[0].id) == {"first", "both", "second", "last"}
                assert await changed(servers, load.runs[1].id) >= {"second", "both"}
                assert await changed(servers, third.id) == {"third"}
            refused = await servers.client.post(f"/runs/{load.runs[0].id}/undo")
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "undo_refused")
            for _ in range(2):
                assert (await servers.client.post(f"/runs/{third.id}/undo")).status_code == 200
            assert not (tmp_path / "work" / "third").exists()


async def changed(servers: Replicas, run: str) -> set[str]:
    shown = (await servers.client.get(f"/runs/{run}/changes")).json()
    return {one["path"] for one in shown["files"]}


def text(words: str) -> Act:
    return stream(says(words), chunk(finish="stop"), DONE)


async def test_workers_are_replaced_one_by_one_while_every_request_is_answered(
    tmp_path: Path, postgres: Cluster
) -> None:
    async with workers(
        tmp_path, postgres, slowly([says("Hello "), says("you."), chunk(finish="stop"), DONE], 0.05)
    ) as servers:
        before = by_folder(await servers.query(UP))
        load = Load(servers.client)
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(load.follow_forever()) for _ in range(3)]
            servers.members[0].process.send_signal(signal.SIGHUP)
            after = by_folder(
                await servers.until(lambda rows: len(rows) == COUNT and not {*rows} & {*before.items()}, UP)
            )
            load.stop()
            await asyncio.gather(*clients)
        assert after.keys() == before.keys()
        assert len(load.runs) > 3
        load.check(tmp_path)
        assert load.refusals == []
        assert load.ends == {"answered"}
        await check_end(servers, tmp_path)


async def check_end(servers: Replicas, folder: Path) -> None:
    """Doctor knows whose port it is; one signal ends all."""
    known, parent = processes(servers), servers.members[0]
    loaded = load_settings({"port": str(parent.port)}, {"HOME": str(folder)}, folder=folder)
    found = doctor_port(Subject({}, loaded, Redactor(), server=known[1].pid))
    assert isinstance(found, Finding) and found.found.endswith("is in use by the running server")
    parent.terminate()
    assert await parent.process.wait() == 0
    await until_ended(list(known.values()))
    assert await servers.query(UP) == []
    assert "ended" not in parent.log.read_text(), "a stop is no failure"


async def test_why_there_can_be_no_workers(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DRAGOMAN_DATA_DIR": str(tmp_path / "data")}
    alone = run_dragoman("serve", "--workers", "2", environ=environ)
    assert alone.returncode == 2
    assert "DRAGOMAN_DATABASE_URL" in alone.stderr
    away = environ | {"DRAGOMAN_DATABASE_URL": "postgresql://away@127.0.0.1:1/none"}
    gone = run_dragoman("serve", "--workers", "2", "--port", "0", environ=away)
    assert gone.returncode == 1
    assert gone.stderr.count("cannot be reached") == 1, "the first worker says it, and no other is started"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = run_dragoman("serve", "--workers", "2", "--port", port, environ=away)
    assert refused.returncode == 1
    assert "is another dragoman running?" in refused.stderr

"""`dragoman db backup` under load, `dragoman db restore`, and a server on what was restored."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import aclosing
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests import ROOT
from tests.support.databases.postgres import cluster, programs
from tests.support.server.dragoman_process import dragoman_at_home
from tests.support.server.killing import check_kept
from tests.support.server.serving import answer_in, serving, until

pytestmark = pytest.mark.anyio
BACKUPS, SIDE_BY_SIDE, TURNS = 3, 4, 6
CALL = "I run it.\n```bash\nfor i in 1 2 3; do echo $i; done\n```\n"


def backup(folder: Path, file: Path) -> str:
    ended = dragoman_at_home(folder, "db", "backup", str(file))
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


async def test_each_backup_taken_under_load_restores_to_runs_that_are_whole(tmp_path: Path) -> None:
    """What is in it is a beginning of what clients saw; runs that it cuts get one end; sessions go on."""
    source, files = tmp_path / "source", [tmp_path / f"{number}.db" for number in range(BACKUPS)]
    source.mkdir()
    seen: dict[str, list[str]] = {}
    async with asyncio.timeout(100), serving(source, Scripted([CALL, "Done."] * 200)) as served:

        async def talk() -> None:
            for _ in range(TURNS):
                async with served.client.stream("POST", "/chat", json={"message": "Go"}) as response:
                    frames = (await response.aread()).decode().split("\n\n")[:-1]
                    seen[response.headers["x-run-id"]] = frames

        async with asyncio.TaskGroup() as load:
            for _ in range(SIDE_BY_SIDE):
                load.create_task(talk())
            for file in files:
                told = await asyncio.to_thread(backup, source, file)
        assert str(files[-1]) in told
        assert len(seen) == SIDE_BY_SIDE * TURNS
    whole = tmp_path / "whole.db"  # of a server that has stopped
    backup(source, whole)
    for file in (*files, whole):
        with sqlite3.connect(file) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.close()
        target = tmp_path / f"restored-{file.stem}"
        target.mkdir()
        assert dragoman_at_home(target, "db", "restore", str(file)).returncode == 0
        async with asyncio.timeout(60), serving(target, Scripted(["And on."] * 50)) as served:
            sessions = (await served.client.get("/sessions")).json()["sessions"]
            runs = [run for one in sessions for run in await served.services.store.runs(one["id"])]
            for run in runs:
                stored = (await served.client.get(f"/runs/{run.id}/events")).text.split("\n\n")[:-1]
                common = seen[run.id] if stored[-1] == seen[run.id][-1] else []
                await check_kept(served.client, run.id, common)
            assert len(runs) == len(seen) or file != whole
            assert runs or file == files[0]


async def test_a_run_that_a_backup_cuts_is_not_continued(tmp_path: Path) -> None:
    """It went on after the backup was made: the call that follows would be made twice."""
    file, target = tmp_path / "backup.db", tmp_path / "target"
    target.mkdir()
    call = "```bash\nuntil [ -e go ]; do sleep 0.01; done\n```\n"
    async with asyncio.timeout(60), serving(tmp_path, Scripted([call, "Done."])) as served:
        async with aclosing(served.turn(message="Go")) as turn:
            run = (await until(turn, "run.started"))["run"]
            await until(turn, "tool.started")
            await asyncio.to_thread(backup, tmp_path, file)
            (tmp_path / "work" / "go").touch()
            assert answer_in((await until(turn, "run.finished"))["text"]) == "Done."
    assert dragoman_at_home(target, "db", "restore", str(file)).returncode == 0
    async with asyncio.timeout(60), serving(target, again := Scripted(["Never."])) as served:
        *_, result, end = await served.events(run)
        assert (end["type"], end["code"], "restored" in end["message"]) == ("run.failed", "interrupted", True)
        assert again.requests == []
        assert result["type"] == "tool.started"


async def test_restoring_keeps_what_it_replaces_and_needs_the_server_stopped(tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    async with serving(tmp_path, Scripted(["One.", "Two."])) as served:
        first = (await served.chat("1"))[0]["session"]
        backup(tmp_path, file)
        assert file.stat().st_mode & 0o077 == 0
        second = (await served.chat("2"))[0]["session"]
        refused = dragoman_at_home(tmp_path, "db", "restore", str(file))
        assert (refused.returncode, "Stop it" in refused.stderr) == (1, True)
    again = dragoman_at_home(tmp_path, "db", "backup", str(file))
    assert (again.returncode, "exists already" in again.stderr) == (1, True)
    restored = dragoman_at_home(tmp_path, "db", "restore", str(file))
    [kept] = (tmp_path / "data").glob("dragoman.db.replaced-*")
    assert (restored.returncode, str(kept) in restored.stdout) == (0, True)
    assert dragoman_at_home(tmp_path, "db", "export", first).returncode == 0
    assert dragoman_at_home(tmp_path, "db", "export", second).returncode == 1
    dragoman_at_home(tmp_path, "db", "restore", str(kept))  # and back
    assert dragoman_at_home(tmp_path, "db", "export", second).returncode == 0


def test_what_is_no_backup_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    damaged, foreign, newer = (tmp_path / name for name in ("damaged", "foreign", "newer"))
    damaged.write_bytes(b"SQLite format 3\0" + b"\0" * 4096)
    for file, version, tables in ((foreign, 0, ["t"]), (newer, 99, ["sessions", "runs", "events"])):
        with sqlite3.connect(file) as db:
            for table in tables:
                db.execute(f"CREATE TABLE {table} (x)")
            db.execute(f"PRAGMA user_version = {version}")
        db.close()
    for file, reason in (
        (tmp_path / "none", "There is no backup"),
        (damaged, "cannot be"),
        (foreign, "is not a database of dragoman"),
        (newer, "newer dragoman"),
    ):
        ended = dragoman_at_home(tmp_path, "db", "restore", str(file))
        assert (ended.returncode, reason in ended.stderr) == (1, True), ended.stderr
        assert not list((tmp_path / "data").glob("dragoman.db*"))


async def test_a_damaged_database_is_replaced_without_its_log(tmp_path: Path) -> None:
    file, database = tmp_path / "backup.db", tmp_path / "data" / "dragoman.db"
    async with serving(tmp_path, Scripted(["One."])) as served:
        session = (await served.chat("1"))[0]["session"]
    backup(tmp_path, file)
    database.write_bytes(b"no database any more" * 500)
    database.with_name("dragoman.db-wal").write_bytes(b"its log" * 500)
    assert dragoman_at_home(tmp_path, "db", "restore", str(file)).returncode == 0
    assert not database.with_name("dragoman.db-wal").exists()
    assert dragoman_at_home(tmp_path, "db", "export", session).returncode == 0
    async with serving(tmp_path, Scripted(["Two."])) as served:
        assert (await served.chat("2", session=session))[-1]["text"] == "Two."


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])):
        ended = dragoman_at_home(tmp_path, "db", "backup", str(tmp_path / "no" / "folder.db"))
    assert (ended.returncode, "folder.db cannot be written" in ended.stderr) == (1, True)


def documented(start: str) -> str:
    """The SQL of docs/backup.md that begins so."""
    page = (ROOT / "docs" / "backup.md").read_text()
    return start + page.partition(start)[2].partition('"')[0]


async def test_a_dump_of_postgresql_restores_and_continues_no_run_of_it(tmp_path: Path) -> None:
    """As docs/backup.md has it."""
    call = "```bash\nuntil [ -e go ]; do sleep 0.01; done\n```\n"
    with cluster() as postgres:
        url, restored, dump = postgres.database(), postgres.url("restored"), str(tmp_path / "dump")
        pg = programs()
        assert pg
        async with asyncio.timeout(100):
            async with serving(tmp_path, Scripted(["One.", call, "Done."]), database_url=url) as served:
                events = await served.chat("1")
                first, session = events[0]["run"], events[0]["session"]
                async with aclosing(served.turn(message="2", session=session)) as turn:
                    second = (await until(turn, "run.started"))["run"]
                    await until(turn, "tool.started")
                    await executed(str(pg / "pg_dump"), "--format=custom", f"--file={dump}", url)
                    (tmp_path / "work" / "go").touch()
                    await until(turn, "run.finished")
            postgres.sql("CREATE DATABASE restored")
            flags = ("--exit-on-error", "--no-owner", f"--dbname={restored}")
            await executed(str(pg / "pg_restore"), *flags, dump)
            postgres.sql(documented("INSERT INTO state"), "restored")
            target = tmp_path / "target"
            target.mkdir()
            async with serving(target, Scripted(["And on."]), database_url=restored) as served:
                assert await served.events(first) == events
                end = (await served.events(second))[-1]
                assert (end["type"], end["code"], "restored" in end["message"]) == ("run.failed", "interrupted", True)
                assert (await served.chat("3", session=session))[-1]["text"] == "And on."


async def executed(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, written = await process.communicate()
    assert process.returncode == 0, written.decode()

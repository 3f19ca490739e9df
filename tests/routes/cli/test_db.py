"""`dragoman db`, and what the database looks like after everything that can be asked of it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from app.storage.changes import StoreFailed
from app.storage.sqlite.schema import SCHEMA
from app.storage.sqlite.store import SQLiteStore
from tests.support.server.dragoman_process import dragoman_at_home
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
# Budgets and sums of a month outlast what used them, and so does the count of the changes of a list.
KEPT = ("bytes", "state", "used", "spent", "lists")


async def test_sizes_vacuum_and_export(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["```bash\necho hi\n```\n", "Done."])) as served:
        events = await served.chat("Say hi")
        session = events[0]["session"]
        refused = dragoman_at_home(tmp_path, "db", "vacuum")  # it would hold up the server's runs until they fail
        assert (refused.returncode, "Stop it" in refused.stderr) == (1, True)
    sizes = dragoman_at_home(tmp_path, "db", "sizes").stdout
    assert {line.split()[0]: line.split()[1] for line in sizes.splitlines()}["messages"] == "4"
    exported = json.loads(dragoman_at_home(tmp_path, "db", "export", session).stdout)
    assert [message["role"] for message in exported["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert exported["runs"][0]["events"] == [{k: v for k, v in event.items() if k != "seq"} for event in events]
    assert "bytes before" in dragoman_at_home(tmp_path, "db", "vacuum").stdout
    ended = dragoman_at_home(tmp_path, "db", "export", "ses_none")
    assert (ended.returncode, "ses_none" in ended.stderr) == (1, True)


async def test_the_command_line_beside_a_server_takes_nothing_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, Scripted(["One.", "Two.", "Three."])) as served:
        session = None
        for number in range(1, 4):
            events = await served.chat("On", session=session)
            session = events[0]["session"]
            assert events[-1]["type"] == "run.finished"
            exported = json.loads(dragoman_at_home(tmp_path, "db", "export", session).stdout)
            assert len(exported["messages"]) == 2 * number
            assert [run["state"] for run in exported["runs"]] == ["answered"] * number
            sizes = dict(line.split() for line in dragoman_at_home(tmp_path, "db", "sizes").stdout.splitlines())
            assert (sizes["runs"], sizes["messages"]) == (str(number), str(2 * number))
            assert dragoman_at_home(tmp_path, "token", "list").returncode == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def database(folder: Path, name: str) -> bytes:
    return (folder / "data" / f"{name}.db").read_bytes()  # closed: there is no log beside it


async def test_a_vacuum_leaves_no_word_of_a_deleted_file_and_session(tmp_path: Path) -> None:
    script = "```bash\nprintf 'zanzi''bar' > a.txt\n```\n"
    async with serving(tmp_path, Scripted([script, "Done."]), checkpoints=True) as served:
        session = (await served.chat("Write it"))[0]["session"]
        written = served.services.settings.workspace / "a.txt"
        assert written.read_text() == "zanzibar"
        await served.client.delete(f"/sessions/{session}")
        written.unlink()  # after the look that goes with the session
    assert b"zanzibar" in database(tmp_path, "checkpoints")
    assert dragoman_at_home(tmp_path, "db", "vacuum").returncode == 0
    assert not [name for name in ("checkpoints", "dragoman") if b"zanzibar" in database(tmp_path, name)]


async def test_what_is_a_secret_by_now_is_not_exported(tmp_path: Path) -> None:
    key = "sk-of-today-4711-Zeisig"
    async with serving(tmp_path, Scripted([f"It was {key}."])) as served:
        session = (await served.chat(f"Keep {key}"))[0]["session"]
    exported = dragoman_at_home(tmp_path, "db", "export", session, "--model-key", key).stdout
    assert key not in exported
    assert json.loads(exported)["messages"][0]["text"] == "Keep [redacted]"


@pytest.mark.parametrize("words", [("sizes",), ("vacuum",), ("export", "ses_1")])
def test_a_database_that_is_not_there_is_not_made(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = dragoman_at_home(tmp_path, "db", *words)
    assert (ended.returncode, "there is no database" in ended.stderr) == (1, True)
    assert not list(tmp_path.rglob("*.db"))


async def test_a_database_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with sqlite3.connect(tmp_path / "data" / "dragoman.db") as db:
        db.executescript(SCHEMA[0])
        db.execute("INSERT INTO sessions VALUES ('ses_1', 'local', 1.0, 'old')")
        db.execute("INSERT INTO runs VALUES ('run_1', 'ses_1', 'local', 'm', 'answered', 1.0, 2.0)")
        db.execute("""INSERT INTO events VALUES ('run_1', 1, 'run.finished', '{"type": "run.finished"}')""")
    db.close()
    async with serving(tmp_path, Scripted(["And on."])) as served:
        assert [event["type"] for event in await served.events("run_1")] == ["run.finished"]
        assert (await served.chat("Go on", session="ses_1"))[-1]["text"] == "And on."
        assert (await served.client.get("/readyz")).status_code == 200
    async with serving(tmp_path, Scripted([])) as served:  # and stays so, also after the health check's write
        assert (await served.client.get("/readyz")).status_code == 200


async def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreFailed, match="newer dragoman"):
        await SQLiteStore.open(path)


async def test_nothing_is_left_of_a_deleted_session(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi.", "Ho."])) as served:
        headers = {"Idempotency-Key": "k"}
        response = await served.client.post("/chat", json={"message": "x"}, headers=headers)
        await served.client.delete(f"/sessions/{response.headers['x-session-id']}")
        sizes = await served.services.store.sizes()
        assert {name: count for name, count in sizes.items() if count and name not in KEPT} == {}
        again = await served.client.post("/chat", json={"message": "x"}, headers=headers)
        assert again.headers["x-run-id"] != response.headers["x-run-id"]
    with sqlite3.connect(tmp_path / "data" / "dragoman.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()

"""Checkpoints over HTTP: what a run has changed is one diff, and is undone whole or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio

LIMIT_S = 60


def bash(script: str) -> str:
    return f"```bash\n{script}\n```\n"


@asynccontextmanager
async def served_with(folder: Path, *texts: str, **flags: object) -> AsyncGenerator[Served, None]:
    async with asyncio.timeout(LIMIT_S), serving(folder, Scripted(texts), None, **flags) as served:
        yield served


async def changes(served: Served, run: str) -> dict[str, Any]:
    response = await served.client.get(f"/runs/{run}/changes")
    assert response.status_code == 200, response.text
    return dict(response.json())


async def undo(served: Served, run: str, status: int = 200) -> dict[str, Any]:
    response = await served.client.post(f"/runs/{run}/undo")
    assert response.status_code == status, response.text
    return dict(response.json())


def paths(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["path"], one["change"], one["kind"]) for one in report["files"]]


def tree(work: Path) -> dict[str, object]:
    """Everything in a folder but what other tests of the workspace put there."""
    found: dict[str, object] = {}
    for path in sorted(work.rglob("*")):
        name, mode = str(path.relative_to(work)), path.lstat().st_mode
        if path.is_symlink():
            found[name] = os.readlink(path)  # noqa: PTH115 - as it is written
        else:
            found[name] = mode, path.read_bytes() if path.is_file() else None
    return found


async def test_what_bash_has_done_is_one_diff_and_is_undone(tmp_path: Path) -> None:
    script = (
        "echo new > made.txt; mkdir -p a/b; echo deep > a/b/deep.txt; echo two >> kept.txt; rm -r gone\n"
        "ln -s kept.txt link; rm old_link; chmod 700 tool.sh; printf '\\0\\1' > binary; mv moved.txt elsewhere.txt\n"
        "rm was_file; mkdir was_file; echo x > was_file/x; rmdir empty; echo out > ignored.log; rm -r was_folder\n"
        "echo file > was_folder"
    )
    async with served_with(tmp_path, bash(script), "Done.", "Well.") as served:
        work = tmp_path / "work"
        for name, text in {"kept.txt": "one\n", "tool.sh": "#!/bin/sh\n", "moved.txt": "m", "was_file": "f"}.items():
            (work / name).write_text(text)
        for folder in ("gone/deeper", "empty", "was_folder/in"):
            (work / folder).mkdir(parents=True)
        (work / "gone/deeper/file.txt").write_text("gone\n")
        (work / "was_folder/in/f").write_text("f")
        (work / "tool.sh").chmod(0o644)
        (work / ".gitignore").write_text("*.log\n")
        (work / "old_link").symlink_to("/nowhere")
        before = tree(work)
        events = await served.chat("Go.")
        run, session = events[0]["run"], events[0]["session"]
        assert of_kind(events, "tool.finished")[0]["exit_code"] == 0
        report = await changes(served, run)
        assert report["state"] == "kept"
        assert ("made.txt", "created", "file") in paths(report) and ("ignored.log", "created", "file") in paths(report)
        assert ("gone/deeper/file.txt", "removed", "file") in paths(report)
        assert ("old_link", "removed", "link") in paths(report) and ("link", "created", "link") in paths(report)
        lines = [line for file in report["files"] for line in file["diff"].splitlines()]
        for line in ("+two", "[mode 644 -> 700]", "-gone", "[not text, 0 -> 2 bytes]", "+-> kept.txt"):
            assert line in lines
        undone = await undo(served, run)
        assert (undone["state"], undone["undone_by"]) == ("undone", "local") and undone["undone_at"]
        assert tree(work) == before
        assert (await undo(served, run))["undone_at"] == undone["undone_at"]  # it can be repeated
        told = await served.chat("And?", session=session)
        assert [event["code"] for event in of_kind(told, "notice")] == ["undone"]
        messages = (await served.client.get(f"/sessions/{session}")).json()["messages"]
        assert any("undone changes" in one["text"] and "made.txt" in one["text"] for one in messages)
        again = await served.chat("And now?", session=session)
        assert not of_kind(again, "notice")  # once
        audit = (await served.client.get("/audit")).json()["audit"]
        assert [(one["decision"], one["by"]) for one in audit if one["action"] == "undo"] == [("allow", "local")] * 2


async def test_what_has_changed_since_is_refused_by_name_and_nothing_is_done(tmp_path: Path) -> None:
    async with served_with(tmp_path, bash("echo 1 > a; echo 1 > b"), "Done.", bash("echo 2 > b"), "Done.") as served:
        first = (await served.chat("Go."))[0]["run"]
        second = (await served.chat("Again."))[0]["run"]
        refused = (await undo(served, first, 409))["error"]
        assert refused["code"] == "undo_refused"
        assert refused["files"] == [{"path": "b", "reason": f"run {second} has changed it since"}]
        assert (tmp_path / "work/a").read_text() == "1\n" and (tmp_path / "work/b").read_text() == "2\n"
        await undo(served, second)
        (tmp_path / "work/a").write_text("by a person")
        refused = (await undo(served, first, 409))["error"]
        assert refused["files"] == [{"path": "a", "reason": "it has changed since"}]
        (tmp_path / "work/a").write_text("1\n")
        await undo(served, first)
        assert tree(tmp_path / "work") == {}


async def test_an_edit_between_two_calls_is_no_run_s(tmp_path: Path) -> None:
    """A person's, while the run waits for the person."""
    texts = bash("echo 1 > a; echo 1 > b"), bash("cat a; echo 2 > b"), "Done."
    async with served_with(tmp_path, *texts) as served:
        async with aclosing(served.turn(message="Go.", approval="ask")) as turn:
            asked = 0
            started: dict[str, Any] = {}
            async for event in turn:
                started = event if event["type"] == "run.started" else started
                if event["type"] == "approval.required":
                    asked += 1
                    if asked == 2:
                        (tmp_path / "work/mine.txt").write_text("mine")
                        (tmp_path / "work/a").write_text("mine too")
                    where = f"/runs/{started['run']}/approvals/{event['call']}"
                    await served.client.post(where, json={"decision": "approve"})
        report = await changes(served, started["run"])
        assert paths(report) == [("a", "created", "file"), ("b", "created", "file")]
        refused = (await undo(served, started["run"], 409))["error"]
        assert [one["path"] for one in refused["files"]] == ["a"]
        assert (tmp_path / "work/b").read_text() == "2\n"


async def test_a_run_at_work_is_not_undone(tmp_path: Path) -> None:
    async with served_with(tmp_path, bash("echo 1 > a; echo up; sleep 60"), "Done.") as served:
        async with aclosing(served.turn(message="Go.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            while "up" not in (await until(turn, "tool.progress"))["tail"]:
                pass
            assert (await undo(served, run, 409))["error"]["code"] == "run_active"
            await served.client.post(f"/runs/{run}/cancel")
        assert paths(await changes(served, run)) == [("a", "created", "file")]
        await undo(served, run)
        assert not (tmp_path / "work/a").exists()


async def test_only_the_principal_and_admins_see_and_undo(tmp_path: Path) -> None:
    rules = '[{"match": "bash", "role": "user"}]'
    async with served_with(tmp_path, bash("echo 1 > a"), "Done.", tools=rules) as served:
        anna, ben = await bearer(served, "anna"), await bearer(served, "ben")
        boss = await bearer(served, "boss", "admin")
        served.client.headers.update(anna)
        run = (await served.chat("Go."))[0]["run"]
        for headers, status in ((ben, 404), (anna, 200), (boss, 200)):
            assert (await served.client.get(f"/runs/{run}/changes", headers=headers)).status_code == status
        assert (await served.client.post(f"/runs/{run}/undo", headers=ben)).status_code == 404
        assert (tmp_path / "work/people/anna/a").exists()
        undone = await served.client.post(f"/runs/{run}/undo", headers=boss)
        assert undone.json()["undone_by"] == "boss" and not (tmp_path / "work/people/anna/a").exists()
        assert (await served.client.get("/runs/run_none/changes", headers=boss)).status_code == 404


async def test_protected_files_are_passed_by_and_large_ones_are_named(tmp_path: Path) -> None:
    script = (
        "git init -q sub; echo 1 > sub/f; mkdir -p x/.vscode; echo 1 > x/.vscode/t; echo 1 > x/.envrc; "
        "mkdir -p node_modules/a; echo 1 > node_modules/a/b; head -c 2000000 /dev/zero > big"
    )
    async with served_with(tmp_path, bash(script), "Done.", checkpoint_file_mb="1") as served:
        events = await served.chat("Go.")
        run = events[0]["run"]
        reported = {event["path"]: event.get("unkept") for event in of_kind(events, "file.changed")}
        large = "too large to be kept, not readable, or a secret of the server is in it"
        protected = dict.fromkeys(("x/.envrc", "x/.vscode", "sub/.git"), "protected")
        assert reported == {"sub/f": None, "big": large} | protected, "what is not undone is marked"
        report = await changes(served, run)
        assert [path for path, _, _ in paths(report)] == ["sub", "sub/f", "x"]
        left_out = [(one["path"], one["after"]["size"], one["reason"]) for one in report["left_out"]]
        assert left_out == [
            ("big", 2_000_000, large),
            *(("node_modules", 0, "programs make it again"), ("sub/.git", 0, "protected")),
            *(("x/.envrc", 2, "protected"), ("x/.vscode", 0, "protected")),
        ]
        await undo(served, run)
        assert not (tmp_path / "work/sub/f").exists() and (tmp_path / "work/sub/.git/HEAD").exists()
        assert (tmp_path / "work/x/.vscode/t").exists() and (tmp_path / "work/big").exists()


async def test_a_secret_of_the_server_is_not_kept(tmp_path: Path) -> None:
    key = "sk-sesame-0123456789abcdef-please"
    async with served_with(tmp_path, bash("echo 1 > a; echo 2 >> mine"), "Done.", model_key=key) as served:
        (tmp_path / "work/mine").write_text(key)
        run = (await served.chat("Go."))[0]["run"]
        report = await changes(served, run)
        assert [one["path"] for one in report["left_out"]] == ["mine"]
        assert [path for path, _, _ in paths(report)] == ["a"]
    assert not any(key.encode() in path.read_bytes() for path in (tmp_path / "data").glob("checkpoints.db*"))


async def test_a_run_that_only_reads_costs_nothing(tmp_path: Path) -> None:
    async with served_with(tmp_path, "```list_files\n{}\n```\n", "Done.") as served:
        run = (await served.chat("Go."))[0]["run"]
        report = await changes(served, run)
        assert (report["state"], report["files"]) == ("none", [])
        assert (await undo(served, run, 409))["error"]["message"].startswith("This run has changed nothing")
    assert not (tmp_path / "data/checkpoints.db").exists()


async def test_a_workspace_beyond_the_limits_gets_a_notice(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for number in range(101):
        (tmp_path / f"work/{number}").touch()
    texts = bash("echo 1 > a"), bash("echo 1 > b"), "Done."
    async with served_with(tmp_path, *texts, checkpoint_files="100") as served:
        events = await served.chat("Go.")
        [notice] = of_kind(events, "notice")
        assert notice["code"] == "no_checkpoint" and "more than 100 files" in notice["message"]
        assert "not reported" in notice["message"], "one limit holds for undos and for reports of changes"
        run = events[0]["run"]
        assert (await changes(served, run))["state"] == "unavailable"
        assert "more than 100 files" in (await undo(served, run, 409))["error"]["message"]
        assert (tmp_path / "work/b").exists()


async def test_without_checkpoints_nothing_is_kept(tmp_path: Path) -> None:
    async with served_with(tmp_path, bash("echo 1 > a"), "Done.", checkpoints="false") as served:
        run = (await served.chat("Go."))[0]["run"]
        assert [(e["path"], "unkept" in e) for e in await served.events(run) if e["type"] == "file.changed"] == [
            ("a", False)
        ]
        for answer in (await served.client.get(f"/runs/{run}/changes"), await served.client.post(f"/runs/{run}/undo")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "checkpoints_off")


async def test_checkpoints_go_with_their_session(tmp_path: Path) -> None:
    async with served_with(tmp_path, bash("echo 1 > a"), "Done.") as served:
        events = await served.chat("Go.")
        checkpoints = served.services.checkpoints
        assert checkpoints and checkpoints.store.changes(events[0]["run"])
        await served.client.delete(f"/sessions/{events[0]['session']}")
        assert checkpoints.store.row(events[0]["run"]) is None
        assert not checkpoints.store.changes(events[0]["run"])


async def test_one_file_of_a_run_is_undone_alone(tmp_path: Path) -> None:
    script = "echo two >> kept.txt; echo new > made.txt; rm gone.txt"
    async with served_with(tmp_path, bash(script), "Done.", "Well.") as served:
        work = tmp_path / "work"
        (work / "kept.txt").write_text("one\n")
        (work / "gone.txt").write_text("gone\n")
        events = await served.chat()
        run, path = events[0]["run"], f"/runs/{events[0]['run']}/undo"
        missing = await served.client.post(path, json={"paths": ["kept.txt", "other.txt"]})
        assert missing.status_code == 409 and "other.txt" in missing.text and (work / "made.txt").exists()
        assert (await served.client.post(path, json={"paths": [""]})).status_code == 422
        answer = (await served.client.post(path, json={"paths": ["gone.txt"]})).json()
        assert (answer["state"], answer["undone_files"]) == ("kept", ["gone.txt"])
        assert [one[0] for one in paths(answer)] == ["kept.txt", "made.txt"]
        assert (work / "gone.txt").read_text() == "gone\n" and (work / "kept.txt").read_text() == "one\ntwo\n"
        (work / "kept.txt").write_text("a person's")
        refused = await served.client.post(path, json={"paths": ["kept.txt"]})
        assert refused.status_code == 409 and (await changes(served, run))["files"][0]["path"] == "kept.txt"
        (work / "kept.txt").write_text("one\ntwo\n")
        await served.chat(session=events[0]["session"])
        messages = (await served.client.get(f"/sessions/{events[0]['session']}")).json()["messages"]
        told = next(one["text"] for one in messages if "undone changes" in one["text"])
        assert "gone.txt" in told and "made.txt" not in told, "the model learns of it"
        assert (await undo(served, run))["state"] == "undone"
        assert (work / "kept.txt").read_text() == "one\n" and not (work / "made.txt").exists()

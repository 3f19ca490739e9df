"""Recordings as files, and `dragoman replay` of them: bad ones are refused in words that say what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pytest import CaptureFixture, MonkeyPatch

from app.policy import gate
from app.replay.checking import Outcome
from app.replay.recording import UnusableRecording, read_file, read_recording, written
from routes.cli.main import main
from tests.support.golden.playing import RECORDINGS, native
from tests.support.replays import CALL, golden, outcomes, recorded, recording, without_row
from tests.support.server.serving import stored

Fields = dict[str, Any]
BASH = RECORDINGS / "bash.json"
PREFIX = 500  # characters between the places where a file is cut


def dragoman(folder: Path, *words: object) -> int:
    environ = {"HOME": str(folder), "DRAGOMAN_DATA_DIR": str(folder / "data")}
    return main([*map(str, words)], environ)


def signed(fields: Fields) -> str:
    """The file of these fields as its writer would sign it."""
    content = {name: value for name, value in fields.items() if name not in ("format", "version", "sum")}
    digest = sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return json.dumps(fields | {"sum": digest})


def with_value(*path: str | int, value: object) -> Callable[[Fields], None]:
    def change(fields: Any) -> None:
        for step in path[:-1]:
            fields = fields[step]
        fields[path[-1]] = value

    return change


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("name", sorted(golden()))
def test_a_recording_is_the_same_after_it_was_written_and_read(name: str) -> None:
    text = (RECORDINGS / f"{name}.json").read_text()
    assert written(golden()[name]) == text
    assert read_recording(text.encode(), name) == golden()[name]


WITHOUT_SUM: dict[str, tuple[Callable[[Fields], None], str]] = {
    "a newer version": (with_value("version", value=2), "reads 1. Upgrade it"),
    "a version in words": (with_value("version", value="1"), "reads 1. Upgrade it"),
    "another format": (with_value("format", value="a picture"), "`dragoman export-test RUN` writes one"),
    "a changed text": (with_value("said", 0, "text", value="Other"), "Take the file as it was"),
    "a removed field": (lambda fields: fields.pop("made_by"), "Take the file as it was"),
    "a removed sum": (lambda fields: fields.pop("sum"), "Take the file as it was"),
    "deep nesting": (with_value("said", value=nested(900)), "Take the file as it was"),
}
WITH_SUM: dict[str, tuple[Callable[[Fields], None], str]] = {
    "no run": (lambda fields: fields.pop("run"), "Export the run again"),
    "deep nesting": (with_value("run", "policy", value={"approval": nested(900)}), "not valid any more"),
    "a form of calls": (with_value("begin", "model", "call_form", value="sung"), "Export the run again"),
    "a form of a request": (with_value("requests", 0, "form", value="sung"), "Export the run again"),
    "a role": (with_value("begin", "principal", "role", value="king"), "Export the run again"),
    "no role": (lambda fields: fields["begin"]["principal"].pop("role"), "Export the run again"),
    "an item": (with_value("requests", 0, "items", 0, value={"is": "song"}), "Export the run again"),
    "a grant": (with_value("begin", "grants", value=[{"tool": 1}]), "Record the run again"),
    "an option": (with_value("run", "policy", value={"approval": "perhaps"}), "not valid any more"),
    "a setting's value": (with_value("begin", "settings", "approval_user", value="perhaps"), "approval_user"),
    "a rule": (with_value("begin", "settings", "rules", value=[{"tools": ["none"]}]), "rules"),
    "a message": (with_value("said", value=[{"song": 1}]), "A message of the recording cannot be read"),
    "a message of the prompt": (with_value("requests", 0, "opening", 0, value={"song": 1}), "Record the run again"),
    "an event": (with_value("results", 0, "before", value=[{"type": "song"}]), "knows no event"),
    "an event without type": (with_value("events", 0, value={"text": "Hi"}), "event 1 has no type"),
    "a notice without code": (with_value("events", 0, value={"type": "notice"}), "event 1 has no code, message"),
    "no world": (lambda fields: fields.pop("begin"), "no world to play in"),
}


@pytest.mark.parametrize("name", WITHOUT_SUM)
def test_what_was_changed_is_refused(tmp_path: Path, name: str, capsys: CaptureFixture[str]) -> None:
    change, words = WITHOUT_SUM[name]
    fields = json.loads(BASH.read_text())
    change(fields)
    refused(tmp_path, json.dumps(fields).encode(), words, capsys)


@pytest.mark.parametrize("name", WITH_SUM)
def test_what_this_version_does_not_know_is_refused(tmp_path: Path, name: str, capsys: CaptureFixture[str]) -> None:
    change, words = WITH_SUM[name]
    fields = json.loads(BASH.read_text())
    change(fields)
    refused(tmp_path, signed(fields).encode(), words, capsys)


@pytest.mark.parametrize("content", [b"[" * 1_000_000, b"\xff\xfe{}", b"", b"7", b"null", b'"text"', b"NaN"])
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, capsys: CaptureFixture[str]) -> None:
    refused(tmp_path, content, "xport", capsys)


def refused(folder: Path, content: bytes, words: str, capsys: CaptureFixture[str]) -> None:
    """It is refused in these words, and is the same afterwards."""
    path = folder / "run.json"
    path.write_bytes(content)
    assert dragoman(folder, "replay", path) == 2
    assert words in (said := capsys.readouterr().out)
    assert said.isascii() and len(said) < 2000
    assert dragoman(folder, "replay", "--accept", path) == 1
    assert "stays as it is" in capsys.readouterr().err
    assert path.read_bytes() == content
    assert [one.name for one in folder.iterdir()] == ["run.json"]


def test_a_cut_file_is_refused() -> None:
    text = BASH.read_text()
    for end in range(0, len(text) - 2, PREFIX):
        with pytest.raises(UnusableRecording, match="Export the run again"):
            read_recording(text[:end], "run.json")


def test_what_cannot_be_read_is_said(tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch) -> None:
    assert dragoman(tmp_path, "replay", f"{tmp_path}/", tmp_path / "none.json") == 2
    assert "Is a directory" in (said := capsys.readouterr().out) and "No such file" in said
    monkeypatch.setattr("app.replay.recording.MOST_BYTES", 100)
    with pytest.raises(UnusableRecording, match="has more than 100 bytes"):
        read_file(BASH)


def test_settings_of_another_version_are_left_out(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    fields = json.loads(BASH.read_text())
    fields["begin"]["settings"]["setting_of_another_version"] = 7
    (path := tmp_path / "run.json").write_text(signed(fields))
    assert dragoman(tmp_path, "replay", path) == 0
    assert capsys.readouterr().out == "1 replayed run: no difference.\n"


def test_differences_are_said_and_accepted(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    (path := tmp_path / "run.json").write_bytes((RECORDINGS / "approval_approved.json").read_bytes())
    (cut := tmp_path / "cut.json").write_text("{")
    without_row(gate, "GATE_ROWS", "mode")(monkeypatch)
    assert dragoman(tmp_path, "replay", path) == 1
    said = capsys.readouterr().out
    assert f"{path} goes otherwise:\n  Decision on " in said and "1 of 1 replayed run goes otherwise." in said
    assert dragoman(tmp_path, "replay", "--json", path, cut) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"otherwise": 1, "unusable": 1}
    (first, *_), none = (one.get("differences", []) for one in found["runs"])
    assert first["kind"] == "decision" and first["words"].startswith("Decision on ") and not none
    assert dragoman(tmp_path, "replay", "--accept", cut, path) == 1, "the other file is accepted all the same"
    assert capsys.readouterr().out == f"{path}: what the run does now is what it is to do.\n"
    assert dragoman(tmp_path, "replay", path) == 0


def test_what_ends_at_an_unknown_call_is_not_accepted(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    content = (RECORDINGS / "approval_denied.json").read_bytes()
    (path := tmp_path / "run.json").write_bytes(content)
    without_row(gate, "GATE_ROWS", "mode")(monkeypatch)
    assert dragoman(tmp_path, "replay", "--accept", path) == 1
    assert "Record a new run" in capsys.readouterr().err
    assert path.read_bytes() == content


def test_only_files_are_accepted(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    for words in (("run_none",), (BASH, "run_none"), (BASH, "--all"), ("--session", "ses_none")):
        assert dragoman(tmp_path, "replay", "--accept", *words) == 1
        assert "--accept is for files" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("replay", "run_none"), ("replay", "--all"), ("export-test", "run_none")])
def test_a_data_folder_that_is_not_there_is_not_made(
    tmp_path: Path, words: tuple[str, ...], capsys: CaptureFixture[str]
) -> None:
    assert dragoman(tmp_path, *words) == 1
    assert "there is no database" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str], str]]:
    """A folder with three runs, two of them of the session that is named last."""
    folder = tmp_path_factory.mktemp("runs")

    async def make() -> tuple[list[str], str]:
        async with recording(folder, [CALL, "It printed hi.", "Bye.", "Hello."]) as served:
            first = (await served.chat("Print hi"))[0]
            second = (await served.chat("Good bye", session=first["session"]))[0]
            other = (await served.chat("Hello"))[0]
        return [first["run"], second["run"], other["run"]], first["session"]

    yield folder, *asyncio.run(make())


def test_stored_runs_are_replayed(runs: tuple[Path, list[str], str], capsys: CaptureFixture[str]) -> None:
    folder, names, session = runs
    for words, number in (
        (names, 3),
        ((*names, names[0]), 3),
        (("--session", session), 2),
        (("--all",), 3),
        (("--all", "--jobs", 1), 3),
        (("--all", "--session", session, names[2], BASH), 4),
    ):
        assert dragoman(folder, "replay", *words) == 0, words
        assert capsys.readouterr().out == f"{number} replayed run{'s' if number > 1 else ''}: no difference.\n"
    assert dragoman(folder, "replay", "--all", "--days", 0) == 1
    assert "no ended runs" in capsys.readouterr().err


def test_what_is_not_stored_is_said(runs: tuple[Path, list[str], str], capsys: CaptureFixture[str]) -> None:
    folder, *_ = runs
    for words, said in (
        (("replay",), "Name runs or files"),
        (("replay", "run_none"), "There is no run 'run_none'. `dragoman db export SESSION` lists"),
        (("replay", "--session", "ses_none"), "There is no session 'ses_none'"),
        (("export-test", "run_none"), "There is no run 'run_none'"),
    ):
        assert dragoman(folder, *words) == 1
        assert said in capsys.readouterr().err


def test_a_stored_run_becomes_a_test(runs: tuple[Path, list[str], str], capsys: CaptureFixture[str]) -> None:
    folder, (run, *_), _ = runs
    assert dragoman(folder, "export-test", run) == 0
    (path := folder / "exported.json").write_text(capsys.readouterr().out)
    assert dragoman(folder, "replay", path) == 0
    assert capsys.readouterr().out == "1 replayed run: no difference.\n"


def test_a_run_that_goes_otherwise_is_1_and_one_that_is_damaged_2(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    async def make() -> str:
        async with recording(tmp_path, [CALL, "It printed hi."], approval_admin="ask") as served:
            run: str = (await served.chat("Print hi", when_absent="deny"))[0]["run"]
        return run

    run = asyncio.run(make())
    with monkeypatch.context() as patch:
        without_row(gate, "GATE_ROWS", "mode")(patch)
        for words in ((run,), ("--all",)):
            assert dragoman(tmp_path, "replay", *words) == 1
            assert f"{run} goes otherwise:" in capsys.readouterr().out
    asyncio.run(damage(tmp_path, run))
    assert dragoman(tmp_path, "replay", run) == 2
    assert "cannot be replayed" in capsys.readouterr().out
    assert dragoman(tmp_path, "replay", "--all") == 0
    out = capsys.readouterr().out
    assert out.startswith("1 cannot be replayed") and "no difference" not in out


async def damage(folder: Path, run: str) -> None:
    async with stored(folder) as store:
        first, *_ = await store.recording(run)
        await store.write([type(first)(run, first.at + 1, first.kind, first.data[:-9])])
        await store.write([type(first)(run, first.at + 2, "request", first.data[:-9])])


def test_a_call_of_a_tool_that_is_not_configured_replays(tmp_path: Path) -> None:
    async def replayed() -> tuple[str, Outcome]:
        call = native(0, "web_search", {"query": "tea"})
        async with recording(tmp_path, [call, "Done."]) as served:
            [rejected] = [one for one in await served.chat("Find tea") if one["type"] == "tool.rejected"]
            [outcome] = await outcomes(await recorded(served))
        return rejected["reason"], outcome

    reason, outcome = asyncio.run(replayed())
    assert "No search engine is configured" in reason
    assert (outcome.reason, outcome.differences) == ("", [])

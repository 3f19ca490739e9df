"""`dragoman connect`: what it prints, and what it writes into files that are there."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from routes.cli.connect import CannotMerge, merged_json, merged_toml, merged_yaml
from routes.cli.main import main
from routes.cli.programs import PROGRAMS, Program
from tests.tasks.documents import DOCS

CODEX = next(program for program in PROGRAMS if program.name == "codex").text


def connect(home: Path, *words: str) -> int:
    return main(["connect", *words], {"HOME": str(home), "DRAGOMAN_DATA_DIR": str(home / "data")})


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_page_of_a_program_shows_what_is_printed(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = program.name
    assert connect(tmp_path, name, "--url", "http://localhost:8724") == 0
    printed = capsys.readouterr().out
    page = (DOCS / f"clients/{name}.md").read_text()
    assert "http://localhost:8724" in printed
    for block in printed.split("# ")[1:]:
        lead, _, text = block.partition("\n\n")
        assert f"{lead}\n\n```" in page and text.strip() in page


def test_a_file_is_written_once_and_the_old_one_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text('{"theme": "dark", "env": {"EDITOR": "vi"}}')
    assert connect(tmp_path, "claude", "--write", "--url", "http://localhost:1/v1/", "--model", "local/qwen3") == 0
    shown = capsys.readouterr().out
    assert '+    "ANTHROPIC_BASE_URL": "http://localhost:1",' in shown and f"{path}.before-1" in shown
    written = json.loads(path.read_text())
    assert written["theme"] == "dark"
    assert written["env"]["EDITOR"] == "vi" and written["env"]["ANTHROPIC_MODEL"] == "local/qwen3"
    assert json.loads((path.parent / "settings.json.before-1").read_text()) == {
        "theme": "dark",
        "env": {"EDITOR": "vi"},
    }
    assert connect(tmp_path, "claude", "--write", "--url", "http://localhost:1", "--model", "local/qwen3") == 0
    assert "up to date" in capsys.readouterr().out
    assert len([*path.parent.iterdir()]) == 2


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert connect(tmp_path, "codex", "--write") == 0
    path = tmp_path / ".codex/config.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    assert tomllib.loads(path.read_text())["model_provider"] == "dragoman"


def test_a_file_that_is_not_understood_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".aider.conf.yml"
    path.write_text("model: other\n")
    assert connect(tmp_path, "aider", "--write") == 1
    assert "add these lines yourself" in capsys.readouterr().err
    assert path.read_text() == "model: other\n"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# mine\nmodel = 'other'\napproval_policy = 'never'\n\n[model_providers.other]\nname = 'x'\n",
        CODEX.replace("{url}", "http://localhost:9"),
        f"{CODEX}\n[features]\nmodel = 'kept'\n",
        "[projects.'/home']\ntrust_level = 'trusted'\nmodel = 'not at the top'",
    ],
)
def test_toml_keeps_all_that_is_not_ours(before: str) -> None:
    after = merged_toml(before, CODEX)
    there, ours = tomllib.loads(before), tomllib.loads(CODEX)
    providers = there.get("model_providers", {}) | ours["model_providers"]
    assert tomllib.loads(after) == there | ours | {"model_providers": providers}
    assert merged_toml(after, CODEX) == after
    assert all(line in after for line in before.splitlines() if line.startswith("#"))


@pytest.mark.parametrize("before", ["model = ", 'model_providers = {dragoman = {name = "x"}}', '"model" = "quoted"'])
def test_toml_that_cannot_be_merged_is_refused(before: str) -> None:
    with pytest.raises(CannotMerge):
        merged_toml(before, CODEX)


@pytest.mark.parametrize("before", ["[]", "{", "// a comment\n{}"])
def test_json_that_cannot_be_merged_is_refused(before: str) -> None:
    with pytest.raises(CannotMerge):
        merged_json(before, '{"a": 1}')


def test_yaml_is_written_where_there_is_none() -> None:
    assert merged_yaml("", "a: 1\n") == "a: 1\n"
    assert merged_yaml("b: 2\na: 1\n", "a: 1\n") == "b: 2\na: 1\n"


def test_a_file_of_another_encoding_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".codex/config.toml"
    path.parent.mkdir()
    path.write_bytes(b'name = "\xe9"\n')
    assert connect(tmp_path, "codex", "--write") == 1
    assert "it is not UTF-8" in capsys.readouterr().err
    assert path.read_bytes() == b'name = "\xe9"\n'


@pytest.mark.parametrize("url", ['http://a"b', "http://localhost:1/$(id)", "http://localhost:1/`id`", "http://a/'"])
def test_a_url_that_would_leave_its_quotes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert connect(tmp_path, "codex", "--url", url) == 2
    seen = capsys.readouterr()
    assert "Write it without them" in seen.err and not seen.out


def test_a_name_that_would_leave_its_quotes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        connect(tmp_path, "codex", "--model", 'x" \n')

"""The command line: flags, exit codes and messages."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from app.config.operator_settings import FILE_ONLY
from app.config.settings import NAMES
from routes.cli.main import COMMANDS, main
from tests import ROOT

HOME = {"HOME": "/home/someone"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder without a dragoman.toml."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def as_a_user(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command as a user starts it; environ replaces the whole environment."""
    command = [sys.executable, "-m", "routes.cli.main", *words]
    return subprocess.run(
        command, env=HOME | {"PYTHONPATH": str(ROOT)} | environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_config_shows_each_value_and_its_origin(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "dragoman.toml").write_text("max_rounds = 7")
    assert main(["config", "--port", "99"], HOME | {"DRAGOMAN_MODEL": "m"}) == 0
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["port"] == ["99", "flag --port"]
    assert lines["model"] == ["m", "environment DRAGOMAN_MODEL"]
    assert lines["max_rounds"] == ["7", f"file {elsewhere / 'dragoman.toml'}"]
    assert lines["host"] == ["127.0.0.1", "default"]
    assert set(NAMES) <= lines.keys()


def test_config_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"], HOME) == 0
    lines = capsys.readouterr().out.splitlines()
    long = ("allowed_commands", "data_dir", "mcp_config", "workspace")
    short = [line for line in lines[1:] if line.split()[0] not in long]
    assert {line.rindex("default") for line in short} == {lines[0].index("from")}
    assert max(map(len, short)) <= 80, "a long value pushes only its own line out of a terminal"


def test_config_shows_values_as_a_settings_file_has_them(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = ['allowed_commands = ["ls *", "pwd"]', 'tools = [{match = "web_*", role = "user"}]', "taint = false"]
    (elsewhere / "dragoman.toml").write_text("\n".join(written))
    assert main(["config"], HOME) == 0
    shown = capsys.readouterr().out
    for line in written:
        name, _, value = line.partition(" = ")
        assert re.search(rf"^{name} +{re.escape(value)}  ", shown, re.M)


def test_config_masks_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"], HOME | {"DRAGOMAN_MODEL_KEY": "sk-hidden"}) == 0
    out = capsys.readouterr().out
    assert "sk-hidden" not in out
    assert "environment DRAGOMAN_MODEL_KEY" in out


@pytest.mark.parametrize("command", ["config", "serve", "chat"])
def test_a_wrong_setting_ends_with_2_and_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--max-rounds", "500"], HOME) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "dragoman: max_rounds (flag --max-rounds) is '500'. Allowed: a whole number from 1 to 200.\n"


@pytest.mark.parametrize("words", [[], ["sevre"], ["serve", "--prot", "1"], ["serve", "--max-round", "1"], ["token"]])
def test_wrong_words_end_with_2_and_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words, HOME)
    assert left.value.code == 2
    assert "usage: dragoman" in capsys.readouterr().err


NO_NAMES = [
    "",
    "  ",
    "a\nb",
    "a\x1b[31m",
    "\udcff",
    "x" * 65,
    "..",
    ".a",
    "a/b",
    "a b",
    "a\0",
    "\u00e4",
    "ann\n",
    "Local",
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_token_s_name_is_a_folder_s_too(name: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["token", "create", "--data-dir", str(elsewhere / "data"), "--name", name], HOME)
    assert left.value.code == 2
    rule = "local is the principal of requests" if name == "Local" else "a name has 1 to 64 letters, digits, . _ -"
    assert f"argument --name: {rule}" in capsys.readouterr().err
    assert not (elsewhere / "data").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = getattr(command, "name", "")
    with pytest.raises(SystemExit) as left:
        main([name, "--help"], HOME)
    assert left.value.code == 0
    assert f"usage: dragoman {name}" in capsys.readouterr().out


def test_every_setting_is_a_flag_unless_it_is_in_the_file_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"], HOME)
    shown = capsys.readouterr().out
    assert {name for name in NAMES if f"--{name.replace('_', '-')}" not in shown} == FILE_ONLY


def test_a_switch_needs_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--unsafe-no-sandbox"], HOME) == 0
    assert "flag --unsafe-no-sandbox" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--no-taint", "--no-job-follow-up"])
def test_a_switch_that_is_on_can_be_turned_off(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = flag.removeprefix("--no-").replace("-", "_")
    assert main(["config", flag], HOME) == 0
    assert re.search(rf"^{name} +false ", capsys.readouterr().out, re.M)


def test_the_version_is_the_installed_one() -> None:
    shown = as_a_user("--version")
    assert (shown.returncode, shown.stdout) == (0, f"dragoman {version('dragoman')}\n")


def test_a_wrong_value_shows_no_traceback() -> None:
    shown = as_a_user("config", DRAGOMAN_PORT="eighty")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert (
        shown.stderr
        == "dragoman: port (environment DRAGOMAN_PORT) is 'eighty'. Allowed: a whole number from 0 to 65535.\n"
    )


def test_a_folder_that_is_gone_is_told(elsewhere: Path) -> None:
    code = "import os; os.rmdir(os.getcwd()); from routes.cli.main import main; raise SystemExit(main(['config']))"
    (elsewhere / "gone").mkdir()
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=elsewhere / "gone",
        env=HOME | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    message = "dragoman: The current folder does not exist any more. Change to one that exists.\n"
    assert (shown.returncode, shown.stderr) == (2, message)


def test_a_reader_that_left_is_no_error() -> None:
    unread = "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1)"
    code = f"{unread}; from routes.cli.main import main; sys.exit(main(['config']))"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=HOME | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, "")


def test_starting_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys, routes.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert not {"pydantic", "rich", "httpx2", "starlette", "uvicorn", "mcp", "asyncio"} & set(loaded.split())

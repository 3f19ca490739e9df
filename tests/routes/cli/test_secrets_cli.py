"""`dragoman secret`, and what `dragoman doctor` finds of secrets: the value is read from a pipe, and never shown."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.cli.main import main
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
VALUE = "ghp_Value-of-tests/0123456789+x"
ADD = ("add", "github", "--env", "GITHUB_TOKEN", "--host", "api.github.com", "--host", "github.com")
Shell = Callable[..., tuple[int, str, str]]


class Prompt(io.StringIO):
    """The input of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    def run(*words: str, value: object = VALUE, command: str = "secret", **environ: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(value) if isinstance(value, str) else value)
        places = ["--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path / "work")]
        (tmp_path / "work").mkdir(exist_ok=True)
        try:
            code = main([command, *words, *places], {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **environ})
        except SystemExit as end:
            code = int(str(end.code))
        out = capsys.readouterr()
        assert VALUE not in out.out + out.err
        return code, out.out, out.err

    return run


def test_a_secret_is_added_listed_replaced_and_removed(shell: Shell, tmp_path: Path) -> None:
    more = ("--tools", "bash", "--role", "user", "--path", "GET /repos/**")
    code, out, err = shell(*ADD, *more, value=f"{VALUE}\n")
    assert (code, err) == (0, "") and out.startswith("github is added. A running server applies this")
    assert (tmp_path / "data" / "secrets.key").stat().st_mode & 0o777 == 0o600
    _, out, _ = shell("list")
    row = out.splitlines()[1].split()
    assert row[:8] == ["github", "GITHUB_TOKEN", "api.github.com", "github.com", "bash", "user", "GET", "/repos/**"]
    assert row[8] == "stored" and row[-1] == "never"
    code, _, err = shell(*ADD)
    assert code == 1 and "There is a secret github already: replace it (--replace)" in err
    assert shell(*ADD, "--replace")[1].startswith("github is replaced.")
    assert shell("remove", "github")[1].startswith(
        "github is removed. Calls that are under way keep it until they end."
    )
    code, _, err = shell("remove", "github")
    assert code == 1 and "There is no secret 'github'" in err


REFUSED = {
    (*ADD, VALUE): "A value is never given on the command line",
    (*ADD, "--value", VALUE): "A value is never given on the command line",
    (*ADD, f"--value={VALUE}"): "A value is never given on the command line",
    ("add", "github", VALUE): "A value is never given on the command line",
    (*ADD, "--hots=x"): "unknown: --hots",
    ("add", "a b", "--host", "a.example"): "A secret's name has 1 to 64 letters",
    ("add", "x", "--env", "X_TOKEN"): "a secret for commands needs the hosts",
    ("add", "x", "--env", "PATH", "--host", "a.example"): "--env: is no variable for a secret",
    ("add", "x", "--host", "*"): "--host: '*' names too many hosts",
    ("add", "x", "--host", "a/b"): "--host: 'a/b' is no host",
    ("add", "x", "--path", "repos"): "--path: 'repos' is no path",
    ("add", "x", "--from", "file:/etc/x"): "--from: 'file' is no source",
    ("add", "x", "--role", "guest"): "invalid choice: 'guest'",
    (*ADD, "--tools", "read_file"): "a secret goes with commands only",
    (*ADD, "--tools", "bash", VALUE): "a secret goes with commands only",
}


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words[-2:])[:30])
def test_what_cannot_be_a_secret_is_refused_with_the_reason(shell: Shell, words: tuple[str, ...]) -> None:
    code, out, err = shell(*words)
    assert code in (1, 2) and out == "" and REFUSED[words] in err
    assert "github" not in shell("list")[1]


@pytest.mark.parametrize(("value", "why"), [("", "is empty"), ("short", "too short"), ("aaaaaaaaaaaa", "too short")])
def test_a_value_that_could_not_be_hidden_is_refused(shell: Shell, value: str, why: str) -> None:
    assert why in shell(*ADD, value=value)[2]


def test_a_closed_input_and_one_that_is_ended_at_the_prompt_are_empty(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("getpass.getpass", end)
    for given in (None, Prompt()):
        assert "is empty" in shell(*ADD, value=given)[2]


def test_a_source_is_tried_when_it_is_added_and_asked_for_no_value(shell: Shell) -> None:
    code, _, err = shell("add", "a", "--from", "env:A_TOKEN", value="")
    assert code == 0 and "from here: The secret a is missing from env:A_TOKEN" in err
    assert shell("add", "b", "--from", "env:B_TOKEN", value="", B_TOKEN=VALUE)[2] == ""
    assert shell("add", "c", "--from", "command:printf %s " + VALUE[::-1], value="")[2] == ""


def test_the_doctor_names_secrets_that_have_no_value(shell: Shell, tmp_path: Path) -> None:
    assert "ok       secrets         there are none" in shell("--offline", command="doctor")[1]
    shell(*ADD)
    shell("add", "a", "--from", "env:A_TOKEN")
    shell("add", "c", "--from", "command:false")
    out = shell("--offline", command="doctor")[1]
    assert "ok       secrets         github: stored" in out and "skipped  secrets         c: not checked" in out
    assert "warning  secrets         a: The secret a is missing" in out
    (tmp_path / "data" / "secrets.key").unlink()
    assert "problem  secrets         github: The key file" in shell("--offline", command="doctor")[1]


async def test_a_running_server_takes_what_the_command_line_changes(shell: Shell, tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted([])) as served:
        rights = served.services.factory.secrets.rights
        assert (await asyncio.to_thread(shell, *ADD))[0] == 0
        while not rights.all:
            await served.services.store.check()
        assert [one.name for one in rights.all] == ["github"]
        assert served.services.redactor.redact(f"It is {VALUE}.") == "It is [redacted]."
        assert (await asyncio.to_thread(shell, "remove", "github"))[0] == 0
        while rights.all:
            await served.services.store.check()


def test_the_value_is_in_no_list_of_processes(tmp_path: Path) -> None:
    """A real process, whose words and environment are looked at while it waits for its input."""
    words = [str(Path(sys.executable).parent / "dragoman"), "secret", *ADD]
    places = ["--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path / "work")]
    (tmp_path / "work").mkdir()
    with subprocess.Popen([*words, *places], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        process.stdin.write(VALUE)
        process.stdin.flush()  # it reads until the end of its input
        for name in ("cmdline", "environ"):
            assert VALUE.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and VALUE not in out
    data = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert VALUE.encode() not in data

"""What a command in the box can see and do, how it ends, and what happens where there is no box."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.sandbox.processes import all_gone, endless
from tools.base.outcome import Progress, Result, ToolFailed
from tools.base.workspace import OwnFolder
from tools.builtin.shell import running
from tools.sandbox.command import Command
from tools.sandbox.sandbox import Bubblewrap, NoSandbox, Unboxed, find_sandbox
from tools.tool import Context

FOUND = find_sandbox()
needs_box = pytest.mark.skipif(
    not isinstance(FOUND, Bubblewrap), reason=FOUND.reason if isinstance(FOUND, NoSandbox) else "no box was asked for"
)
bash, python = running("bash", "command"), running("python3", "code")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    workspace, data = tmp_path / "workspace", tmp_path / "data"
    workspace.mkdir()
    data.mkdir()
    (data / "secret").write_text("the secret")
    return Context(workspace, 60, find_sandbox(hidden=[data]))


@pytest.fixture(params=["bubblewrap", "landlock"])
def boxed(request: pytest.FixtureRequest, context: Context) -> Context:
    """Every level of this machine that is a box."""
    if isinstance(found := find_sandbox(levels=[request.param]), NoSandbox):
        pytest.skip(found.reason)
    return replace(context, sandbox=found)


def told(context: Context, command: str) -> Result:
    async def main() -> Result:
        async with asyncio.timeout(60):
            async with aclosing(bash({"command": command}, context)) as news:
                *_, last = [seen async for seen in news]
        assert isinstance(last, Result)
        return last

    return asyncio.run(main())


@needs_box
@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/etc/ssl/private", "/root", "/home", "/var", "{beside}/data/secret", "{beside}/.ssh/id"]
)
def test_what_is_not_shown_is_not_there(context: Context, path: str) -> None:
    beside = context.workspace.parent
    (beside / ".ssh").mkdir()
    (beside / ".ssh" / "id").write_text("the secret")
    result = told(context, f"cat {path.format(beside=beside)}")
    assert not result.ok and "No such file" in result.text


@needs_box
def test_a_folder_that_is_replaced_by_a_link_as_a_command_starts_is_not_worked_in(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()

    class Late(Bubblewrap, frozen=True):
        def command(self, *given: Any, **named: Any) -> Command:
            made = super().command(*given, **named)
            own.rmdir()
            own.symlink_to(other)
            return replace(made, seals=None)

    assert isinstance(FOUND, Bubblewrap)
    late = Late(**{name: getattr(FOUND, name) for name in FOUND.__struct_fields__})
    result = told(Context(OwnFolder(own), 60, late), "echo x > planted")
    assert "replaced by a link" in result.text and not list(other.iterdir())


@needs_box
def test_hidden_directories_are_empty_wherever_they_are(context: Context) -> None:
    inner = context.workspace / "state"
    inner.mkdir()
    (inner / "secret").write_text("the secret")
    hiding = Context(context.workspace, 60, find_sandbox(hidden=[inner, context.workspace.parent, Path("/usr/share")]))
    result = told(hiding, f"ls {inner}; ls /usr/share; touch here; ls")
    assert result.text == "here\nstate"
    linked = context.workspace.parent / "linked"
    linked.symlink_to(context.workspace)
    assert told(Context(linked, 60, hiding.sandbox), f"ls {linked}/state; ls").text == "here\nstate"


KEPT = "people/bob"
PLANTING = (
    f"echo x > {KEPT}/made",
    f"mv {KEPT} {KEPT}.old",
    f"rm -r {KEPT}",
    "ln -s / people/ann",
    "mv people others",
    "rm -r people; ln -s / people",
    'ln -s / top; python3 -c \'import ctypes; exit(ctypes.CDLL(None).renameat2(-100, b"top", -100, b"people", 2))\'',
)


@needs_box
@pytest.mark.parametrize("command", PLANTING)
def test_in_a_directory_that_is_kept_no_command_plants_anything(context: Context, command: str) -> None:
    (context.workspace / KEPT).mkdir(parents=True)
    (context.workspace / KEPT / "own").write_text("bob's")
    linked = context.workspace.parent / "linked"
    linked.symlink_to(context.workspace)
    for workspace in (context.workspace, linked):
        keeping = Context(workspace, 60, find_sandbox(kept=[workspace / "people"]))
        assert not told(keeping, command).ok
        assert told(keeping, f"cat {KEPT}/own; touch others; echo; ls people").text == "bob's\nbob"
        assert told(replace(keeping, workspace=workspace / KEPT), "echo x > mine; ls").text == "mine\nown"
    assert sorted(path.name for path in (context.workspace / "people").rglob("*")) == ["bob", "mine", "own"]


@needs_box
@pytest.mark.parametrize(
    "command",
    # To write into a file that is there needs its rights first: only root is told why it cannot.
    ["echo x > /usr/made", "echo x >> /etc/passwd || chmod a+w /etc/passwd", "echo x > /bin/made"],
)
def test_the_system_is_read_only(context: Context, command: str) -> None:
    result = told(context, command)
    assert not result.ok and "Read-only file system" in result.text


@needs_box
def test_the_kernels_settings_are_read_only(context: Context) -> None:
    # Where the server runs as root they would be writable, and core_pattern is a way out of every box.
    assert "Read-only file system" in told(context, "echo x > /proc/self/comm").text
    writable = "-type f -writable 2> /dev/null; true"  # not every folder can be read by users
    assert told(context, f"find /proc -maxdepth 4 -not -path '/proc/[0-9s]*' {writable}").text == "(no output)"
    assert told(context, f"find /proc/sys {writable}").text == "(no output)"
    assert told(context, "echo seen > /dev/stderr; cat <(echo piped)").text == "seen\npiped"


@needs_box
def test_no_box_is_opened_in_the_box(context: Context) -> None:
    assert isinstance(context.sandbox, Bubblewrap)
    if not context.sandbox.locks:
        pytest.skip("this bubblewrap cannot forbid user namespaces")
    assert "unshare failed" in told(context, "unshare --user true").text


@needs_box
def test_a_bubblewrap_without_the_newest_locks_will_do(context: Context) -> None:
    assert isinstance(context.sandbox, Bubblewrap)
    older = context.workspace / "bwrap"
    older.write_text(f'#!/bin/sh\ncase "$*" in *disable-userns*) exit 1;; esac\nexec {context.sandbox.bwrap} "$@"\n')
    older.chmod(0o755)
    found = find_sandbox(candidates=[older])
    assert isinstance(found, Bubblewrap) and found.locks == ()
    assert told(Context(context.workspace, 60, found), "echo works").text == "works"


@needs_box
def test_the_workspace_is_at_its_own_path_and_writable(context: Context) -> None:
    assert told(context, "pwd; echo made > made; touch /tmp/also").text == str(context.workspace)
    assert (context.workspace / "made").read_text() == "made\n"
    assert told(context, "ls -A /tmp | grep also").ok is False


@needs_box
def test_there_is_no_network(context: Context) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        result = told(context, f"exec 3<>/dev/tcp/127.0.0.1/{port}")
    assert not result.ok and "Connection refused" in result.text
    assert told(context, "grep -c : /proc/net/dev").text == "1"


@pytest.mark.parametrize("boxed", [pytest.param(True, marks=needs_box), False])
def test_nothing_of_the_servers_environment_gets_in(context: Context, boxed: bool) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path; from tests.tools.sandbox.test_sandbox import *;"
        "context = Context(Path(sys.argv[1]), 60, find_sandbox(unsafe=sys.argv[2] == 'False'));"
        'print(told(context, \'env; echo; cat /proc/1/environ | tr "\\\\0" "\\\\n"\').text)'
    )
    argv = [sys.executable, "-c", script, str(context.workspace), str(boxed)]
    environment = os.environ | {"DRAGOMAN_MODEL_KEY": "sk-secret", "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    own, _, first_process = shown.partition("\n\n")
    names = {line.partition("=")[0] for line in own.splitlines()}
    assert {"PATH", "HOME", "LANG", "TERM", "COLUMNS", "LINES"} <= names
    assert {name for name in names if not name.startswith("GIT_")} <= {
        *("PATH", "HOME", "LANG", "TERM", "COLUMNS", "LINES", "PYTHONUNBUFFERED", "EDITOR", "VISUAL"),
        *("DRAGOMAN_CALL", "PWD", "SHLVL", "_"),
    }
    assert "sk-secret" not in own and (not boxed or "sk-secret" not in first_process)


@needs_box
def test_processes_of_the_machine_are_not_seen(context: Context) -> None:
    assert int(told(context, "ls /proc | grep -c '^[0-9]'").text) < 10


@pytest.mark.parametrize("script", ["( {0} & ); echo begun", "setsid {0} & echo begun", "{0} & disown; echo begun"])
def test_a_fork_that_outlives_its_parent_neither_hangs_nor_survives(boxed: Context, script: str) -> None:
    sleeper = endless()
    result = told(boxed, script.format(sleeper))
    assert result == Result(True, "begun", 0) and all_gone(sleeper)


@pytest.mark.parametrize(
    "script",
    [
        "echo begun; {0}",
        "( {0} & ); setsid {0} & echo begun; exec sleep 1000",
        "trap '' TERM; {0} & echo begun; while :; do wait; done",
        "{0} >/dev/null 2>&1 & echo begun; exec sleep 1000",
    ],
)
@pytest.mark.parametrize("leave", ["close", "cancel"])
def test_leaving_ends_every_process(boxed: Context, script: str, leave: str) -> None:
    sleeper = endless()

    async def watch(begun: asyncio.Event) -> None:
        async with aclosing(bash({"command": script.format(sleeper)}, boxed)) as news:
            async for seen in news:
                if isinstance(seen, Progress) and seen.lines:
                    begun.set()
                    if leave == "close":
                        return

    async def main() -> None:
        begun = asyncio.Event()
        async with asyncio.timeout(60):
            task = asyncio.create_task(watch(begun))
            await begun.wait()
            if leave == "cancel":
                task.cancel()
            await asyncio.wait({task})
        assert task.cancelled() == (leave == "cancel")
        assert all_gone(sleeper)

    asyncio.run(main())


def test_the_command_inside_is_asked_before_the_box_is_killed(boxed: Context) -> None:
    async def main() -> None:
        script = f"trap 'echo > tidied; exit' TERM; echo begun; {endless()} & wait"
        async with asyncio.timeout(60), aclosing(bash({"command": script}, boxed)) as news:
            async for seen in news:
                if isinstance(seen, Progress) and seen.lines:
                    break

    asyncio.run(main())
    assert (boxed.workspace / "tidied").exists()


@pytest.mark.parametrize("name", ["python", "python3"])
def test_python_is_found_in_the_box(boxed: Context, name: str) -> None:
    assert told(boxed, f"{name} -c 'import ssl, json; print(6 * 7)'").text == "42"


@needs_box
def test_the_servers_own_python_works_where_the_system_has_none(context: Context) -> None:
    assert isinstance(context.sandbox, Bubblewrap)
    own = Bubblewrap(context.sandbox.bwrap, Path(sys.executable).resolve())
    result = told(
        Context(context.workspace, 60, own), "/run/bin/python -c 'import ssl, sys; print(sys.version_info[:2])'"
    )
    assert result.text == str(sys.version_info[:2])


def test_no_sandbox_means_no_commands_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="no working sandbox"):
        told(Context(tmp_path, 60, NoSandbox("There is no working sandbox.")), "echo x")
    with pytest.raises(ToolFailed, match="nothing was set up"):
        told(Context(tmp_path), "echo x")


def test_a_broken_bubblewrap_is_found_out_and_named(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'no namespaces for you' >&2\nexit 1\n")
    broken.chmod(0o755)
    found = find_sandbox(levels=["bubblewrap"], candidates=[broken, tmp_path / "missing"])
    assert isinstance(found, NoSandbox)
    assert "no namespaces for you" in found.reason and "--unsafe-no-sandbox" in found.reason
    none = find_sandbox(levels=["bubblewrap"], candidates=[])
    assert isinstance(none, NoSandbox) and "not installed" in none.reason


def test_without_a_sandbox_only_when_asked(tmp_path: Path) -> None:
    found = find_sandbox(unsafe=True)
    assert isinstance(found, Unboxed)
    assert told(Context(tmp_path, 60, found), "pwd").text == str(tmp_path)

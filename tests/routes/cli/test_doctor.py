"""`dragoman doctor`: each check finds what is wrong, nothing is changed, no secret is shown, and it ends in time."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from app.models.scripted import Scripted
from app.storage.sqlite.store import SQLiteStore
from routes.cli.doctor.checks import CHECKS, Checked, run_checks
from routes.cli.doctor.command import as_json, exit_code, lines, subject_of
from routes.cli.doctor.finding import Check, Finding, State, Subject, ok, problem
from routes.cli.doctor.folders import file_system
from routes.cli.doctor.mcp import settled_findings
from tests.support.databases.postgres import Cluster
from tests.support.mcp.faulty_servers import FAULTY, faulty, managing
from tests.support.models.endpoints import model_server
from tests.support.models.upstream import answer, upstream
from tests.support.server.dragoman_process import dragoman_at_home
from tests.support.server.serving import serving
from tools.mcp.model import ServerConfig

pytestmark = pytest.mark.anyio
KEY = "sk-of-the-model-4711-Zeisig"
LIMIT_S = 60


def flags_of(folder: Path) -> dict[str, object]:
    return {"data_dir": str(folder / "data"), "workspace": str(folder / "work"), "port": "0"}


async def examined(
    folder: Path,
    *names: str,
    environ: Mapping[str, str] | None = None,
    offline: bool = True,
    flags: Mapping[str, object] | None = None,
    mcp_s: float = LIMIT_S,
) -> list[Checked]:
    """The findings of some checks, or of all, and of those that they need."""
    environ = {"HOME": str(folder), "LANG": "C.UTF-8"} | dict(environ or {})
    subject = subject_of(flags_of(folder) | dict(flags or {}), environ)
    wanted = set(names)
    for check in reversed(CHECKS):  # what is needed comes before
        wanted |= set(check.needs) if check.name in wanted else set()
    # What they find does not depend on how busy the machine is.
    checks = [replace(check, limit_s=LIMIT_S) for check in CHECKS if not names or check.name in wanted]
    subject.mcp_s, subject.offline = mcp_s, offline
    async with asyncio.timeout(LIMIT_S):
        return await run_checks(checks, subject, all_s=LIMIT_S)


def found(checked: list[Checked], name: str) -> list[Finding]:
    return [one.finding for one in checked if one.check == name]


def files_in(folder: Path) -> dict[str, tuple[int, int, float]]:
    """Every file and folder with its mode, size and time."""
    return {
        str(path.relative_to(folder)): ((look := path.lstat()).st_mode, look.st_size, look.st_mtime)
        for path in sorted(folder.rglob("*"))
    }


async def test_a_new_installation_has_no_problem_and_nothing_is_made(tmp_path: Path) -> None:
    checked = await examined(tmp_path)
    assert [one for one in checked if one.finding.state is State.PROBLEM] == []
    assert [one.check for one in checked] == [check.name for check in CHECKS]
    assert files_in(tmp_path) == {}
    assert {one.finding.found for one in checked if one.check in ("models", "mcp servers")} == {
        "not checked, because of --offline"
    }


async def test_beside_a_running_server_it_finds_it_and_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi.", "And on."])) as served:
        await served.chat("Hello")
        before = {name: mode for name, (mode, _, _) in files_in(tmp_path).items()}  # the server itself still writes
        checked = await examined(tmp_path)
        assert {name: mode for name, (mode, _, _) in files_in(tmp_path).items()} == before
        assert found(checked, "server") == [ok(f"one runs (process {os.getpid()})")]
        [database] = found(checked, "database")
        assert (database.state, "whole" in database.found) == (State.OK, True)
        assert (await served.chat("On"))[-1]["type"] == "run.finished"


async def test_a_stopped_server_leaves_a_database_that_is_read_without_a_trace(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])):
        pass
    before = files_in(tmp_path)
    checked = await examined(tmp_path, "database", "permissions", "clock")
    assert {one.finding.state for one in checked} == {State.OK}
    assert files_in(tmp_path) == before


async def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("/proc/nothing", str(tmp_path / "file"), str(tmp_path / "file" / "below")):
        checked = await examined(tmp_path, "database", flags={"data_dir": folder})
        states = [found(checked, name)[0].state for name in ("data directory", "database")]
        assert states == [State.PROBLEM, State.SKIPPED], folder
        [work] = found(await examined(tmp_path, "workspace", flags={"workspace": folder}), "workspace")
        assert work.state is State.PROBLEM, folder
    inside = {"data_dir": str(tmp_path / "work" / "data")}
    assert exit_code(await examined(tmp_path, "workspace", flags=inside)) == 2


def overwrite(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[4096 * 3 : 4096 * 3 + 2000] = b"\x55" * 2000
    path.write_bytes(whole)


def renumber(version: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")

    return change


class Fault(NamedTuple):
    change: Callable[[Path], object]
    state: State
    shown: str


FAULTS = {
    "damaged": Fault(overwrite, State.PROBLEM, "damaged"),
    "no database": Fault(lambda path: path.write_bytes(b"no database" * 2000), State.PROBLEM, "not a database"),
    "newer": Fault(renumber(1000), State.PROBLEM, "newer dragoman"),
    "older": Fault(renumber(3), State.WARNING, "migrates it"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_database_that_is_not_right(tmp_path: Path, name: str) -> None:
    path = tmp_path / "data" / "dragoman.db"
    await (await SQLiteStore.open(path)).close()
    FAULTS[name].change(path)
    before = files_in(tmp_path)
    finding, fault = found(await examined(tmp_path, "database"), "database")[0], FAULTS[name]
    assert (finding.state, fault.shown in finding.found, bool(finding.advice)) == (
        FAULTS[name].state,
        True,
        True,
    )
    assert files_in(tmp_path) == before


async def test_settings_that_are_not_valid_are_named_with_file_and_field(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(f'port = "x"\nmodell = "m"\nmodel_key = "{KEY} x"\n')
    checked = await examined(tmp_path, flags={"config": str(file), "port": None})
    problems = found(checked, "configuration")
    assert len(problems) == 3
    assert all(str(file) in one.found for one in problems)
    assert [name for name in ("port", "modell", "model_key") if not any(name in one.found for one in problems)] == []
    assert KEY not in json.dumps(as_json(checked))
    assert found(checked, "database")[0].state is State.SKIPPED


async def test_open_permissions_are_found(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o644)
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "local.token").touch(0o644)
    file = tmp_path / "dragoman.toml"
    file.write_text(f'endpoints.own = {{url = "http://127.0.0.1:9/v1", key_file = "{key}"}}')
    checked = await examined(tmp_path, "permissions", flags={"config": str(file)})
    rows = found(checked, "permissions")
    assert [(row.state, row.advice.split(" ")[0]) for row in rows] == [
        (State.WARNING, "The"),
        (State.PROBLEM, "chmod"),
    ]


async def test_a_port_in_use_and_an_address_without_a_token(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        checked = await examined(tmp_path, "port", "address", flags={"port": str(port)})
        assert f"process {os.getpid()}" in found(checked, "port")[0].found
    assert found(checked, "address")[0].state is State.OK
    reachable = found(await examined(tmp_path, "address", flags={"host": "0.0.0.0"}), "address")[0]
    assert (reachable.state, "dragoman token create" in reachable.advice) == (State.PROBLEM, True)


@pytest.mark.parametrize(
    ("environ", "state", "shown"),
    [
        ({"HTTPS_PROXY": "ftp://user:pass-4711-word@proxy.example"}, State.PROBLEM, "HTTPS_PROXY"),
        ({"https_proxy": "http://proxy.example:3128"}, State.WARNING, "NO_PROXY"),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "localhost"}, State.OK, "HTTPS_PROXY"),
        ({"FORWARDED_ALLOW_IPS": "*"}, State.PROBLEM, "FORWARDED_ALLOW_IPS"),
        ({}, State.OK, "none"),
    ],
)
async def test_proxies(tmp_path: Path, environ: Mapping[str, str], state: State, shown: str) -> None:
    [finding] = found(await examined(tmp_path, "proxies", environ=environ), "proxies")
    assert (finding.state, shown in finding.found, "pass-4711" in finding.found) == (state, True, False)


async def test_a_collector(tmp_path: Path) -> None:
    async def look(url: str, **flags: object) -> tuple[State, str]:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        checked = await examined(tmp_path, "telemetry", environ=environ, offline=False, flags=flags)
        [finding] = found(checked, "telemetry")
        return finding.state, finding.found

    assert await look("") == (State.SKIPPED, "off")
    async with upstream() as collector:
        there = f"http://127.0.0.1:{collector.port}"
        assert await look(there) == (State.OK, f"127.0.0.1:{collector.port} takes connections")
    assert (await look(there))[0] is State.WARNING
    assert (await look("collector:4317"))[0] is State.WARNING
    assert (await look("http://h:99999", otel="true"))[0] is State.PROBLEM


async def model_finding(folder: Path, **flags: object) -> Finding:
    [finding] = found(await examined(folder, "models", offline=False, flags=flags), "models")
    return finding


async def test_a_model_server_that_answers_is_timed(tmp_path: Path) -> None:
    async with model_server("small") as server:
        finding = await model_finding(tmp_path, model_url=server.base_url, model="small", ask_model=True)
        assert (finding.state, "first token after" in finding.found) == (State.OK, True)
        assert [one.json["max_tokens"] for one in server.chats] == [8]
        unasked = await model_finding(tmp_path, model_url=server.base_url, model="small")
        assert (unasked.state, "first token" in unasked.found) == (State.OK, False)
        other = await model_finding(tmp_path, model_url=server.base_url, model="smal")
        assert (other.state, "does not list smal" in other.found, "small" in other.advice) == (
            State.PROBLEM,
            True,
            True,
        )


async def test_a_model_server_that_refuses_the_key_or_is_not_there(tmp_path: Path) -> None:
    refusing = answer(json.dumps({"error": f"the key {KEY} is wrong"}), status=401)
    async with upstream(refusing, repeat=True) as server:
        finding = await model_finding(tmp_path, model_url=server.base_url, model="m", model_key=KEY)
    assert (finding.state, "did not accept" in finding.found, KEY in finding.found) == (State.PROBLEM, True, False)
    absent = await model_finding(tmp_path, model_url=server.base_url, model="m")
    assert (absent.state, bool(absent.advice)) == (State.PROBLEM, True)


async def test_mcp_servers_are_started_listed_and_ended(tmp_path: Path) -> None:
    servers = {
        "works": {"command": sys.executable, "args": [str(FAULTY), "none"]},
        "breaks": {"command": sys.executable, "args": ["-c", f"import sys; sys.exit('no {KEY}')", "--api-key", KEY]},
        "unfit": {"command": ""},
        "off": {"command": sys.executable, "enabled": False},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    checked = await examined(tmp_path, "mcp servers", offline=False, flags={"mcp_config": str(file)})
    states = {finding.subject: finding.state for finding in found(checked, "mcp servers")}
    assert states == {
        "works": State.OK,
        "breaks": State.PROBLEM,
        "unfit": State.PROBLEM,
        "off": State.SKIPPED,
    }
    assert KEY not in json.dumps(as_json(checked))


async def test_of_mcp_servers_those_that_are_ready_are_told_when_the_time_is_over() -> None:
    asks = "import sys; print('Error: BRAVE_API_KEY is required', file=sys.stderr); sys.exit(1)"
    quick = [
        *(faulty(name=f"works{number}") for number in range(2)),
        ServerConfig("asks", command=sys.executable, args=("-c", asks)),
    ]
    slow_ones = [faulty("never", name=f"slow{number}") for number in range(2)]
    async with asyncio.timeout(LIMIT_S), managing(*quick, *slow_ones) as manager:
        for one in quick:
            await manager.settled(one.name, LIMIT_S)
        findings = await settled_findings(manager, [one.name for one in (*slow_ones, *quick)], 0.5)
    assert [one.subject for one in findings if one.state is State.OK] == ["works0", "works1"]
    [asking, slow] = [one for one in findings if one.state is State.PROBLEM]
    assert (asking.subject, "BRAVE_API_KEY is required" in asking.found) == ("asks", True)
    assert slow.found == "not finished within 0.5 s: slow0, slow1"


async def test_the_time_for_mcp_servers_is_the_one_of_the_check(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"slow": {"command": sys.executable, "args": [str(FAULTY), "never"]}}}))
    checked = await examined(tmp_path, "mcp servers", offline=False, flags={"mcp_config": str(file)}, mcp_s=0.1)
    [finding] = found(checked, "mcp servers")
    assert (finding.state, finding.found) == (State.PROBLEM, "not finished within 0.1 s: slow")


async def test_a_check_that_hangs_or_breaks_is_a_problem_and_those_that_need_it_are_skipped() -> None:
    started = asyncio.Event()

    async def hang(_: Subject) -> Finding:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    def fail(_: Subject) -> Finding:
        raise ZeroDivisionError("by\x1b[2Jnothing")

    async def look(_: Subject) -> Finding:
        return ok("right")

    checks = (
        Check("hangs", hang, limit_s=0.01),
        Check("breaks", fail),
        Check("needs both", look, ("hangs", "breaks")),
        Check("needs that", look, ("needs both",)),
        Check("stays", hang, limit_s=1000),
        Check("works", look),
    )
    async with asyncio.timeout(LIMIT_S):
        checked = await run_checks(checks, subject_of({"offline": True}, {"HOME": "/"}), all_s=2)
    assert started.is_set()
    assert [one.finding.state for one in checked] == [
        *(State.PROBLEM, State.PROBLEM, State.SKIPPED, State.SKIPPED, State.PROBLEM, State.OK)
    ]
    assert "ZeroDivisionError: by<U+001B>[2Jnothing" in checked[1].finding.found
    assert exit_code(checked) == 2


async def test_a_database_of_postgresql_is_only_read(tmp_path: Path, postgres: Cluster) -> None:
    url = postgres.database()
    flags = {"database_url": url, "host": "0.0.0.0"}
    [right] = found(await examined(tmp_path, "database", offline=False, flags=flags), "database")
    assert (right.state, "0 servers use it" in right.found) == (State.OK, True)
    name = url.rpartition("/")[2]
    postgres.sql("UPDATE dragoman_schema SET version = 0", name)
    [older] = found(await examined(tmp_path, "database", offline=False, flags=flags), "database")
    assert (older.state, "migrates it" in older.found) == (State.WARNING, True)
    assert "0" in postgres.sql("SELECT version FROM dragoman_schema", name)
    absent = {"database_url": f"postgresql://dragoman:{KEY}@127.0.0.1:{postgres.port}/nothing"}
    [wrong] = found(await examined(tmp_path, "database", offline=False, flags=absent), "database")
    assert (wrong.state, "createdb" in wrong.found, KEY in wrong.found) == (State.PROBLEM, True, False)
    [unasked] = found(await examined(tmp_path, "address", flags=flags), "address")
    assert unasked.state is State.SKIPPED


def test_lines_have_colours_only_where_they_are_wanted() -> None:
    checked = [Checked("disk", problem("full " * 40, "make room " * 20)), Checked("memory", ok("enough"))]
    plain = "\n".join(lines(checked, colours=False))
    assert ("\x1b" in plain, "\x1b[31mproblem" in "\n".join(lines(checked, colours=True))) == (False, True)
    assert max(map(len, plain.splitlines())) <= 120
    assert plain.splitlines()[-1] == "1 ok, 1 problem"
    assert list(as_json(checked)) == ["exit_code", "counts", "checks"]


def test_the_kind_of_a_file_system_is_that_of_the_nearest_mount() -> None:
    assert file_system(Path("/proc/self")) == "proc"


def test_the_command_writes_json_and_exits_with_the_worst(tmp_path: Path) -> None:
    ended = dragoman_at_home(tmp_path, "doctor", "--json", "--offline", "--port", "0", "--unsafe-no-sandbox")
    report = json.loads(ended.stdout)
    assert (ended.returncode, report["exit_code"], ended.stderr) == (1, 1, "")
    assert {row["state"] for row in report["checks"]} == {"ok", "skipped", "warning"}
    wrong = dragoman_at_home(tmp_path, "doctor", "--offline", "--port", "no")
    assert (wrong.returncode, "port (flag --port)" in wrong.stdout, "\x1b" in wrong.stdout) == (2, True, False)

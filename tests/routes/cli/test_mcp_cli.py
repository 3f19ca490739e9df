"""`dragoman mcp`, with and without a server that runs."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.cli.main import main
from tests.support.access.people import bearer
from tests.support.mcp.served import HELPFUL, helper, serving_mcp, settled, until_gone, write_list
from tests.support.server.serving import Served
from tools.mcp.config.entries import read_config

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Shell:
    """Types commands in a folder."""

    folder: Path
    seen: pytest.CaptureFixture[str]
    url: str = "http://127.0.0.1:9"  # where no server is
    token: str = ""

    def __call__(self, *words: str) -> tuple[int, str, str]:
        before, _, after = " ".join(words).partition(" -- ")
        places = ["--mcp-config", str(self.folder / "mcp.json"), "--data-dir", str(self.folder / "data")]
        behind = ["--", *after.split()] if after else []
        environ = {"HOME": str(self.folder), "DRAGOMAN_URL": self.url, "DRAGOMAN_TOKEN": self.token}
        code = main(["mcp", *before.split(), *places, *behind], environ)
        out = self.seen.readouterr()
        return code, out.out, out.err

    async def aside(self, *words: str) -> tuple[int, str, str]:
        """While a server runs in the test's own loop."""
        return await asyncio.to_thread(self, *words)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


def entries(shell: Shell) -> object:
    return json.loads((shell.folder / "mcp.json").read_text())["mcpServers"]


def test_servers_are_added_and_removed_without_a_server(shell: Shell) -> None:
    code, out, _ = shell("add files --env A=b=c --eager -- npx -y server --root / --eager")
    assert (code, "files is now in" in out) == (0, True)
    assert shell("add web --url https://a.test/mcp --header X-Key:abc")[0] == 0
    assert shell("add old --url https://a.test/x --sse")[0] == 0
    assert entries(shell) == {
        "files": {
            "command": "npx",
            "args": ["-y", "server", "--root", "/", "--eager"],
            "env": {"A": "b=c"},
            "eager": True,
        },
        "web": {"type": "http", "url": "https://a.test/mcp", "headers": {"X-Key": "abc"}},
        "old": {"type": "sse", "url": "https://a.test/x"},
    }
    code, out, err = shell("list")
    assert (code, "No dragoman server answers" in err) == (0, True)
    assert [line.split()[0] for line in out.splitlines()] == ["name", "files", "web", "old"]
    assert shell("disable web")[0] == 0
    assert "disabled" in shell("list")[1]
    assert shell("enable web")[0] == 0
    assert shell("remove files")[0] == shell("remove old")[0] == 0
    assert entries(shell) == {"web": {"type": "http", "url": "https://a.test/mcp", "headers": {"X-Key": "abc"}}}


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/sse", "https://a.test/x/sse/?key=1", "https://a.test/mcp", "https://a.test"]
)
def test_an_added_url_speaks_the_transport_of_the_same_url_in_the_file(shell: Shell, url: str) -> None:
    write_list(shell.folder, written={"url": url})
    assert shell(f"add added --url {url}")[0] == 0
    configs = read_config(shell.folder / "mcp.json", {}).configs
    assert {config.name: config.transport for config in configs} == dict.fromkeys(
        ("written", "added"), "sse" if "/sse" in url else "http"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("add x --url http://[", "http or https URL"),
        ("add x", "either a command behind --, or --url"),
        ("add x --url https://a.test -- npx", "either a command behind --, or --url"),
        ("add x --url ftp://a.test", "http or https URL"),
        ("add x --url https://a.test --header X-Key", "--header takes NAME:VALUE"),
        ("add x --url https://a.test --env A=b", "--env and --cwd are for a command"),
        ("add x --env A -- npx", "--env takes NAME=VALUE"),
        ("add x --env =b -- npx", "--env takes NAME=VALUE"),
        ("add x --header A:b -- npx", "--header and --sse are for a URL"),
        ("add there -- npx", "already"),
        ("remove x", "No dragoman server answers"),
        ("enable x", "No dragoman server answers"),
        ("approve there", "No dragoman server answers"),
        ("logs there", "No dragoman server answers"),
        ("reconnect there", "No dragoman server answers"),
        ("trust there --role user", "No dragoman server answers"),
        ("distrust there", "No dragoman server answers"),
    ],
)
def test_what_cannot_be_done_says_why(shell: Shell, words: str, told: str) -> None:
    before = write_list(shell.folder, there={"command": "x"}).read_text()
    code, _, err = shell(words)
    assert (code, told in err) == (1, True), err
    assert (shell.folder / "mcp.json").read_text() == before


def test_a_variable_that_is_not_set_yet_is_told(shell: Shell) -> None:
    code, _, err = shell("add x --env KEY=${NOT_SET_HERE} -- npx")
    assert (code, "NOT_SET_HERE is not set" in err) == (0, True)
    assert entries(shell) == {"x": {"command": "npx", "args": [], "env": {"KEY": "${NOT_SET_HERE}"}}}


def test_a_list_in_the_workspace_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_list(tmp_path, x={"command": "x"})
    assert main(["mcp", "list", "--workspace", str(tmp_path), "--mcp-config", str(tmp_path / "mcp.json")], {}) == 2
    assert "inside the workspace" in capsys.readouterr().err


def at(served: Served, shell: Shell, token: str = "") -> Shell:
    return Shell(shell.folder, shell.seen, str(served.client.base_url), token)


async def test_a_server_that_runs_is_asked(tmp_path: Path, shell: Shell) -> None:
    sign = tmp_path / "changed"
    faulty = HELPFUL.with_name("faulty.py")
    shop = {"command": sys.executable, "args": [str(faulty), "rugpull", str(sign)]}
    crash = {"command": sys.executable, "args": [str(faulty), "crash"]}
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper(), "shop": shop, "crash": crash}) as served:
        shell = at(served, shell)
        await settled(served, "crash")  # it is tried again and again
        code, out, err = await shell.aside("list")
        assert (code, err) == (0, "")
        assert "cannot read the settings" in out, "why one has failed, from its stderr"
        sign.touch()
        assert (await shell.aside("reconnect shop"))[0] == 0
        await settled(served, "shop")
        assert "held: pay: " in (await shell.aside("list"))[1]
        code, out, _ = await shell.aside("approve shop")
        assert (code, "Pays everything" in out, out.splitlines()[-1]) == (0, True, "Approved: pay.")
        code, out, _ = await shell.aside("logs crash")
        assert (code, "cannot read the settings" in out) == (0, True)
        code, _, err = await shell.aside("logs none")
        assert (code, "There is no MCP server 'none'" in err) == (1, True)


async def test_trust_is_declared_shown_and_withdrawn(tmp_path: Path, shell: Shell) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper(toolTrust={"long": {"risk": "read"}})}) as served:
        shell = at(served, shell)
        code, out, err = await shell.aside("trust helper --role user --trusted-results")
        assert (code, err) == (0, "")
        of_server = "role user (declared_server), risk admin (default), results trusted (declared_server)"
        assert f"echo: {of_server}" in out.splitlines()
        code, out, _ = await shell.aside("trust helper --tool echo --risk read --untrusted-results")
        of_tool = "echo: role user (declared_server), risk read (declared_tool), results untrusted (declared_tool)"
        assert (code, out.splitlines()) == (0, [of_tool])
        lines = [line.strip() for line in (await shell.aside("list"))[1].splitlines()]
        assert [line for line in lines if line.startswith("trusted")] == [
            "trusted: role user, results trusted (declared by local)",
            "trusted: echo: risk read, results untrusted (declared by local)",
            "trusted: long: risk read (in the file)",
        ]
        code, out, _ = await shell.aside("trust helper --tool echo --risk network --argument text=recipient")
        assert (code, out.splitlines()[1]) == (0, "  text=recipient (declared_tool)")
        lines = (await shell.aside("list"))[1].splitlines()
        assert any("echo: risk network, text=recipient (declared by local)" in line for line in lines)
        assert (await shell.aside("distrust helper --tool echo"))[1].splitlines() == [f"echo: {of_server}"]
        assert (await shell.aside("distrust helper"))[0] == 0
        code, _, err = await shell.aside("distrust helper")
        assert (code, "No declaration of trust exists for helper" in err) == (1, True)
        code, _, err = await shell.aside("trust helper --tool nothing")
        assert (code, "lists no tool 'nothing'" in err) == (1, True)


async def test_a_server_that_runs_takes_in_what_is_written(tmp_path: Path, shell: Shell) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper()}) as served:
        shell = at(served, shell)
        assert (await shell.aside(f"add more -- {sys.executable} {HELPFUL}"))[0] == 0
        await settled(served, "more")
        assert "mcp__more__echo" in [tool.name for tool in served.services.factory.tools]
        await served.client.post("/mcp/servers/helper/disable")
        assert (await shell.aside("enable helper"))[0] == 0
        await served.services.mcp.reload()
        assert "mcp__helper__echo" in [tool.name for tool in served.services.factory.tools], "the last word"
        assert (await shell.aside("remove more"))[0] == 0
        await until_gone(served, "more")


async def test_servers_that_came_over_http_are_switched_there(tmp_path: Path, shell: Shell) -> None:
    flags = {"mcp_commands_from_api": "true"}
    async with serving_mcp(tmp_path, Scripted([]), {}, **flags) as served:
        admin = await bearer(served, "root", "admin")
        body = {"name": "mine", "command": sys.executable, "args": [str(HELPFUL)]}
        assert (await served.client.post("/mcp/servers", json=body, headers=admin)).status_code == 201
        stranger = at(served, shell)
        code, _, err = await stranger.aside("list")
        assert (code, "DRAGOMAN_TOKEN" in err) == (1, True)
        shell = at(served, shell, admin["authorization"].removeprefix("Bearer "))
        assert (await shell.aside("disable mine"))[0] == 0
        assert [status.state for status in served.services.mcp.status()] == ["disabled"]
        assert (await shell.aside("remove mine"))[0] == 0
        assert served.services.mcp.status() == []

"""`dragoman endpoint`, with and without a server that runs."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.config.sources import SettingsError
from app.core.endpoint_spec import EndpointSpec
from app.core.provider import ProviderFailed
from app.models.endpoints.registry import endpoint_row
from app.models.scripted import Scripted
from routes.cli.endpoints import ago
from routes.cli.main import main
from tests.support.access.people import bearer
from tests.support.models.endpoints import LIMIT_S, NOWHERE, model_server
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
KEY = "sk-a-secret-that-nobody-sees"


@dataclass(frozen=True, slots=True)
class Shell:
    """Types commands in a folder."""

    folder: Path
    seen: pytest.CaptureFixture[str]
    url: str = "http://127.0.0.1:9"  # where no server is
    token: str = ""

    def __call__(self, *words: str, **environ: str) -> tuple[int, str, str]:
        places = ["--data-dir", str(self.folder / "data"), "--workspace", str(self.folder / "work")]
        more = {"HOME": str(self.folder), "DRAGOMAN_URL": self.url, "DRAGOMAN_TOKEN": self.token}
        code = main(["endpoint", *" ".join(words).split(), *places], more | environ)
        out = self.seen.readouterr()
        return code, out.out, out.err

    async def aside(self, *words: str, **environ: str) -> tuple[int, str, str]:
        """While a server runs in the test's own loop."""
        return await asyncio.to_thread(self, *words, **environ)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


def at(served: Served, shell: Shell, token: str = "") -> Shell:
    return Shell(shell.folder, shell.seen, str(served.client.base_url), token)


async def test_an_endpoint_is_added_tried_listed_and_removed_without_a_server(shell: Shell) -> None:
    (shell.folder / "key").write_text(KEY)
    async with asyncio.timeout(LIMIT_S), model_server("qwen", "llama") as server:
        added = await shell.aside(f"add hosted --url {server.base_url} --key-file {shell.folder}/key --model llama")
        tried = await shell.aside("test hosted")
        listing = await shell.aside("list")
        removed = await shell.aside("remove hosted")
        nothing = await shell.aside("list")
    assert added[0] == 0
    assert "hosted is added. A running server applies this" in added[1]
    assert "hosted lists qwen, llama." in added[1]
    assert tried == (0, "hosted lists qwen, llama.\n", "")
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
    assert listing[1].splitlines()[1].split() == ["hosted", "not", "running", "llama", "-", "-", "-", server.base_url]
    assert "No dragoman server answers" in listing[2]
    assert (removed[0], "hosted is removed" in removed[1]) == (0, True)
    assert "None is configured." in nothing[2]
    assert "the settings name" not in removed[2]
    assert KEY not in str((added, tried, listing, removed))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("add a/b --url http://h/v1", "an endpoint's name has 1 to 64"),
        ("add a --url ftp://h/v1", "--url: is not a plain http(s) URL"),
        ("add a --url http://h/v1 --window 3", "--window: "),
        ("add a --url http://h/v1 --key-env a=b", "--key-env: "),
        ("add a --url http://h/v1 --key-file work/key", "inside the workspace"),
        ("add ours --url http://h/v1", "ours is in the settings"),
        ("remove ours", "ours is in the settings"),
        ("remove nowhere", "No endpoint 'nowhere' was added"),
        ("test nowhere", "No endpoint 'nowhere' was added"),
    ],
)
def test_what_cannot_be_done_says_why(shell: Shell, monkeypatch: pytest.MonkeyPatch, words: str, told: str) -> None:
    monkeypatch.chdir(shell.folder)
    (shell.folder / "dragoman.toml").write_text(f'[endpoints.ours]\nurl = "{NOWHERE}"\n')
    code, out, err = shell(words)
    assert (code, out, told in err) == (1, "", True), err


async def test_a_key_is_not_in_the_workspace_of_a_later_start(tmp_path: Path) -> None:
    spec = EndpointSpec(url=NOWHERE, key_file=(str(tmp_path / "work" / "key"),))
    async with serving(tmp_path, Scripted([])) as served:
        await served.services.store.write([endpoint_row("hosted", spec, "test")])
    with pytest.raises(SettingsError, match=r"key_file of hosted .* is inside the workspace"):
        async with serving(tmp_path, Scripted([])):
            pass


def test_a_key_that_is_not_there_is_told(shell: Shell) -> None:
    code, _, err = shell(f"add a --url {NOWHERE} --key-env NOT_SET_HERE")
    assert (code, "the variable NOT_SET_HERE is not set" in err) == (0, True)
    assert shell("test a")[0] == 1
    assert "Nothing listens" in shell("test a", NOT_SET_HERE=KEY)[2]


async def test_a_server_that_runs_takes_changes_in_by_itself(shell: Shell) -> None:
    async with asyncio.timeout(LIMIT_S), model_server("qwen") as server:
        async with serving(shell.folder, Scripted(["x"])) as served:
            there = at(served, shell)
            assert (await there.aside(f"add hosted --url {server.base_url} --max-requests 2"))[0] == 0
            await served.services.endpoints.reload()  # which it does every two seconds
            assert (await served.chat(model="hosted/qwen"))[-1]["text"] == "Hi"
            code, out, err = await there.aside("list")
            assert (code, err) == (0, "")
            assert [line.split()[:3] for line in out.splitlines()] == [
                ["name", "state", "models"],
                ["default", "ok", "(default)"],
                ["hosted", "ok", "qwen"],
            ]
            assert (await there.aside("remove hosted"))[0] == 0
            await served.services.endpoints.reload()
            assert list(served.services.models.endpoints) == ["default"]


async def test_others_than_admins_see_no_servers(shell: Shell) -> None:
    async with asyncio.timeout(LIMIT_S), serving(shell.folder, Scripted(["x"])) as served:
        token = (await bearer(served, "gus", "guest"))["authorization"].removeprefix("Bearer ")
        code, out, _ = await at(served, shell, token).aside("list")
        assert (code, "http" in out) == (0, False)
        code, _, err = await at(served, shell, "dgm_wrong").aside("list")
        assert (code, "token" in err) == (1, True)


def test_what_settings_still_name_is_told_when_it_is_removed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)
    (shell.folder / "dragoman.toml").write_text('fallback = ["a/m"]\n')
    assert shell(f"add a --url {NOWHERE}")[0] == 0
    code, _, err = shell("remove a")
    assert (code, "the settings name a/m" in err) == (0, True)


async def test_what_went_wrong_last_is_listed_with_how_long_ago_that_was(shell: Shell) -> None:
    async with asyncio.timeout(LIMIT_S), serving(shell.folder, Scripted(["x"])) as served:
        endpoint = await served.services.endpoints.add("a", EndpointSpec(url=NOWHERE, model="m"), [], "ann")
        endpoint.server.failed(ProviderFailed("model_busy", "Slow down.", retryable=True))
        out = (await at(served, shell).aside("list"))[1]
    assert re.search(r"^    \d s ago: (Slow down|Nothing listens)", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("seconds", "told"), [(-1, "0 s"), (59.9, "59 s"), (60, "1 min"), (7300, "2 h"), (200_000, "2 days")]
)
def test_how_long_ago_something_was_is_told_in_one_unit(seconds: float, told: str) -> None:
    assert ago(seconds) == f"{told} ago"


async def test_the_terminal_asks_a_server_that_runs_for_the_model_that_was_named(shell: Shell) -> None:
    async with asyncio.timeout(LIMIT_S), serving(shell.folder, Scripted(["x"])) as served:
        words = ["-m", "routes.cli.main", "chat", "--url", str(served.client.base_url), "--model", "scriptid", "hi"]
        chat = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE, stderr=PIPE)
        _, told = await chat.communicate()
    assert chat.returncode == 1
    assert "there is no 'scriptid'; there is scripted; did you mean scripted?" in " ".join(told.decode().split())

"""A newcomer's first minute, with nothing configured: server, embedded model, curl, terminal, page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from app.core.events import TERMINAL, fields_of
from routes.terminal.view import read_event
from tests import ROOT
from tests.support.page.browser import browsing, expect, say, shot
from tests.support.page.stories import turns

ASK = "Print hello world with the shell."
HELLO = re.compile("hello,? world", re.I)
SLOW_MS = 90_000  # a small machine, and a model that takes all of it


@dataclass(frozen=True, slots=True)
class Started:
    banner: list[str]
    port: str
    environ: dict[str, str]


@contextmanager
def started_server(folder: Path, model: str = "embedded:", *flags: str) -> Iterator[Started]:
    """`dragoman serve` in a home of its own."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "DRAGOMAN_DATA_DIR": str(folder / "data"),
        "DRAGOMAN_WORKSPACE": str(folder / "work"),
    }
    command = [sys.executable, "-m", "routes", "serve", "--port", "0", "--model-url", model, *flags]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=pipe, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout
            banner = [server.stdout.readline() for _ in range(3)]
            found = re.search(r"http://localhost:(\d+)", banner[0])
            assert found, banner
            yield Started(banner, found[1], environ)
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with started_server(tmp_path_factory.mktemp("newcomer")) as started:
        yield started


def test_the_banner_names_the_model_and_a_curl_that_works(server: Started) -> None:
    assert "SmolLM2" in server.banner[0]
    curl = server.banner[1].removeprefix("Try:").strip()
    ended = subprocess.run(["bash", "-c", curl + " -sS"], capture_output=True, text=True, timeout=100, check=True)
    types = re.findall(r"^event: (\S+)$", ended.stdout, re.M)
    # A model this small may send its call again, which is refused, before it answers.
    passing = ("tool.delta", "text.delta", "notice", "tool.rejected")
    order = [kind for kind in dict.fromkeys(types) if kind not in passing]
    assert order == [
        "run.started",
        "round.started",
        "usage",
        "tool.started",
        "tool.progress",
        "tool.finished",
        "run.finished",
    ]
    assert types.count("run.finished") == 1
    assert types[-1] == "run.finished"
    assert re.search(r'"name": "bash".*hello,? world', ended.stdout, re.I)
    assert [int(seq) for seq in re.findall(r"^id: (\d+)$", ended.stdout, re.M)] == list(range(1, len(types) + 1))
    figures = httpx2.get(f"http://localhost:{server.port}/metrics", trust_env=False).text
    for series in ('tokens_total{direction="completion"', "first_token_seconds_count{"):
        counted = re.search(rf"(?m)^dragoman_{re.escape(series)}.*SmolLM2.*\}} (\S+)$", figures)
        assert counted and float(counted[1]) > 0, figures


def test_the_banner_names_the_page(server: Started) -> None:
    assert server.banner[2] == f"Or open http://localhost:{server.port} in a browser.\n"


def test_the_terminal_client_shows_the_same_turn(server: Started) -> None:
    command = [sys.executable, "-m", "routes", "chat", "--url", f"http://localhost:{server.port}", ASK]
    ended = subprocess.run(
        command, cwd=ROOT, env=server.environ, capture_output=True, text=True, timeout=100, check=False
    )
    # The tiny model sometimes repeats its call until it is stopped: then the run did what was asked, and ends early.
    assert ended.returncode == ("■ Stopped" in ended.stdout), ended.stdout + ended.stderr
    assert "bash" in ended.stdout
    assert HELLO.search(ended.stdout)


@pytest.mark.usefixtures("chromium")
async def test_hello_world_on_the_page(server: Started) -> None:
    async with browsing() as browser:
        page = await browser.page()
        await page.goto(f"http://localhost:{server.port}/")
        await expect(page.get_by_text("tiny").first).to_be_visible()
        await say(page, ASK)
        card = turns(page).locator(".card")
        await expect(card.get_by_text("done").first).to_be_visible(timeout=SLOW_MS)
        await expect(card).to_contain_text(HELLO)
        await expect(turns(page).locator(".answer").last).to_contain_text(re.compile(r"\w"), timeout=SLOW_MS)
        await expect(page.locator("#polite")).to_contain_text("has ended", timeout=SLOW_MS)
        await shot(page, "embedded-hello")


def test_the_banner_s_curl_takes_the_token_where_one_is_needed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "routes", "token", "create", "--name", "ann", "--data-dir", str(tmp_path / "data")]
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}  # the night's own variable is no setting
    made = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, timeout=60, check=True)
    with started_server(tmp_path, "scripted:") as server:
        curl = server.banner[1].removeprefix("Try:").strip()
        known = os.environ | {"DRAGOMAN_TOKEN": made.stdout.split()[0]}
        ended = subprocess.run(
            ["bash", "-c", curl + " -sS"], env=known, capture_output=True, text=True, timeout=100, check=True
        )
    assert "event: run.finished" in ended.stdout


def test_a_server_without_a_sandbox_says_so(tmp_path: Path) -> None:
    with started_server(tmp_path, "scripted:", "--unsafe-no-sandbox") as server:
        assert "without a sandbox" in server.banner[1]


def test_the_example_of_the_readme_is_the_banner_s() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"""curl -N localhost:8724/chat -H 'content-type: application/json' -d '{{"message": "{ASK}"}}'""" in readme


def test_the_stream_of_the_readme_is_made_of_real_events() -> None:
    readme = (ROOT / "README.md").read_text()
    frames = re.findall(r"^id: (\d+)\nevent: (\S+)\ndata: (.*)$", readme, re.M)
    numbers = [int(seq) for seq, _, _ in frames]
    assert numbers == sorted(set(numbers))
    for _, kind, data in frames:
        event = read_event(kind, data)
        assert event and fields_of(event) == json.loads(data)
    assert [kind for _, kind, _ in frames if kind in TERMINAL] == ["run.finished"] == [frames[-1][1]]


def test_curl_is_there() -> None:
    assert shutil.which("curl"), "the tests need curl: apt-get install curl"

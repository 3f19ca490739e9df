"""Trials over HTTP and on the command line: a stored run with another model, prompt or profile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Reply, Scripted
from routes.cli.main import main
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
WRITES = "```bash\necho hi > a.txt; cat a.txt\n```\n"
FIRST: tuple[Reply, ...] = (WRITES, "It says hi.")
MODEL = {"model": "scripted"}
LIMIT_S = 60


@asynccontextmanager
async def tried(folder: Path, *replies: Reply, **flags: Any) -> AsyncGenerator[tuple[Served, str], None]:
    """A server with one run, whose model goes on with these replies."""
    async with asyncio.timeout(LIMIT_S), serving(folder, Scripted([*FIRST, *replies]), record=True, **flags) as served:
        events = await served.chat("Write hi")
        yield served, events[0]["run"]


async def trial(served: Served, run: str, **body: object) -> dict[str, Any]:
    answer = await served.client.post(f"/runs/{run}/replay", json=body)
    assert answer.status_code == 200, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


async def test_a_call_that_was_made_then_has_its_result(tmp_path: Path) -> None:
    async with tried(tmp_path, WRITES, "It says hi, again.") as (served, run):
        (tmp_path / "work" / "a.txt").write_text("mine")
        fields = await trial(served, run, **MODEL)
        sessions = (await served.client.get("/sessions")).json()["sessions"]
    assert fields["then"]["text"] == "It says hi."
    assert fields["now"]["text"] == "It says hi, again."
    assert fields["then"]["calls"] == fields["now"]["calls"]
    assert fields["now"]["rounds"] == 2
    assert fields["then"]["seconds"] > 0
    assert "stopped_at" not in fields
    assert (tmp_path / "work" / "a.txt").read_text() == "mine", "nothing was run"
    assert len(sessions) == 1, "a trial keeps no conversation"


@pytest.mark.parametrize(
    ("match", "stopped_at"), [("exact", 'bash {"command": "ls"}'), ("name", None)], ids=["exact", "name"]
)
async def test_another_call_ends_it_unless_its_name_is_enough(
    tmp_path: Path, match: str, stopped_at: str | None
) -> None:
    async with tried(tmp_path, "```bash\nls\n```\n", "There it is.") as (served, run):
        fields = await trial(served, run, **MODEL, match=match)
        after = await served.client.get("/readyz")
    assert fields.get("stopped_at") == stopped_at
    assert fields["now"]["reason"] == ("trial_ended" if stopped_at else "answered")
    assert after.status_code == 200


async def test_live_tools_work_in_a_copy_and_checks_judge_it(tmp_path: Path) -> None:
    checks = {
        "text": ["There"],
        "json": {"a": 1},
        "files": {"a.txt": "hi\n", "b.txt": "wrong", "../x": "y"},
        "commands": ["test -f b.txt", "exit 3"],
    }
    replies = (WRITES, "```bash\necho other > b.txt; ls\n```\n", "There are two.")
    async with tried(tmp_path, *replies) as (served, run):
        (tmp_path / "work" / "later.txt").write_text("made after the run")
        fields = await trial(served, run, **MODEL, live=True, checks=checks)
    assert "stopped_at" not in fields
    assert {one["check"]: one["ok"] for one in fields["checks"]} == {
        "the answer contains There": True,
        'the answer, as JSON, has {"a": 1}': False,
        "a.txt equals hi": True,
        "b.txt equals wrong": False,
        "../x equals y": False,
        "test -f b.txt exits 0": True,
        "exit 3 exits 0": False,
    }
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["a.txt", "later.txt"]
    assert not list((tmp_path / "data" / "forks").iterdir()), "the copy is gone"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"live": True}, "only for a trial"),
        ({"checks": {"text": ["x"]}}, "only for a trial"),
        ({"model": ""}, "model"),
        ({"model": "scripted", "match": "roughly"}, "match"),
        ({"model": "scripted", "checks": {"texts": []}}, "texts"),
        ({"system": 3}, "system"),
        ({"model": "none/such"}, "there is no 'none/such'"),
        ({"profile": "none"}, "none"),
    ],
    ids=["live", "checks", "empty", "match", "unknown check", "system", "unknown model", "unknown profile"],
)
async def test_a_wrong_trial_is_refused_in_words(tmp_path: Path, body: dict[str, object], words: str) -> None:
    async with tried(tmp_path) as (served, run):
        answer = await served.client.post(f"/runs/{run}/replay", json=body)
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["error"]["message"]


async def test_without_checkpoints_there_is_no_copy(tmp_path: Path) -> None:
    async with tried(tmp_path, checkpoints=False) as (served, run):
        answer = await served.client.post(f"/runs/{run}/replay", json=MODEL | {"live": True})
    assert answer.status_code == 409
    assert "checkpoints" in answer.json()["error"]["message"]


def command(words: Sequence[str], folder: Path, url: str) -> tuple[int, str]:
    out = StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(out):
        code = main([*words, "--data-dir", str(folder / "data")], {"HOME": str(folder), "DRAGOMAN_URL": url})
    return code, out.getvalue()


async def test_the_command_shows_both_ways_side_by_side(tmp_path: Path) -> None:
    async with tried(tmp_path, WRITES, "Hi it is.", "```bash\nls\n```\n") as (served, run):
        url = str(served.client.base_url)
        code, text = await asyncio.to_thread(command, ["replay", run, "--model", "scripted"], tmp_path, url)
        other = await asyncio.to_thread(command, ["replay", run, "--model", "scripted", "--json"], tmp_path, url)
    assert code == 0
    assert "text then: It says hi." in text
    assert "text now: Hi it is." in text
    assert json.loads(other[1])[0]["stopped_at"] == 'bash {"command": "ls"}'


async def test_another_prompt_needs_no_other_model(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Be brief.")
    async with tried(tmp_path, WRITES, "Hi.") as (served, run):
        words = ["replay", run, "--system", str(tmp_path / "prompt.txt")]
        code, text = await asyncio.to_thread(command, words, tmp_path, str(served.client.base_url))
    assert code == 0, text
    assert "text now: Hi." in text


SETS = {
    "none": ("", "names no runs"),
    "no toml": ("[[runs", "is no TOML"),
    "no run": ("[[runs]]\nname = 1\n", "runs entry 1"),
    "checks": ("[[runs]]\nrun = 'x'\nchecks = 3\n", "checks is a table"),
    "file": ("[[runs]]\nfile = 'none.json'\n", "cannot be read"),
}


@pytest.mark.parametrize("name", SETS)
def test_a_wrong_set_is_refused_in_words(tmp_path: Path, name: str) -> None:
    (tmp_path / "set.toml").write_text(SETS[name][0])
    code, text = command(["compare", "set.toml", "--models", "a"], tmp_path, "http://127.0.0.1:9")
    assert code == 1
    assert SETS[name][1] in text


async def test_a_comparison_is_a_page_that_loads_nothing(tmp_path: Path) -> None:
    async with tried(tmp_path, WRITES, "<b>Hi</b> & more.") as (served, run):
        (tmp_path / "set.toml").write_text(f'[[runs]]\nrun = "{run}"\n[[runs]]\nrun = "run_none"\n')
        words = ["compare", "set.toml", "--models", "scripted", "--html", "page.html"]
        code, text = await asyncio.to_thread(command, words, tmp_path, str(served.client.base_url))
    page = (tmp_path / "page.html").read_text()
    assert code == 1, "one of the runs does not exist"
    assert "There is no run 'run_none'" in text
    assert "&lt;b&gt;Hi&lt;/b&gt; &amp; more." in page
    assert not any(word in page for word in ("src=", "href=", "http:"))

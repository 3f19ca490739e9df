"""What the model has of background jobs: `#!bg`, `job_status`, `job_output`, `job_cancel`, and what they answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.sandbox.jobs import ANN, SESSION, UNBOXED, end_of, opened, until
from tests.support.sandbox.processes import all_gone, endless
from tools.base.outcome import Progress, Result
from tools.builtin.job_tools import PAGE, _page, unmarked
from tools.catalogue import TOOLS
from tools.jobs.manager import Jobs
from tools.jobs.records import OutputPart
from tools.tool import Context
from tools.toolbox import Allow, Toolbox

pytestmark = pytest.mark.anyio

WAIT = "until [ -e go ]; do read -t 0.05 <> <(:); done"


@asynccontextmanager
async def at_work(folder: Path) -> AsyncGenerator[tuple[Jobs, Context], None]:
    (folder / "work").mkdir()
    async with opened(folder) as jobs:
        yield jobs, Context(folder / "work", 60, UNBOXED, jobs=jobs, session=SESSION, principal=ANN)


async def call(context: Context, name: str, **arguments: Any) -> Result:
    """One call through the dispatcher, as a model makes it."""
    seen: list[Progress | Result] = []
    toolbox = Toolbox(TOOLS, lambda *_: Allow())
    async with aclosing(toolbox.run(*toolbox.normalise_call(name, arguments), context)) as news:
        async for step in news:
            seen.append(step)  # noqa: PERF401
    assert isinstance(seen[-1], Result)
    return seen[-1]


async def started(context: Context, command: str, **more: Any) -> str:
    """The id that the model is told."""
    result = await call(context, "bash", command=command, **more)
    assert result.ok and result.text.startswith("Started job_"), result
    [job] = re.findall(r"job_[0-9a-f]{20}", result.text)
    return str(job)


def test_a_page_is_what_a_screen_shows() -> None:
    written = b"1/400\r2/400\r\x1b[1m400/400\x1b[0m\ntwo\n"
    shown = _page(OutputPart(0, written, len(written), 2), 2)
    assert shown == f"400/400\ntwo\n[up to byte {len(written)} of {len(written)}]"


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        ("#!bg\nmake test", (True, "make test")),
        ("#!bg\r\nmake test", (True, "make test")),
        ("\n  #!bg\nmake\ntest\n", (True, "make\ntest\n")),
        ("#!bg make test", (True, "make test")),
        ("#!bg id > f\nls", (True, "id > f\nls")),
        ("#!bg\n#!bg #!bg id\nls", (True, "id\nls")),
        ("#!bg", (True, "")),
        ("#!bgs\nls", (False, "#!bgs\nls")),
        ("#bg\nmake test", (True, "make test")),
        (" #bg \r\n#!bg ls", (True, "ls")),
        ("#bg", (True, "")),
        ("#bg is the colour\nls", (False, "#bg is the colour\nls")),
        ("ls\n#bg\n", (False, "ls\n#bg\n")),
        ("#!/bin/sh\n#!bg\nls", (False, "#!/bin/sh\n#!bg\nls")),
        ("echo '#!bg'", (False, "echo '#!bg'")),
        ("", (False, "")),
    ],
)
def test_the_marker_becomes_an_argument(command: str, taken: tuple[bool, str]) -> None:
    background, text = taken
    arguments = unmarked({"command": command})
    assert arguments == ({"command": text, "background": True} if background else {"command": command})
    assert unmarked(arguments) == arguments, "a second door would change what was decided on"


def test_a_million_markers_are_read_in_one_pass() -> None:
    """Each copy of the rest would be a terabyte here: the test would not end."""
    assert unmarked({"command": "#!bg " * 1_000_000 + "ls"}) == {"command": "ls", "background": True}


@pytest.mark.parametrize("arguments", [{}, {"command": None}, {"command": ["#!bg"]}, {"command": 3, "background": 1}])
def test_arguments_that_fit_nothing_are_left_to_the_schema(arguments: dict[str, Any]) -> None:
    assert unmarked(arguments) == arguments


@pytest.mark.parametrize(("marker", "more"), [("#!bg\n", {}), ("", {"background": True})], ids=["marker", "argument"])
async def test_a_command_in_the_background(tmp_path: Path, marker: str, more: dict[str, Any]) -> None:
    async with asyncio.timeout(30), at_work(tmp_path) as (jobs, context):
        job = await started(context, f"{marker}echo one; {WAIT}; echo two; exit 3", **more)
        await until(jobs, job, lambda glance: glance.tail == ("one",))
        running = await call(context, "job_status", id=job)
        assert (
            running.ok and f"{job}: running for " in running.text and "1 lines, 4 bytes of output:\none" in running.text
        )
        (context.workspace / "go").touch()
        await end_of(jobs, job)
        listed = await call(context, "job_status")
        assert re.match(rf"{job}: exited after [\d.]+ s, exit code 3 \(echo one; until", listed.text)
        output = await call(context, "job_output", id=job)
        assert output == Result(True, "one\ntwo\n[up to byte 8 of 8]")
        assert (await call(context, "job_output", id=job, tail=1)).text == "two\n[up to byte 8 of 8]"
        assert (await call(context, "job_output", id=job, offset=4)).text == "two\n[up to byte 8 of 8]"


async def test_without_it_the_command_runs_in_the_foreground(tmp_path: Path) -> None:
    async with asyncio.timeout(30), at_work(tmp_path) as (jobs, context):
        assert await call(context, "bash", command="echo x", background=False) == Result(True, "x", 0)
        assert jobs.listed(ANN) == []
        assert (await call(context, "job_status")).text == "This conversation has no background jobs."


async def test_long_output_comes_in_pages(tmp_path: Path) -> None:
    async with asyncio.timeout(30), at_work(tmp_path) as (jobs, context):
        job = await started(context, "#!bg\nseq 1000000")
        await end_of(jobs, job)
        last = (await call(context, "job_output", id=job)).text
        assert last.endswith("\n1000000\n[up to byte 6,888,896 of 6,888,896]") and len(last) < PAGE + 100
        first = (await call(context, "job_output", id=job, offset=0)).text
        assert first.startswith("1\n2\n3\n") and first.endswith(f"[up to byte {PAGE:,} of 6,888,896]")
        gap = (await call(context, "job_output", id=job, offset=2_000_000)).text
        assert gap.startswith("[3,840,320 bytes are no longer kept]\n")
        assert (await call(context, "job_output", id=job, tail=2)).text.startswith("999999\n1000000\n[")


async def test_job_cancel_ends_all_of_it(tmp_path: Path) -> None:
    sleeper = endless()
    async with asyncio.timeout(30), at_work(tmp_path) as (_, context):
        job = await started(context, f"#!bg\n{sleeper} & wait")
        assert re.match(rf"{job}: cancelled after ", (await call(context, "job_cancel", id=job)).text)
        assert (await call(context, "job_output", id=job)).text == "(no output)"
    assert all_gone(sleeper)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("bash", {"command": "#!bg"}, "no command to run in the background: write it on the line after #!bg"),
        ("bash", {"command": " \n", "background": True}, "no command to run in the background"),
        ("bash", {"command": "#!bg\necho \ud800"}, "lone surrogate"),
        ("job_status", {"id": "../../etc/passwd"}, "There is no job '../../etc/passwd'"),
        ("job_output", {"id": "job_1"}, "There is no job 'job_1'"),
        ("job_output", {"id": "job_1", "offset": -1}, "offset"),
        ("job_output", {}, "id"),
        ("job_cancel", {"id": "job_1"}, "There is no job 'job_1'"),
    ],
)
async def test_what_cannot_be_done_says_what_to_do(
    tmp_path: Path, name: str, arguments: dict[str, Any], told: str
) -> None:
    async with asyncio.timeout(30), at_work(tmp_path) as (_, context):
        result = await call(context, name, **arguments)
    assert not result.ok and told in result.text


async def test_jobs_of_others_do_not_exist(tmp_path: Path) -> None:
    async with asyncio.timeout(30), at_work(tmp_path) as (jobs, context):
        job = await started(context, "#!bg\ntrue")
        bob = replace(context, principal="bob")
        for name in ("job_status", "job_output", "job_cancel"):
            assert "There is no job" in (await call(bob, name, id=job)).text
        other_session = replace(context, session="ses_2")
        assert job not in (await call(other_session, "job_status")).text
        await end_of(jobs, job)


async def test_without_a_place_for_jobs_they_are_off(tmp_path: Path) -> None:
    context = Context(tmp_path, 60, UNBOXED)
    for name, arguments in (("bash", {"command": "#!bg\nls"}), ("job_status", {}), ("job_cancel", {"id": "x"})):
        result = await call(context, name, **arguments)
        assert not result.ok and "Background jobs are off here" in result.text

"""A child process as a stream, without a sandbox; what a sandbox adds is in test_sandbox.py."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.sandbox.processes import all_gone, ended, endless
from tools.base.outcome import Progress, ToolFailed
from tools.base.output_buffer import TEXT_CHARACTERS
from tools.process.orphan_reaper import MARK
from tools.process.process_tree import sweep_now
from tools.sandbox.boxed_process import Finished, stream
from tools.sandbox.command import Command

BASH = shutil.which("bash") or "bash"
PATH = {"PATH": os.environ["PATH"]}
ROUNDS = 50

News = AsyncGenerator[Progress | Finished, None]
Runner = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    """The server runs on uvloop, libraries on asyncio: processes must end alike on both."""

    def bounded(work: Coroutine[Any, Any, Any]) -> Any:
        async def main() -> Any:
            async with asyncio.timeout(60):
                result = await work
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return result

        return request.param(main())

    return bounded


def bash(script: str, *, cwd: Path = Path("/"), time_limit_s: float = 60) -> News:
    return stream(Command((BASH, "-c", script), PATH), cwd=cwd, time_limit_s=time_limit_s)


async def told(news: News) -> list[Progress | Finished]:
    async with aclosing(news):
        return [seen async for seen in news]


async def finished(news: News) -> Finished:
    *_, last = await told(news)
    assert isinstance(last, Finished)
    return last


async def first_line(news: News) -> Progress:
    """Wait until the command has written something."""
    async for seen in news:
        assert isinstance(seen, Progress)
        if seen.lines:
            return seen
    raise AssertionError("ended without output")


@pytest.mark.parametrize(
    ("script", "exit_code", "text"),
    [
        ("echo hello", 0, "hello\n"),
        ("true", 0, ""),
        ("exit 3", 3, ""),
        ("kill -SEGV $$", 139, ""),
        (
            "for i in 1 2 3 4; do echo out $i; echo err $i >&2; done",
            0,
            "".join(f"out {i}\nerr {i}\n" for i in range(1, 5)),
        ),
        (r"printf 'a\xff\x00b'", 0, "a\ufffd\ufffdb"),
        ("read line; echo got $?", 0, "got 1\n"),
        ("exec >&- 2>&-; exit 4", 4, ""),
    ],
)
def test_output_and_exit_code(run: Runner, script: str, exit_code: int, text: str) -> None:
    end = run(finished(bash(script)))
    assert (end.exit_code, end.text, end.overdue) == (exit_code, text, False)


@pytest.mark.parametrize(
    ("script", "written", "lines", "tail"),
    [
        ("head -c 1000000 /dev/zero | tr '\\0' x", 1_000_000, 1, "…" + 399 * "x"),
        ("seq 1000000", 6_888_896, 1_000_000, "1000000"),
    ],
    ids=["a line of a megabyte", "a million lines"],
)
def test_much_output(run: Runner, script: str, written: int, lines: int, tail: str) -> None:
    async def watch() -> Progress:
        async with aclosing(bash(f"{script}; exec {endless()}")) as news:
            async for seen in news:
                if isinstance(seen, Progress) and seen.bytes == written:
                    return seen
        raise AssertionError("ended too early")

    seen = run(watch())
    assert (seen.lines, seen.tail[-1]) == (lines, tail) and len(seen.tail) <= 12
    end = run(finished(bash(script)))
    assert end.exit_code == 0 and len(end.text) <= TEXT_CHARACTERS and "characters left out" in end.text


def test_progress_comes_on_change_but_not_too_often(run: Runner) -> None:
    *progress, _ = run(told(bash("for i in $(seq 40); do echo $i; sleep 0.02; done")))
    times = [seen.elapsed_s for seen in progress]
    assert len(times) >= 2
    # The figures are rounded to a millisecond.
    assert all(later - earlier >= 0.198 for earlier, later in pairwise(times))


def test_progress_comes_without_change(run: Runner) -> None:
    async def silent() -> Progress | Finished:
        async with aclosing(bash(endless())) as news:
            return await anext(news)

    seen = run(silent())
    assert isinstance(seen, Progress) and seen.bytes == 0 and seen.elapsed_s > 1.5


def test_the_time_limit_ends_it(run: Runner) -> None:
    sleeper = endless()
    end = run(finished(bash(sleeper, time_limit_s=0.3)))
    assert end.overdue and end.exit_code == 143 and all_gone(sleeper)


ESCAPES = {
    "a child": "{0} & echo begun; wait",
    "in its own session": "setsid {0} & echo begun; wait",
    "orphaned": "( {0} & ); setsid bash -c '( {0} & )'; echo begun; exec sleep 1000",
    "deaf to TERM": "trap '' TERM; {0} & echo begun; while :; do wait; done",
    "with a closed output": "{0} >/dev/null 2>&1 & echo begun; exec sleep 1000",
}


@pytest.mark.parametrize("script", ESCAPES.values(), ids=ESCAPES.keys())
def test_closing_leaves_no_process(run: Runner, script: str) -> None:
    sleeper = endless()

    async def leave() -> None:
        async with aclosing(bash(script.format(sleeper))) as news:
            await first_line(news)
        assert all_gone(sleeper)

    run(leave())


@pytest.mark.parametrize("script", ESCAPES.values(), ids=ESCAPES.keys())
def test_cancelling_leaves_no_process(run: Runner, script: str) -> None:
    sleeper = endless()

    async def leave() -> None:
        begun = asyncio.Event()

        async def watch() -> None:
            async with aclosing(bash(script.format(sleeper))) as news:
                async for seen in news:
                    if isinstance(seen, Progress) and seen.lines:
                        begun.set()

        task = asyncio.create_task(watch())
        await begun.wait()
        task.cancel()
        # Whoever is impatient and cancels again must not stop the cleaning up.
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all_gone(sleeper)

    run(leave())


def test_cancelling_at_any_moment_of_the_start_leaves_no_process(run: Runner) -> None:
    sleeper = endless()

    async def leave() -> None:
        for turns in range(25):
            task = asyncio.create_task(finished(bash(sleeper)))
            for _ in range(turns):
                await asyncio.to_thread(int)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert all_gone(sleeper)

    run(leave())


@pytest.mark.parametrize("script", ["( {0} & ); echo begun", "setsid {0} & echo begun", "{0} & disown; echo begun"])
def test_a_fork_that_outlives_its_parent_neither_hangs_nor_survives(run: Runner, script: str) -> None:
    sleeper = endless()
    end = run(finished(bash(script.format(sleeper))))
    assert (end.exit_code, end.text) == (0, "begun\n") and all_gone(sleeper)


def test_a_process_that_is_just_starting_a_program_is_killed_too(tmp_path: Path) -> None:
    """While it does, it has no environment by which it could be found: this one does nothing else."""
    script = tmp_path / "again"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o755)
    for number in range(ROUNDS):
        with subprocess.Popen([script], env={MARK: f"{tmp_path}.{number}"}) as process:
            sweep_now(f"{tmp_path}.{number}")
            survives = not ended(process.pid)
            process.kill()
        assert not survives, number


def test_the_command_is_asked_before_it_is_killed(run: Runner, tmp_path: Path) -> None:
    async def leave() -> None:
        async with aclosing(
            bash(f"trap 'touch tidied; exit' TERM; echo begun; {endless()} & wait", cwd=tmp_path)
        ) as news:
            await first_line(news)

    run(leave())
    assert (tmp_path / "tidied").exists()


@pytest.mark.parametrize(
    ("argv", "cwd", "says"),
    [
        (("/nowhere/bash",), Path("/"), "/nowhere/bash could not be started"),
        ((BASH, "-c", "true"), Path("/nowhere"), "No such file or directory"),
        ((BASH, "-c", "true"), Path("/etc/passwd"), "Not a directory"),
    ],
)
def test_what_cannot_be_started_is_explained(run: Runner, argv: tuple[str, ...], cwd: Path, says: str) -> None:
    with pytest.raises(ToolFailed, match=says):
        run(finished(stream(Command(argv, PATH), cwd=cwd)))


def test_no_file_descriptor_is_left(run: Runner) -> None:
    async def count() -> tuple[int, int]:
        await finished(bash("echo warm"))
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for _ in range(10):
            await finished(bash("echo x"))
            async with aclosing(bash(f"echo x; {endless()}")) as news:
                await first_line(news)
            with pytest.raises(ToolFailed):
                await finished(stream(Command(("/nowhere",), PATH), cwd=Path("/")))
        return before, len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before, after = run(count())
    assert after <= before


def test_an_endless_writer_leaves_the_loop_to_others(run: Runner) -> None:
    async def work_beside_it() -> int:
        async with aclosing(bash("yes")) as news:
            await first_line(news)
            watching = asyncio.create_task(anext(news))
            turns = 0
            while not watching.done():
                await asyncio.to_thread(int)
                turns += 1
            seen = watching.result()
            assert isinstance(seen, Progress) and len(seen.tail) == 12
        return turns

    assert run(work_beside_it()) > 2  # 20 and more on a quiet machine; a writer that held the loop would leave 1

"""The output of a short program: bounded, without a shell, and ended with all that it has started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tools.process.command_output import CommandFailed, output_of

pytestmark = pytest.mark.anyio
ENVIRON = {"PATH": "/usr/bin:/bin", "WORD": "given"}


async def test_a_program_gets_its_input_and_its_environment_alone() -> None:
    shown = await output_of(["sh", "-c", "cat; echo $WORD$HOME; pwd"], b"in ", ENVIRON, 100)
    assert shown == b"in given\n/\n"
    assert await output_of(["echo", "$WORD; id"], b"unread", ENVIRON, 100) == b"$WORD; id\n", "no shell reads it"


FAILS = {
    ("no-such-program-here",): "could not be started",
    ("sh", "-c", "echo out; exit 3"): "ended with exit code 3",
    ("yes",): "answered more than 100 bytes",
}


@pytest.mark.parametrize("argv", FAILS, ids=lambda argv: argv[0])
async def test_a_program_that_fails_says_how(argv: tuple[str, ...]) -> None:
    with pytest.raises(CommandFailed, match=FAILS[argv]):
        await output_of(argv, b"", ENVIRON, 100)


def runs(pid: Path) -> bool:
    return Path(f"/proc/{pid.read_text().strip()}/exe").exists()


async def test_what_it_has_started_ends_with_it_when_its_time_is_over(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await output_of(["sh", "-c", f"setsid sleep 600 & echo $! > {started}; wait"], b"", ENVIRON, 100)
    assert not runs(started)

"""The standard output of a short program, which is ended with all that it has started."""

from __future__ import annotations

import asyncio
import secrets
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tools.process.orphan_reaper import MARK, clear, watched
from tools.process.process_tree import run_shielded, sweep_now
from tools.process.resource_limits import NO_LIMITS, ResourceLimits
from tools.process.signals import reset_signals

_BLOCK = 65_536
_DISCARDING_S = 1.0  # all that could write is ended by then


class CommandFailed(Exception):
    """The program did not end well. The message continues a sentence that names it; `output` may be a part."""

    def __init__(self, message: str, output: bytes = b"") -> None:
        super().__init__(message)
        self.output = output


async def output_of(
    argv: Sequence[str],
    payload: bytes | int,
    environ: Mapping[str, str],
    most: int,
    *,
    limits: ResourceLimits = NO_LIMITS,
    fds: Sequence[int] = (),
) -> bytes:
    """Run a program and return its output, at most so many bytes. Raises CommandFailed.

    `payload` is its input, or an open file that is. It runs within the `limits`, and `fds` stay open in it.
    """
    mark = f"{watched(limits.places)}.{secrets.token_hex(8)}"
    environment = {**environ, MARK: mark}
    reset_signals()
    try:
        process = await asyncio.create_subprocess_exec(
            *limits.begin(mark),
            *argv,
            stdin=payload if isinstance(payload, int) else PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            cwd="/",
            pass_fds=fds,
            start_new_session=True,
        )
    except BaseException as error:
        await run_shielded(asyncio.to_thread(_clear, limits, mark))
        if isinstance(error, OSError):
            raise CommandFailed(f"could not be started ({error.strerror})") from error
        raise
    try:
        if isinstance(payload, int):
            answer = await _read(process, most)
        else:
            answer, _ = await asyncio.gather(_read(process, most), _write(process, payload))
        code = await process.wait()
    finally:
        await run_shielded(_end(process, mark, limits))
    if code:
        raise CommandFailed(f"ended with exit code {code}", answer)
    return answer


async def _read(process: Process, most: int) -> bytes:
    assert process.stdout is not None
    answer = bytearray()
    while block := await process.stdout.read(most):
        answer += block
        if len(answer) > most:
            raise CommandFailed(f"answered more than {most:,} bytes")
    return bytes(answer)


async def _write(process: Process, payload: bytes) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):  # a program need not read it
        process.stdin.write(payload)
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def _end(process: Process, mark: str, limits: ResourceLimits) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await asyncio.to_thread(_clear, limits, mark)
    await _discard_rest(process)  # first: asyncio may end the wait only when the pipe is closed
    await process.wait()


async def _discard_rest(process: Process) -> None:
    """Read the output to its end: before, asyncio does not close the pipe, and the garbage collector would."""
    assert process.stdout is not None
    with suppress(TimeoutError, RuntimeError):  # or it is still being read
        async with asyncio.timeout(_DISCARDING_S):
            while await process.stdout.read(_BLOCK):
                pass


def _clear(limits: ResourceLimits, mark: str) -> None:
    sweep_now(mark)
    clear(limits.places, mark)

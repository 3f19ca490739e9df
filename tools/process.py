"""One child process as a stream: its output in order of arrival, its tail while it runs, its whole tree ended."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.command import Command
from tools.family import descendants, surely, sweep, tell
from tools.output import Output
from tools.tool import Progress, ToolFailed
from tools.undertaker import MARK, clear, watched

TIME_LIMIT_S = 3600.0
GRACE_S = 0.5

_BLOCK = 65_536
_BURST, _REST_S = 16, 0.005  # a command that writes without end may use a quarter of the loop, not all of it
_SOONEST_S = 0.2
_LATEST_S = 2.0
_KILLED_S = 5.0  # how long a killed process may take to go; more means that the kernel holds it

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a process. A signal n is the exit code 128 + n; `overdue` says that the time limit ended it."""

    exit_code: int
    text: str
    elapsed_s: float
    overdue: bool = False


async def stream(
    command: Command, *, cwd: Path, time_limit_s: float = TIME_LIMIT_S
) -> AsyncGenerator[Progress | Finished, None]:
    """Run `command` and tell how it goes: at most 5 times a second on change, at least every 2 s, then `Finished`.

    However this generator ends (read to its end, closed, cancelled), no process of the command is left; outside a
    sandbox, none but those that left both their parent and their environment behind.
    Raises ToolFailed when the command cannot be started.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    deadline = started + time_limit_s
    child = await _start(command, cwd)
    shown_at, shown_bytes = started - _SOONEST_S, 0
    try:
        while not child.exited.is_set() and (now := loop.time()) < deadline:
            changed = child.output.bytes != shown_bytes
            due = shown_at + (_SOONEST_S if changed else _LATEST_S)
            if now >= due:
                shown_at, shown_bytes = now, child.output.bytes
                yield child.progress(now - started)
            else:
                await _wait(child.exited if changed else child.stir(), min(due, deadline) - now)
        overdue = not child.exited.is_set()
    finally:
        await surely(child.end())
    now = loop.time()
    if child.output.bytes != shown_bytes and now >= shown_at + _SOONEST_S:
        yield child.progress(now - started)
    yield Finished(child.exit_code, child.output.text(), now - started, overdue)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _start(command: Command, cwd: Path) -> _Child:
    places = command.limits.places
    mark = f"{watched(places)}.{secrets.token_hex(8)}"
    try:
        prefix = command.limits.begin(mark)
    except OSError as error:
        raise ToolFailed(f"{error.filename} could not be made for the command: {error.strerror}.") from error
    read_end, write_end = os.pipe()
    try:
        os.set_blocking(read_end, False)
        process = await asyncio.create_subprocess_exec(
            *prefix,
            *command.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            cwd=cwd,
            env={**command.env, MARK: mark},
            pass_fds=command.fds,
            start_new_session=True,
        )
    except OSError as error:
        os.close(read_end)
        await asyncio.to_thread(clear, places, mark)
        raise ToolFailed(f"{command.argv[0]} could not be started in {cwd}: {error.strerror}.") from error
    except BaseException:
        # Cancelled half-way: asyncio has killed the child, but perhaps not what it had already started.
        os.close(read_end)
        await surely(_swept(mark, places))
        raise
    finally:
        os.close(write_end)
    return _Child(process, read_end, mark, places, wrapped=command.wrapped)


async def _swept(mark: str, places: tuple[str, ...]) -> None:
    await sweep(mark)
    await asyncio.to_thread(clear, places, mark)


class _Child:
    """A running process and the read end of its output."""

    def __init__(
        self, process: asyncio.subprocess.Process, read_end: int, mark: str, places: tuple[str, ...], *, wrapped: bool
    ) -> None:
        self.output = Output()
        self.exited = asyncio.Event()
        self._process = process
        self._read_end = read_end
        self._mark = mark
        self._places = places
        self._wrapped = wrapped
        self._stirred = asyncio.Event()
        self._silent = asyncio.Event()
        self._waiting = asyncio.create_task(process.wait())
        self._waiting.add_done_callback(self._on_exit)
        self._blocks = 0
        self._resting: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(read_end, self._read)

    @property
    def exit_code(self) -> int:
        code = self._process.returncode
        if code is None:
            return 128 + signal.SIGKILL
        return code if code >= 0 else 128 - code

    def progress(self, elapsed_s: float) -> Progress:
        output = self.output
        return Progress(round(elapsed_s, 3), output.tail, output.lines, output.bytes, output)

    def stir(self) -> asyncio.Event:
        """Set when next something is written, or the process exits."""
        if not self.exited.is_set():
            self._stirred.clear()
        return self._stirred

    async def end(self) -> None:
        """End whatever of the process still runs, read what it wrote last, and let go of it."""
        try:
            begun = self.exited.is_set() or await self._ask_to_end()
            self._signal(signal.SIGKILL)
            # A sandbox that ends takes along all that has begun inside, sooner than anybody could look for it.
            if not (begun and self._wrapped):
                await sweep(self._mark)
            await asyncio.wait({self._waiting}, timeout=_KILLED_S)
            if self._places:
                await asyncio.to_thread(clear, self._places, self._mark)
            await _wait(self._silent, GRACE_S)
        finally:
            self._let_go()

    async def _ask_to_end(self) -> bool:
        """Whether the command itself had begun: a sandbox has a process of its own in front of it."""
        family = None
        # One bound for all: a fork bomb makes processes faster than they can be counted.
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                family = await asyncio.to_thread(descendants, self._process.pid)
                if not self._wrapped:
                    self._signal(signal.SIGTERM)
                tell(family, signal.SIGTERM)
                await self.exited.wait()
        return family is None or len(family) > 1

    def _signal(self, what: signal.Signals) -> None:
        # Not the process's own send_signal: it may reap the child under its watcher's feet (Python 3.11).
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, what)

    def _let_go(self) -> None:
        self._signal(signal.SIGKILL)
        if not self._waiting.done():
            _log.warning("process %d does not go although it was killed", self._process.pid)
            self._waiting.cancel()
        if self._resting:
            self._resting.cancel()
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        self.output.feed(b"", final=True)

    def _on_exit(self, _: asyncio.Task[int]) -> None:
        self.exited.set()
        self._stirred.set()

    def _read(self) -> None:
        try:
            block = os.read(self._read_end, _BLOCK)
        except BlockingIOError:
            return
        if not block:
            self._loop.remove_reader(self._read_end)
            self._silent.set()
            return
        self.output.feed(block)
        self._stirred.set()
        self._blocks += 1
        if self._blocks % _BURST == 0:
            self._loop.remove_reader(self._read_end)
            self._resting = self._loop.call_later(_REST_S, self._loop.add_reader, self._read_end, self._read)

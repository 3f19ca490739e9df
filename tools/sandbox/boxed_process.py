"""One child process as a stream: its output in order of arrival, its tail while it runs, its whole tree ended."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from tools.base.outcome import PROGRESS_LATEST_S, PROGRESS_SOONEST_S, Progress, ToolFailed
from tools.base.output_buffer import OutputBuffer
from tools.base.screen import Window
from tools.base.tasks import wait_at_most
from tools.process.orphan_reaper import MARK, clear, watched
from tools.process.process_tree import descendants, handle_of, run_shielded, send_signal, sweep_now
from tools.process.signals import reset_signals
from tools.process.terminal import Terminal
from tools.sandbox.box_init import TERM_S, BoxInit
from tools.sandbox.command import Command
from tools.sandbox.network.launch import HANDED
from tools.sandbox.sealed_paths import HeldSeals, Seals

TIME_LIMIT_S = 3600.0
DRAIN_S = 0.5  # for what is still in the pipe when a process has ended

_BLOCK = 65_536
_BURST, _REST_S = 16, 0.005  # a command that writes without end may use a quarter of the loop, not all of it
_SLOW_S = 0.005  # output full of cursor moves takes longer to read: less of it at once, and as much rest
_SMALL_BLOCK = 8_192
_KILLED_S = 5.0  # how long a killed process may take to go; more means that the kernel holds it

_log = logging.getLogger(__name__)


class Finished(Struct, frozen=True):
    """The end of a process. A signal n is the exit code 128 + n; `overdue` says that the time limit ended it."""

    exit_code: int
    text: str
    elapsed_s: float
    overdue: bool = False


async def stream(
    command: Command,
    *,
    cwd: Path,
    time_limit_s: float = TIME_LIMIT_S,
    principal: str = "",
    window: Window | None = None,
) -> AsyncGenerator[Progress | Finished, None]:
    """Run `command` and yield its progress: at most 5 times a second on change, at least every 2 s, then `Finished`.

    However this generator ends (read to its end, closed, cancelled), no process of the command is left; outside a
    sandbox, none but those that left both their parent and their environment behind. With a `window` the command runs
    in a terminal of that size.
    Raises ToolFailed when the command cannot be started.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    deadline = started + time_limit_s
    child = await _start(command, cwd, principal, window)
    shown_at, shown_bytes = started - PROGRESS_SOONEST_S, 0
    try:
        while not child.exited.is_set() and (now := loop.time()) < deadline:
            changed = child.output.bytes != shown_bytes
            due = shown_at + (PROGRESS_SOONEST_S if changed else PROGRESS_LATEST_S)
            if now >= due:
                shown_at, shown_bytes = now, child.output.bytes
                yield child.progress(now - started)
            else:
                await wait_at_most(min(due, deadline) - now, child.exited if changed else child.change())
        overdue = not child.exited.is_set()
    finally:
        await run_shielded(child.end())
    now = loop.time()
    if child.output.bytes != shown_bytes and (now >= shown_at + PROGRESS_SOONEST_S or child.output.is_coloured):
        yield child.progress(now - started)
    yield Finished(child.exit_code, child.output.text(), now - started, overdue)


class _Made(Struct):
    """Resources of one command besides its process, to be cleared when nothing of it runs any more."""

    mark: str
    places: tuple[str, ...]
    seals: Seals | None
    held: HeldSeals = field(default_factory=HeldSeals)

    def begin_seals(self) -> None:
        if self.seals:
            self.held = self.seals.begin()

    def clear(self) -> None:
        clear(self.places, self.mark)
        if self.seals:
            self.seals.end(self.held)
            self.held = HeldSeals()

    @property
    def anything(self) -> bool:
        return bool(self.places) or self.held.lock >= 0


async def _start(command: Command, cwd: Path, principal: str, window: Window | None) -> _Child:
    mark = f"{watched(command.limits.places)}.{secrets.token_hex(8)}"
    made = _Made(mark, command.limits.places, command.seals)
    try:
        if made.seals:
            await run_shielded(asyncio.to_thread(made.begin_seals))
        prefix = command.limits.begin(mark, principal=principal)
    except OSError as error:
        await run_shielded(asyncio.to_thread(made.clear))
        what = error.filename or "A control group"  # a write has no file name
        raise ToolFailed(f"{what} could not be made for the command: {error.strerror}.") from error
    except asyncio.CancelledError:
        await run_shielded(asyncio.to_thread(made.clear))
        raise
    argv = command.sealed(made.held)
    terminal = Terminal(window) if window else None
    read_end, write_end = (terminal.master, terminal.slave) if terminal else os.pipe()
    init = BoxInit() if command.wrapped else None
    handed = command.handed.opened() if command.handed else None
    try:
        os.set_blocking(read_end, False)
        reset_signals()
        process = await asyncio.create_subprocess_exec(
            *command.before,
            *prefix,
            *(init.words(argv) if init else argv),
            stdin=write_end if terminal else asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            cwd=cwd,
            env={**command.env, MARK: mark, **({} if handed is None else {HANDED: str(handed)})},
            pass_fds=(*command.fds, *(init.fds if init else ()), *(() if handed is None else (handed,))),
            start_new_session=terminal is None or command.wrapped,  # with a terminal, the command's own words do that
        )
    except OSError as error:
        _close(read_end, init)
        await asyncio.to_thread(made.clear)
        raise ToolFailed(f"{command.argv[0]} could not be started in {cwd}: {error.strerror}.") from error
    except BaseException:
        # Cancelled half-way: asyncio has killed the child, but perhaps not what it had already started.
        _close(read_end, init)
        await run_shielded(_swept(made))
        raise
    finally:
        os.close(write_end)
        if handed is not None:
            os.close(handed)
    if init:
        init.started()
    drain_s = _KILLED_S if command.before else DRAIN_S  # a proxy reports at the end what was reached
    return _Child(
        process,
        read_end,
        made,
        init,
        drain_s=drain_s,
        output=OutputBuffer(window=window),
        terminal=terminal,
    )


def _close(read_end: int, init: BoxInit | None) -> None:
    os.close(read_end)
    if init:
        init.close()


async def _swept(made: _Made) -> None:
    await asyncio.to_thread(sweep_now, made.mark)
    await asyncio.to_thread(made.clear)


class _Child:
    """A running process and the read end of its output. `init`: of the box that the process has put around it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        read_end: int,
        made: _Made,
        init: BoxInit | None,
        *,
        drain_s: float,
        output: OutputBuffer,
        terminal: Terminal | None,
    ) -> None:
        self.output = output
        self._terminal = terminal
        self.exited = asyncio.Event()
        self._process = process
        self._read_end = read_end
        self._made = made
        self._init = init
        self._drain_s = drain_s
        self._changed = asyncio.Event()
        self._silent = asyncio.Event()
        self._waiting = asyncio.create_task(process.wait())
        self._waiting.add_done_callback(self._on_exit)
        self._blocks = 0
        self._block_size = _BLOCK
        self._resting: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(read_end, self._read)
        if init:
            self._loop.add_reader(init.messages, self._on_init_message, init)

    @property
    def exit_code(self) -> int:
        code = self._process.returncode
        if code is None:
            return 128 + signal.SIGKILL
        return code if code >= 0 else 128 - code

    def progress(self, elapsed_s: float) -> Progress:
        output, terminal = self.output, self._terminal
        return Progress(
            round(elapsed_s, 3),
            tail=output.tail,
            lines=output.lines,
            bytes=output.bytes,
            output=output,
            type_in=terminal.write if terminal else None,
            hides_input=terminal is not None and terminal.hides_input,
            resize=self._resize if terminal else None,
        )

    def _resize(self, window: Window) -> None:
        if self._terminal and not self.exited.is_set():
            self._terminal.resize(window)
            self.output.resize(window)

    def change(self) -> asyncio.Event:
        """Set when next something is written, or the process exits."""
        if not self.exited.is_set():
            self._changed.clear()
        return self._changed

    async def end(self) -> None:
        """Kill what still runs of the process, read its last output, and release it."""
        try:
            if not self.exited.is_set():
                await self._terminate()
            if self._init and self._init.handle is not None:
                await self._end_box(self._init)
            else:
                self._signal(signal.SIGKILL)
                await asyncio.to_thread(sweep_now, self._made.mark)
            await asyncio.wait({self._waiting}, timeout=_KILLED_S)
            if self._made.anything:
                await asyncio.to_thread(self._made.clear)
            await wait_at_most(self._drain_s, self._silent)
        finally:
            self._close()

    async def _terminate(self) -> None:
        """Send TERM to the whole process tree, and give each process time to end by itself."""
        if self._init and self._init.handle is None:
            return  # the command has not started
        # One bound for all: a fork bomb makes processes faster than they can be counted.
        with suppress(TimeoutError):
            async with asyncio.timeout(TERM_S):
                processes = await asyncio.to_thread(descendants, self._process.pid)
                # A box that saw its command end would take the others down while they tidy up: it waits.
                self._signal(signal.SIGSTOP if self._init else signal.SIGTERM)
                send_signal(processes, signal.SIGTERM)
                if self._init and self._init.handle is not None:  # all inside end before it does
                    await self._readable(self._init.handle)
                    return
                for handle in filter(None, map(handle_of, processes)):
                    try:
                        await self._readable(handle)
                    finally:
                        os.close(handle)
                await self.exited.wait()

    async def _end_box(self, init: BoxInit) -> None:
        """Kill the box, even when it has ended by itself: a process inside may have made itself survive that."""
        init.kill()
        self._signal(signal.SIGCONT)  # it exits with the code of its command
        if not init.gone():
            await asyncio.to_thread(init.gone, _KILLED_S)
        await wait_at_most(DRAIN_S, self.exited)
        self._signal(signal.SIGKILL)

    async def _readable(self, handle: int) -> None:
        seen = asyncio.Event()
        self._loop.add_reader(handle, seen.set)
        try:
            await seen.wait()
        finally:
            self._loop.remove_reader(handle)

    def _on_init_message(self, init: BoxInit) -> None:
        if init.receive():
            self._loop.remove_reader(init.messages)

    def _signal(self, number: signal.Signals) -> None:
        # Not the process's own send_signal: it may reap the child under its watcher's feet (Python 3.11).
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def _close(self) -> None:
        self._signal(signal.SIGKILL)
        if not self._waiting.done():
            _log.warning("process %d still alive after SIGKILL", self._process.pid)
            self._waiting.cancel()
        if self._resting:
            self._resting.cancel()
        self._loop.remove_reader(self._read_end)
        if self._terminal:
            self._terminal.close()
        os.close(self._read_end)
        if self._init:
            self._loop.remove_reader(self._init.messages)
            self._init.close()
        self.output.feed(b"", final=True)

    def _on_exit(self, _: asyncio.Task[int]) -> None:
        self.exited.set()
        self._changed.set()

    def _read(self) -> None:
        try:
            size = self._block_size
            block = self._terminal.read(size) if self._terminal else os.read(self._read_end, size)
        except BlockingIOError:
            return
        if not block:
            self._loop.remove_reader(self._read_end)
            self._silent.set()
            return
        started = self._loop.time()
        self.output.feed(block)
        taken = self._loop.time() - started
        self._block_size = _SMALL_BLOCK if taken > _SLOW_S else _BLOCK
        self._changed.set()
        self._blocks += 1
        if self._blocks % _BURST == 0 or taken > _SLOW_S:
            self._loop.remove_reader(self._read_end)
            rest = max(_REST_S, 3 * taken)
            self._resting = self._loop.call_later(rest, self._loop.add_reader, self._read_end, self._read)

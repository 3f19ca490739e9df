"""A server's process: started in its own group and marked, its output read, ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tools.base.tasks import wait_at_most
from tools.mcp.connection.lines import Endless, LineSplitter, Oversized
from tools.mcp.connection.server_log import ServerLog
from tools.mcp.model import ServerConfig
from tools.process.kill_group import KillGroups, find_kill_groups
from tools.process.orphan_reaper import MARK, watched
from tools.process.process_tree import descendants, run_shielded, send_signal, sweep_now
from tools.process.signals import reset_signals
from tools.sandbox.box_init import TERM_S

EOF_S, KILL_S = 1.0, 5.0
MAX_UNREAD = 32 * 1024 * 1024  # bytes that wait for a server that does not read

if TYPE_CHECKING:
    import psutil

_INHERITED = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
# Variables that make a program run other code: not allowed for servers that are added at run time.
_STEERING = (
    *("LD_", "DYLD_", "PYTHON", "NODE_OPTIONS", "PATH", "BASH_ENV", "ENV"),
    *("PERL5", "RUBYOPT", "JAVA_TOOL", "GIT_"),
)
_MANY_LINES, _FEW_LINES = 256, 64
_DRAIN_S = 0.2  # for what is still in the pipe when a process has ended
_STDERR_PER_S = 1_000_000


class CannotStart(Exception):
    """The command cannot be run. The message says what to change."""


def _program(config: ServerConfig, path: str | None) -> str:
    """Check the program as the kernel would find it: a shell in front would hide FileNotFoundError, PermissionError."""
    command = config.command
    folder = config.cwd or Path()
    if os.path.dirname(command):  # noqa: PTH120
        if not os.access(folder / command, os.X_OK):
            raise (PermissionError if (folder / command).exists() else FileNotFoundError)(command)
    elif shutil.which(command, path=path) is None:
        raise FileNotFoundError(command)
    if config.cwd and not config.cwd.is_dir():
        raise FileNotFoundError(config.cwd)
    return command


def environment(config: ServerConfig) -> dict[str, str]:
    """Return a server's environment: paths and locale of the host, none of its keys, and the configured variables."""
    given = {name: value for name in _INHERITED if (value := os.environ.get(name)) is not None}
    given |= {name: value for name, value in os.environ.items() if name.startswith("LC_")}
    if config.from_api and (steering := [name for name in config.env if name.upper().startswith(_STEERING)]):
        raise CannotStart(f"The variable {steering[0]} may only be set in the configuration file: leave it out.")
    return given | dict(config.env)


class Child(asyncio.SubprocessProtocol):
    """One process. Lines wait in `lines` until they are taken; `woken` is set when lines wait, or no more will come."""

    def __init__(
        self,
        log: ServerLog,
        on_close: Callable[[str], None],
        find_groups: Callable[[], KillGroups] = find_kill_groups,
    ) -> None:
        self.lines: deque[bytes | Oversized] = deque()
        self.woken = asyncio.Event()
        self.closed = False
        self.exited = asyncio.Event()
        self.mark = ""
        self._find_groups = find_groups
        self._groups = KillGroups()
        self._log = log
        self._on_close = on_close
        self._split = LineSplitter()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stderr_left, self._stderr_rest = _STDERR_PER_S, False
        self._paused = False
        self._has_ended_output = False

    @property
    def pid(self) -> int | None:
        return self._transport.get_pid() if self._transport else None

    @property
    def exit_code(self) -> int | None:
        code = self._transport.get_returncode() if self._transport else None
        return code if code is None or code >= 0 else 128 - code

    async def start(self, config: ServerConfig) -> None:
        """Raises CannotStart."""
        env = environment(config)
        self._groups = await asyncio.to_thread(self._find_groups)
        self.mark = f"{watched(self._groups.places)}.{secrets.token_hex(8)}"
        try:
            program = _program(config, env.get("PATH"))
            prefix = self._groups.begin(self.mark)
            await self._spawn([*prefix, program, *config.args], {**env, MARK: self.mark}, config.cwd)
        except FileNotFoundError as error:
            if config.cwd and not config.cwd.is_dir():
                raise CannotStart(f"The folder {config.cwd} does not exist: correct `cwd`.") from error
            raise CannotStart(
                f"There is no program {config.command!r}: install it, or write its full path as `command`."
            ) from error
        except (OSError, ValueError) as error:
            raise CannotStart(f"{config.command!r} cannot be started: {error}.") from error

    async def _spawn(self, argv: list[str], env: Mapping[str, str], cwd: object) -> None:
        """Spawn, shielded from cancellation: a process that is abandoned half-way would never be reaped."""

        async def spawn() -> None:
            reset_signals()
            await self._loop.subprocess_exec(
                lambda: self,
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )

        try:
            await run_shielded(spawn())
        except asyncio.CancelledError:
            self._signal_group(signal.SIGKILL)
            raise

    def write(self, line: bytes) -> None:
        """Write without waiting: what a server does not read is buffered, up to a bound. Raises BrokenPipeError."""
        stdin = self._pipe(0)
        if self.closed or stdin is None or stdin.is_closing():
            raise BrokenPipeError
        stdin.write(line)
        if stdin.get_write_buffer_size() > MAX_UNREAD:
            self.end_of_lines("it does not read what it is sent")
            raise BrokenPipeError

    def take(self) -> bytes | Oversized | None:
        """The next line; None when there is none yet."""
        if not self.lines:
            self.woken.clear()
            if self.closed:
                self.woken.set()
            return None
        taken = self.lines.popleft()
        if self._paused and len(self.lines) < _FEW_LINES:
            self._paused = False
            if (stdout := self._pipe(1)) and not stdout.is_closing():
                stdout.resume_reading()
        return taken

    def end_of_lines(self, why: str) -> None:
        """Stop reading and writing."""
        if not self.closed:
            self.closed = True
            self.woken.set()
            self._on_close(why)

    async def end(self) -> None:
        """End the process and all that it started: close stdin, then TERM, then KILL."""
        if self._transport is None:
            await asyncio.to_thread(self._groups.end, self.mark)
            return
        try:
            processes = await self._descendants()  # now, because orphans get another parent
            if (stdin := self._pipe(0)) is not None:
                stdin.close()
            self._resume_all()
            if not await self._exits_within(EOF_S):
                processes += await self._descendants()
                self._signal_group(signal.SIGTERM)
                send_signal(processes, signal.SIGTERM)
                await self._exits_within(TERM_S)
            processes += await self._descendants()
            self._signal_group(signal.SIGKILL)
            send_signal(processes, signal.SIGKILL)
            await asyncio.to_thread(sweep_now, self.mark)
            await asyncio.to_thread(self._groups.end, self.mark)
            await self._exits_within(KILL_S)
        finally:
            self.end_of_lines("it was stopped")
            self._transport.close()

    async def _descendants(self) -> list[psutil.Process]:
        return await asyncio.to_thread(descendants, self.pid) if self.pid and not self.exited.is_set() else []

    async def _exits_within(self, seconds: float) -> bool:
        await wait_at_most(seconds, self.exited)
        return self.exited.is_set()

    def _signal_group(self, what: signal.Signals) -> None:
        if self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, what)

    def _resume_all(self) -> None:
        """Resume reading, so that pending output does not block its exit."""
        self._split = LineSplitter()
        self._paused = False
        self.closed = True
        for number in (1, 2):
            if (pipe := self._pipe(number)) and not pipe.is_closing():
                pipe.resume_reading()

    def _pipe(self, number: int) -> Any:
        return cast(Any, self._transport.get_pipe_transport(number)) if self._transport else None

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._receive_stderr(data)
            return
        if self.closed:
            return
        try:
            self.lines.extend(self._split.feed(data))
        except Endless as endless:
            self.end_of_lines(str(endless))
            return
        self.woken.set()
        if len(self.lines) > _MANY_LINES and not self._paused:
            self._paused = True
            self._pipe(1).pause_reading()

    def _receive_stderr(self, data: bytes) -> None:
        self._log.feed(data)
        self._stderr_left -= len(data)
        if self._stderr_left < 0 and not self._stderr_rest and not self.closed:
            self._stderr_rest = True
            self._pipe(2).pause_reading()
            self._loop.call_later(1.0, self._resume_stderr)

    def _resume_stderr(self) -> None:
        self._stderr_left, self._stderr_rest = _STDERR_PER_S, False
        pipe = self._pipe(2)
        if pipe is not None and not pipe.is_closing():
            pipe.resume_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._has_ended_output = True
            self._on_end()

    def process_exited(self) -> None:
        self.exited.set()
        self._on_end()

    def _on_end(self) -> None:
        """Report the end once both the process and its output have ended, or soon after one of them: a process that it
        started may hold the pipe open forever."""
        if self._has_ended_output and self.exited.is_set():
            self._report_end()
        else:
            self._loop.call_later(_DRAIN_S, self._report_end)

    def _report_end(self) -> None:
        ended = self.exited.is_set()
        self.end_of_lines(f"it ended with exit code {self.exit_code}" if ended else "it closed its output")

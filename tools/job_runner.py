"""The supervisor of one background job, a process of its own: it outlives the server that started it.

It starts the command, keeps its output, watches its time and ends its whole tree when asked to (SIGTERM). Light on
imports: there is one per running job. What ends a family is imported when it is needed.

    starting -> running -> exited | cancelled | timed_out        failed: the command could not be started
    any of the first two -> lost, when the supervisor goes without a last word (written by the server)
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from tools.job_folder import (
    BLOCK,
    COMMAND,
    LOCK_FD,
    OUTPUT,
    READY,
    SCRIPT,
    SCRIPT_FD,
    STATE,
    OutputFile,
    write_json,
    write_over,
)

GRACE_S = 1.0  # between TERM and KILL, and how long remains of the output may take to arrive
KILLED_S = 5.0  # how long a killed process may take to go; more means that the kernel holds it
_BURST, _REST_S = 16, 0.005  # a command that writes without end may not take a processor for itself
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT)


class Supervisor:
    """One child, the pipe that it writes to, and what asks to end it; all waits go through one poll."""

    def __init__(self, child: int, read_end: int, asked: int, output: OutputFile) -> None:
        self.child = child
        self.output = output
        self._read_end = read_end
        self._exited = os.pidfd_open(child)
        self._asked = asked
        self._blocks = 0
        self._poll = select.poll()
        for handle in (read_end, self._exited, asked):
            self._poll.register(handle, select.POLLIN)

    def wait(self, seconds: float) -> str:
        """Keep the output until the child exits, somebody asks for its end, or the time is over: which of them."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready = {handle for handle, _ in self._poll.poll(left * 1000)}
            if self._read_end in ready:
                self._take()
            if self._exited in ready:
                return "exited"
            if self._asked in ready:
                return "cancelled"
        return "timed_out"

    def end(self, why: str, mark: str, places: list[str], *, wrapped: bool) -> int:
        """Leave nothing of the command running; its exit code, 128 + n for a signal n."""
        natural = why == "exited"
        self._poll.unregister(self._asked)  # asked already, or too late to ask
        if not natural:
            self._ask_to_end(wrapped=wrapped)
            os.kill(self.child, signal.SIGKILL)  # it has not been waited for, so the number is still its own
        # A sandbox that ended by itself has taken everything inside along.
        if not (natural and wrapped):
            from tools.family import sweep_now

            sweep_now(mark)
        if places:
            from tools.undertaker import clear

            clear(places, mark)
        self._poll.unregister(self._exited)
        if not select.select([self._exited], [], [], KILLED_S)[0]:
            return 128 + signal.SIGKILL
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        return code if code >= 0 else 128 - code

    def drain(self) -> None:
        """What was written last."""
        deadline = time.monotonic() + GRACE_S
        while self._read_end >= 0 and (left := deadline - time.monotonic()) > 0 and self._poll.poll(left * 1000):
            self._take()

    def _ask_to_end(self, *, wrapped: bool) -> None:
        from tools.family import descendants, tell

        family = descendants(self.child)
        if not wrapped:
            os.kill(self.child, signal.SIGTERM)
        tell(family, signal.SIGTERM)
        self.wait(GRACE_S)

    def _take(self) -> None:
        block = os.read(self._read_end, BLOCK)
        if block:
            self.output.add(block)
        else:
            self._poll.unregister(self._read_end)
            self._read_end = -1
        self._blocks += 1
        if self._blocks % _BURST == 0:
            time.sleep(_REST_S)


def main(folder: str) -> None:
    """Run the job of `folder` to its end."""
    os.set_inheritable(LOCK_FD, False)
    os.closerange(LOCK_FD + 1, 1 << 16)  # nothing of the server's, such as its socket, may stay open with the job
    asked = _end_requests()
    with open(f"{folder}/{COMMAND}", encoding="ascii") as file:  # noqa: PTH123
        command = json.load(file)
    output = OutputFile(f"{folder}/{OUTPUT}")
    state: dict[str, Any] = {"pid": os.getpid(), "started": time.time()}
    began = time.monotonic()
    read_end, write_end = os.pipe()
    try:
        child = _spawn(command, f"{folder}/{SCRIPT}", write_end)
    except OSError as error:
        reason = f"{command['argv'][0]} could not be started in {command['cwd']}: {error.strerror}."
        _tell(folder, state | {"state": "failed", "reason": reason, "ended": time.time(), "duration_s": 0.0})
        return
    os.close(write_end)
    _tell(folder, state | {"state": "running"})
    supervisor = Supervisor(child, read_end, asked, output)
    why = supervisor.wait(command["time_limit_s"])
    code = supervisor.end(why, command["mark"], command["places"], wrapped=command["wrapped"])
    supervisor.drain()
    end = {"state": why, "exit_code": code, "ended": time.time(), "duration_s": time.monotonic() - began}
    last_word = state | end | {"reason": output.complaint}
    try:
        write_json(f"{folder}/{STATE}", last_word)
    except OSError:
        write_over(f"{folder}/{STATE}", last_word)


def _end_requests() -> int:
    """A file descriptor that becomes readable when the supervisor is asked to end."""
    asked, ask = os.pipe()
    os.set_blocking(ask, False)
    signal.set_wakeup_fd(ask, warn_on_full_buffer=False)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return asked


def _spawn(command: dict[str, Any], script: str, write_end: int) -> int:
    """Start the command with nothing open but its script and the pipe. Raises OSError."""
    os.environ["PATH"] = command["env"].get("PATH", os.defpath)  # the command is looked for as it would do itself
    text = os.open(script, os.O_RDONLY)
    os.chdir(command["cwd"])
    actions: tuple[tuple[object, ...], ...] = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, write_end, 1),
        (os.POSIX_SPAWN_DUP2, write_end, 2),
        (os.POSIX_SPAWN_DUP2, text, SCRIPT_FD),
    )
    if command["opened"]:  # here, not by the command itself: it is a file of the server, which may have gone by then
        actions += ((os.POSIX_SPAWN_OPEN, command["opened_fd"], command["opened"], os.O_RDONLY, 0),)
    argv = command["argv"]
    child = os.posix_spawnp(argv[0], argv, command["env"], file_actions=actions, setsid=True, setsigdef=_IGNORED)
    os.chdir("/")
    os.close(text)
    return child


def _tell(folder: str, state: dict[str, Any]) -> None:
    """Write the state, then say on stdout, once, that it is there."""
    write_json(f"{folder}/{STATE}", state)
    with suppress(BrokenPipeError):  # the server has gone meanwhile; the next one reads the state
        os.write(1, READY)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.close(silence)


if __name__ == "__main__":
    main(sys.argv[1])

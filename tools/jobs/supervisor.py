"""The supervisor of one background job, a process of its own: it outlives the server that started it.

It starts the command, keeps its output, watches its time and ends its whole tree on SIGTERM. Light on imports:
there is one per running job. The code that ends a process tree is imported when it is needed.

    starting -> running -> exited | cancelled | timed_out        failed: the command could not be started
    any of the first two -> lost, when the supervisor ends without a report (written by the server)
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tools.jobs.folder import (
    BLOCK,
    COMMAND,
    HANDED_FD,
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
from tools.process.signals import ENDING
from tools.sandbox.box_init import TERM_S, BoxInit

DRAIN_S = 1.0  # how long remains of the output may take to arrive
KILLED_S = 5.0  # how long a killed process may take to go; more means that the kernel holds it
_BURST, _REST_S = 16, 0.005  # a command that writes without end may not take a processor for itself
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, *ENDING)


class Supervisor:
    """One child, the pipe that it writes to, and what asks to end it; all waits go through one poll.

    `init`: of the box that the child has put around the command.
    """

    def __init__(self, child: int, read_end: int, end_request: int, output: OutputFile, init: BoxInit | None) -> None:
        self.child = child
        self.output = output
        self._read_end = read_end
        self._exited = os.pidfd_open(child)
        self._end_request = end_request
        self._init = init
        self._blocks = 0
        self._poll = select.poll()
        for handle in (read_end, self._exited, end_request, *([init.messages] if init else ())):
            self._poll.register(handle, select.POLLIN)

    def wait(self, seconds: float) -> str:
        """Keep the output until the child exits, SIGTERM comes, or the time is over; return the final state."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready = {handle for handle, _ in self._poll.poll(left * 1000)}
            if self._read_end in ready:
                self._take()
            if self._init and self._init.messages in ready and self._init.receive():
                self._poll.unregister(self._init.messages)
            if self._exited in ready:
                return "exited"
            if self._end_request in ready:
                return "cancelled"
        return "timed_out"

    def end(self, why: str, mark: str, places: list[str]) -> int:
        """Kill everything of the command; return its exit code, 128 + n for a signal n."""
        self._poll.unregister(self._end_request)  # already requested, or too late to
        self._poll.unregister(self._exited)
        if why != "exited":
            self._terminate()
        if self._init and self._init.handle is not None:
            # Even where the box has ended by itself: a process inside may have made itself survive that.
            self._init.kill()
            os.kill(self.child, signal.SIGCONT)  # it exits with the code of its command
            self._init.gone(KILLED_S)
            select.select([self._exited], [], [], DRAIN_S)
            os.kill(self.child, signal.SIGKILL)
        else:
            os.kill(self.child, signal.SIGKILL)  # it has not been waited for, so the number is still its own
            from tools.process.process_tree import sweep_now

            sweep_now(mark)
        if places:
            from tools.process.orphan_reaper import clear

            clear(places, mark)
        if not select.select([self._exited], [], [], KILLED_S)[0]:
            return 128 + signal.SIGKILL
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        return code if code >= 0 else 128 - code

    def drain(self) -> None:
        """Read the last output."""
        deadline = time.monotonic() + DRAIN_S
        while self._read_end >= 0 and (left := deadline - time.monotonic()) > 0 and self._poll.poll(left * 1000):
            self._take()

    def _terminate(self) -> None:
        """Send TERM to the whole process tree, and give each process time to end by itself."""
        if self._init and self._init.handle is None:
            return  # the command has not started
        from tools.process.process_tree import descendants, handle_of, send_signal

        until = time.monotonic() + TERM_S
        processes = descendants(self.child)
        # A box that saw its command end would take the others down while they tidy up: it waits.
        os.kill(self.child, signal.SIGSTOP if self._init else signal.SIGTERM)
        send_signal(processes, signal.SIGTERM)
        if self._init and self._init.handle is not None:  # all inside end before it does
            self._keep_until(self._init.handle, until)
            return
        for handle in filter(None, map(handle_of, processes)):
            self._keep_until(handle, until)
            os.close(handle)
        self._keep_until(self._exited, until)

    def _keep_until(self, handle: int, until: float) -> None:
        """Keep the output until a process has ended, or the time is over."""
        self._poll.register(handle, select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            ready = {ready for ready, _ in self._poll.poll(left * 1000)}
            if self._read_end in ready:
                self._take()
            if handle in ready:
                break
        self._poll.unregister(handle)

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
    with open(f"{folder}/{COMMAND}", encoding="ascii") as file:  # noqa: PTH123
        command = json.load(file)
    # Nothing of the server's, such as its socket, may stay open with the job.
    os.closerange((HANDED_FD if command["handed"] else LOCK_FD) + 1, 1 << 16)
    end_request = _end_requests()
    output = OutputFile(f"{folder}/{OUTPUT}")
    init = BoxInit() if command["wrapped"] else None
    state: dict[str, Any] = {"pid": os.getpid(), "started": time.time()}
    started = time.monotonic()
    read_end, write_end = os.pipe()
    release = ExitStack()
    try:
        if command["sealed"]:
            _seal(command["sealed"], release)
        child = _spawn(command, f"{folder}/{SCRIPT}", write_end, init)
    except OSError as error:
        release.close()
        reason = f"{command['argv'][0]} could not be started in {command['cwd']}: {error.strerror}."
        _report_state(folder, state | {"state": "failed", "reason": reason, "ended": time.time(), "duration_s": 0.0})
        return
    os.close(write_end)
    if command["handed"]:
        os.close(HANDED_FD)
    _report_state(folder, state | {"state": "running"})
    supervisor = Supervisor(child, read_end, end_request, output, init)
    why = supervisor.wait(command["time_limit_s"])
    code = supervisor.end(why, command["mark"], command["places"])
    release.close()
    supervisor.drain()
    end = {"state": why, "exit_code": code, "ended": time.time(), "duration_s": time.monotonic() - started}
    final_state = state | end | {"reason": output.complaint}
    try:
        write_json(f"{folder}/{STATE}", final_state)
    except OSError:
        write_over(f"{folder}/{STATE}", final_state)


def _seal(sealed: list[str], release: ExitStack) -> None:
    """Hold the seals that the command line was built with (a workspace, then names of places) until `release`.
    The server holds them, too, until this job has started. Raises OSError."""
    from tools.sandbox.sealed_paths import Seals

    workspace, *names = sealed
    seals = Seals(Path(workspace), tuple(names))
    release.callback(seals.end, seals.begin())


def _end_requests() -> int:
    """A file descriptor that becomes readable when the supervisor receives SIGTERM."""
    end_request, ask = os.pipe()
    os.set_blocking(ask, False)
    signal.set_wakeup_fd(ask, warn_on_full_buffer=False)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return end_request


def _spawn(command: dict[str, Any], script: str, write_end: int, init: BoxInit | None) -> int:
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
    argv = [*command["prefix"], *(init.inherited(command["argv"]) if init else command["argv"])]
    if command["handed"]:
        actions += ((os.POSIX_SPAWN_DUP2, HANDED_FD, HANDED_FD),)
    child = os.posix_spawnp(argv[0], argv, command["env"], file_actions=actions, setsid=True, setsigdef=_IGNORED)
    os.chdir("/")
    os.close(text)
    if init:
        init.started()
    return child


def _report_state(folder: str, state: dict[str, Any]) -> None:
    """Write the state, then report it on stdout, once."""
    write_json(f"{folder}/{STATE}", state)
    with suppress(BrokenPipeError):  # the server has gone meanwhile; the next one reads the state
        os.write(1, READY)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.close(silence)


if __name__ == "__main__":
    main(sys.argv[1])

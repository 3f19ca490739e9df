"""The parent of workers: `dragoman serve --workers N` is N servers of one machine behind one port.

It listens, and hands each connection to the worker that has the fewest. Of the kernel's own ways one spreads them by a
hash (SO_REUSEPORT; what waits at a worker that ends is lost), and the other gives most to whichever is idle first. So
load is even, a worker that starts or leaves is given nothing, and no connection is refused while one of them is there.

Each worker is a replica as any other, with a process of its own, started as this one was: after an upgrade SIGHUP
replaces them one by one by the new version. One that has died is started again, and frees the runs that it had. The
parent holds the terminal and the signals. It loads nothing of a server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

from app.config.settings import Settings
from app.redaction.logs import OWN, log_as_json, log_as_text
from routes.protocol.announcements import Announcements
from routes.workers.channel import CLOSED, LEAVING, READY
from routes.workers.listening import CannotServe, listen
from tools.base.tasks import wait_at_most
from tools.process.signals import reset_signals

AGAIN_S = 0.1  # until the next try, when no more files can be open, or no worker keeps up
DELAYS_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # before a worker is started again
STEADY_S = 60.0  # a worker that lived longer did not fail at its start
_log = logging.getLogger(OWN)


def serve_workers(settings: Settings, command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run until a signal stops all, or until a worker cannot start at first: then its exit code is the answer."""
    announcements = Announcements(settings.log_format == "json")
    (log_as_json if announcements.as_records else log_as_text)(settings.log_level)
    try:
        with listen(settings) as listener:
            return asyncio.run(Parent(listener, command, environ, announcements).run(settings.workers))
    except CannotServe as problem:
        announcements.fail(str(problem))
        return 1


class Worker:
    """One of the servers: its `process` of now, if it has one, and how many `connections` that has.

    `given` are all that it ever had.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.channel: socket.socket | None = None
        self.connections = self.given = 0
        self.takes = False  # connections
        self.has_served = False  # at any time
        self.is_replaced = False  # it leaves, and the next one is to start at once
        self.settled = asyncio.Event()  # its latest start has succeeded or failed
        self.fails = 0  # in a row

    def give(self, connection: socket.socket) -> bool:
        """Hand over a connection; False if the worker does not keep up, or is dead."""
        assert self.channel
        try:
            socket.send_fds(self.channel, [b"."], [connection.fileno()])
        except OSError:
            return False
        connection.close()
        self.connections += 1
        self.given += 1
        return True

    def retire(self) -> None:
        """Give it no more: once it has what is on the way, it leaves."""
        self.takes = False
        if self.channel:
            with suppress(OSError):
                self.channel.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Its process has ended."""
        self.takes, self.process = False, None
        if self.channel:
            asyncio.get_running_loop().remove_reader(self.channel)
            self.channel.close()
            self.channel = None


class Parent:
    """Use `run` once."""

    def __init__(
        self, listener: socket.socket, command: Sequence[str], environ: Mapping[str, str], say: Announcements
    ) -> None:
        self._say = say
        self._listener = listener
        self._command = command
        self._environ = environ
        self._workers: list[Worker] = []
        self._held: socket.socket | None = None  # a connection that no worker had room for
        self._stopping = asyncio.Event()
        self._is_accepting = False
        self._replacing: asyncio.Task[None] | None = None
        self._exit_code = 0

    async def run(self, count: int) -> int:
        """Start the first worker, which changes the schema if that has to be, then the others."""
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop, number)
        if not os.isatty(0):  # else it is a terminal that hangs up
            self._loop.add_signal_handler(signal.SIGHUP, self._replace_all)
        self._workers = [Worker(number) for number in range(1, count + 1)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(self._workers[0]))
            await self._workers[0].settled.wait()
            for worker in self._workers[1:]:
                group.create_task(self._keep(worker))
            for worker in self._workers:
                await worker.settled.wait()
            if all(worker.takes for worker in self._workers):
                self._say.state(f"All {count} workers take requests, on port {self._listener.getsockname()[1]}.")
        return self._exit_code

    async def _keep(self, worker: Worker) -> None:
        """Start a worker, again and again, until all stop."""
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run(worker)
            if not worker.has_served and not self._stopping.is_set():
                self._exit_code = code if code > 0 else 1
                self._stop(signal.SIGTERM)
            if self._stopping.is_set():
                break
            if worker.is_replaced:
                worker.is_replaced = False
                continue
            worker.fails = 1 if time.monotonic() - started > STEADY_S else worker.fails + 1
            delay_s = DELAYS_S[min(worker.fails, len(DELAYS_S)) - 1]
            when = f"in {delay_s:g} s" if delay_s else "at once"
            _log.error("worker %d has ended (%s) and starts again %s", worker.number, _why(code), when)
            worker.settled.set()
            await wait_at_most(delay_s, self._stopping)
        worker.settled.set()

    async def _run(self, worker: Worker) -> int:
        """Run the process of a worker to its end, and return its exit code."""
        try:
            process = await self._start(worker)
        except OSError as error:  # no more processes, or files
            _log.error("worker %d cannot be started: %s", worker.number, error.strerror)
            worker.close()
            return 1
        if self._stopping.is_set():
            process.terminate()
        code = await process.wait()
        worker.close()
        self._accept_or_wait()
        return code

    async def _start(self, worker: Worker) -> Process:
        words = (*self._command, "--as-worker", str(worker.number), str(self._listener.getsockname()[1]))
        tells = worker.number == 1 and not worker.has_served  # one of them says how to reach all
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        worker.channel, worker.connections = ours, 0
        reset_signals()
        with theirs:
            worker.process = await asyncio.create_subprocess_exec(
                *words,
                env=self._environ,
                stdin=theirs.fileno(),
                stdout=None if tells else DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent, which passes it on
            )
        self._loop.add_reader(ours, self._hear, worker, ours)
        return worker.process

    def _hear(self, worker: Worker, channel: socket.socket) -> None:
        try:
            news = channel.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            news = b""
        if not news:
            self._loop.remove_reader(channel)
        worker.connections -= news.count(CLOSED)
        if READY in news:
            worker.takes, worker.has_served = not self._stopping.is_set(), True
            worker.settled.set()
        if LEAVING in news:
            worker.retire()
        self._accept_or_wait()

    def _accept_or_wait(self) -> None:
        """Take connections while there is a worker for them; else they wait, and are refused if all stop."""
        takes = any(worker.takes for worker in self._workers)
        if takes == self._is_accepting:
            return
        self._is_accepting = takes
        if takes:
            self._loop.add_reader(self._listener, self._accept)
            self._accept()  # what is held
            return
        self._loop.remove_reader(self._listener)
        if self._stopping.is_set():
            self._listener.close()

    def _accept(self) -> None:
        try:
            connection = self._held or self._listener.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # no more files
            _log.error("no connection can be accepted: %s", error.strerror)
            self._pause()
            return
        taking = sorted((one for one in self._workers if one.takes), key=lambda one: (one.connections, one.given))
        self._held = None if any(worker.give(connection) for worker in taking) else connection
        if self._held:
            self._pause()

    def _pause(self) -> None:
        """Take no connections for a moment."""
        self._loop.remove_reader(self._listener)
        self._is_accepting = False
        self._loop.call_later(AGAIN_S, self._accept_or_wait)

    def _stop(self, number: int) -> None:
        """Pass the signal on: the first lets runs end in their time of grace, the second ends them."""
        self._stopping.set()
        for worker in self._workers:
            if worker.process and worker.process.returncode is None:
                worker.process.send_signal(number)

    def _replace_all(self) -> None:
        if self._replacing is None or self._replacing.done():
            self._replacing = asyncio.create_task(self._replace())

    async def _replace(self) -> None:
        """Replace the workers one by one, until one does not start."""
        for worker in [one for one in self._workers if one.takes]:  # others start anew anyway
            worker.settled.clear()
            worker.is_replaced = True
            worker.retire()
            await worker.settled.wait()
            if not worker.takes:
                if not self._stopping.is_set():
                    _log.error("worker %d does not start: the others stay as they are", worker.number)
                return


def _why(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

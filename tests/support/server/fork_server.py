"""A process that has imported dragoman and forks one for each request: its imports take a second, a fork takes 10 ms.

Its one argument is the number of a socket. Each request on it is a JSON object and four files: stdin, stdout, stderr
and a socket that is answered with the process id and, when the process has ended, with its exit code.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import socket
import sys
import termios
import time
from contextlib import suppress
from typing import Any

import routes.server
import routes.terminal.chat  # noqa: F401 (what most subcommands need, and `serve` and `chat` all of)
from routes.cli.main import main

MOST_BYTES = 1 << 16
CLOCK = "TESTS_CLOCK_S"  # in the environment: the seconds by which its clock is wrong


def serve(requests: socket.socket) -> None:
    """Return in the process that is to become dragoman, or when no more can be asked for."""
    while True:
        message, files, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
        reap()
        if not message:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            return keep(json.loads(message), files)
        for file in files:
            os.close(file)


def reap() -> None:
    """Take leave of the keepers that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def keep(request: dict[str, Any], files: list[int]) -> None:
    """Return in the process that is to become dragoman; beside it, wait for its end and report it."""
    *standard, answers = files
    with socket.socket(fileno=answers) as asking:
        if pid := os.fork():
            for file in standard:
                os.close(file)
            with suppress(BrokenPipeError):
                asking.send(b"%d\n" % pid)
                asking.send(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os._exit(0)
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
            setattr(sys, name, os.fdopen(number, mode, buffering=1, encoding="utf-8", closefd=False))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    if fast_s := os.environ.pop(CLOCK, ""):
        right = time.time
        time.time = lambda: right() + float(fast_s)
    sys.argv = ["dragoman", *request["words"]]


if __name__ == "__main__":
    gc.freeze()  # a collection would write to, and so copy, the pages that processes share
    serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(main())

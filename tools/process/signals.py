"""Signals of what this process starts.

A program inherits which signals are ignored, though not handlers: a shell starts what it runs in the background with
SIGINT and SIGQUIT ignored, `nohup` with SIGHUP, and then Ctrl-C in a command's terminal, `kill -INT` and `trap` do
nothing. Every caller that starts a program calls `reset_signals` before.
"""

from __future__ import annotations

import signal
from contextlib import suppress

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def reset_signals() -> None:
    """Let programs start with the default action of signals that end them. If this process ignores one, it still does.

    Only the main thread can do that, so a program that another thread starts before it inherits what is ignored.
    """
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_IGN:
            with suppress(ValueError):  # another thread
                signal.signal(number, _ignore)


def _ignore(*_: object) -> None:
    """Do nothing, as SIG_IGN does; but `execve` sets handled signals to their default, and ignored ones it leaves."""

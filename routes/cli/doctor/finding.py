"""Results of checks, and what all checks are given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from app.config.settings import Loaded, Settings
from app.redaction.redactor import Redactor
from app.storage.inspection.database_file import StoredConfiguration

_T = TypeVar("_T")
_R = TypeVar("_R")
MOST_THREADS = 32  # more than there are checks: one that hangs keeps no other from a thread


class State(StrEnum):
    """The outcome of a check, the least first."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Struct, frozen=True):
    """One line of the report. `subject` names one of several things that a check looks at; `advice` what to do."""

    state: State
    found: str
    advice: str = ""
    subject: str = ""


def ok(found: str, subject: str = "") -> Finding:
    return Finding(State.OK, found, "", subject)


def skipped(found: str, advice: str = "", subject: str = "") -> Finding:
    return Finding(State.SKIPPED, found, advice, subject)


def warning(found: str, advice: str, subject: str = "") -> Finding:
    return Finding(State.WARNING, found, advice, subject)


def problem(found: str, advice: str, subject: str = "") -> Finding:
    return Finding(State.PROBLEM, found, advice, subject)


class Subject(Struct):
    """The installation that is looked at. `loaded` is None if the settings are not valid, for `objections`.

    `server` and `stored` are set by the checks of the data directory and of the database, which others wait for:
    `server` is the process that holds the lock of the data directory, 0 where the system does not say which it is.
    """

    environ: Mapping[str, str]
    loaded: Loaded | None
    redactor: Redactor  # knows the secrets of the settings, and those that checks have read
    objections: Sequence[str] = ()
    ask_model: bool = False
    offline: bool = False
    replay: bool = False  # stored runs
    mcp_s: float = 11.0  # for all MCP servers together to be connected; ending them takes its time, too
    server: int | None = None
    stored: StoredConfiguration = field(default_factory=StoredConfiguration)

    @property
    def settings(self) -> Settings:
        """The settings, for checks that need the configuration."""
        assert self.loaded
        return self.loaded.settings


Findings = Finding | Sequence[Finding]
Look = Callable[[Subject], Findings | Awaitable[Findings]]


class Check(Struct, frozen=True):
    """A row of the table of checks.

    `needs` are names of checks without which this one is skipped if they have found a problem. `network`: it leaves the
    machine, or starts programs that may, so that `--offline` skips it.
    """

    name: str
    look: Look
    needs: tuple[str, ...] = ()
    network: bool = False
    limit_s: float = 5.0

    @property
    def about(self) -> str:
        """The subject of the check, for the documents: the first line of its function's docstring."""
        return (self.look.__doc__ or "").partition("\n")[0].rstrip(".")


async def in_thread(function: Callable[[_T], _R], argument: _T) -> _R:
    return await asyncio.get_running_loop().run_in_executor(_threads(), function, argument)


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads of their own: the loop would wait for those of asyncio when it is closed, for as long as they hang."""
    return ThreadPoolExecutor(MOST_THREADS, "check")


def existing(path: Path) -> Path:
    """The path, or its nearest ancestor that exists."""
    return next((one for one in (path, *path.parents) if one.exists()), Path("/"))


def megabytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MB"

"""What a tool is: a row with a name, a schema and an async generator that reports progress and ends in a Result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from parsing import Arguments
from tools.jobs import Jobs
from tools.sandbox import NO_SANDBOX, NoSandbox, Sandbox


class Risk(StrEnum):
    """What a tool can do to the world, mildest first."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    ADMIN = "admin"


class ToolFailed(Exception):
    """A tool could not do what was asked. The message is for the model and says what to do next."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A running process, seen from outside. `tail` has at most 12 lines; `bytes` counts all output so far."""

    elapsed_s: float
    tail: tuple[str, ...] = ()
    lines: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What the model is told. `exit_code` is set for processes only."""

    ok: bool
    text: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Where a call runs: what every tool may know of the run that called it."""

    workspace: Path
    time_limit_s: float = 3600.0
    sandbox: Sandbox | NoSandbox = NO_SANDBOX
    jobs: Jobs | None = None
    session: str = ""
    principal: str = ""


Run = Callable[[Arguments, Context], AsyncGenerator[Progress | Result, None]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One row of the catalogue. `parameters` is a JSON Schema of type object; `run` ends with exactly one Result."""

    name: str
    description: str
    parameters: dict[str, Any]
    risk: Risk
    run: Run


def answering(answer: Callable[[Arguments, Context], Awaitable[str]]) -> Run:
    """A `run` for a tool that has nothing to show before its answer."""

    async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        yield Result(ok=True, text=await answer(arguments, context))

    return run

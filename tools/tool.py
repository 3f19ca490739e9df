"""What a tool is: a row with a name, a schema and an async generator that reports progress and ends in a Result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsing import Arguments
from tools.base.outcome import Progress, Result
from tools.base.rights import Approval, OutboundEffect, Risk, Role
from tools.jobs.manager import Jobs
from tools.sandbox.sandbox import NO_SANDBOX, NoSandbox, Sandbox

AskPerson = Callable[[str, Arguments, str, Callable[[Arguments], str | None]], Awaitable[Arguments | None]]
"""Put a question (its name, what it shows, why it is asked) to whom the run is for.

The last argument says what is wrong with an answer, None when nothing is. None for an answer: they decline, or do not
answer in time.
"""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A message of the conversation that a search has found. `author`: `user`, `assistant`, the name of a tool."""

    position: int
    author: str
    text: str
    untrusted: bool


Recall = Callable[[str, str, int], Awaitable[Sequence[Recalled]]]
"""The messages of a session that fit the words best, at most so many, oldest first. Bad words find nothing."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A piece of what an earlier call of the conversation returned; `characters` counts the whole."""

    text: str
    characters: int
    untrusted: bool


ReadResult = Callable[[str, int, int], Awaitable[Kept | None]]
"""Of the call with that id: from which character on, and how many. None if the conversation has no result of it."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where a call runs: what every tool may know of the run that called it."""

    workspace: Path
    time_limit_s: float = 3600.0
    sandbox: Sandbox | NoSandbox = NO_SANDBOX
    jobs: Jobs | None = None
    session: str = ""
    principal: str = ""
    private_hosts: tuple[str, ...] = ()  # what web_fetch may reach although it is not on the public internet
    ask: AskPerson | None = None  # None where nobody can be asked
    recall: Recall | None = None  # None where no conversation is kept
    result: ReadResult | None = None  # None where no conversation is kept
    result_characters: int = 20_000  # of a result, that the model is told at most


Run = Callable[[Arguments, Context], AsyncGenerator[Progress | Result, None]]
Normalise = Callable[[Arguments], Arguments]
"""Rewrites the arguments of a call once, before anything is decided: markers in a text become arguments of their own.

Total (arguments are not yet checked) and idempotent; what it returns is what the gate, people and the tool get.
"""


def as_written(arguments: Arguments) -> Arguments:
    """The `normalise` of a tool whose arguments have one form."""
    return arguments


Leaves = Callable[[Arguments, Path], OutboundEffect | None]
"""What a call with these arguments would send out or leave behind, in this workspace. Total: the arguments are not yet
checked. None where all of it stays in the workspace and, where it runs something, in the sandbox."""


def no_outbound_effect(_: Arguments, __: Path) -> OutboundEffect | None:
    """The `leaves` of a tool that has nothing more to say of itself than `confined` does."""
    return None


def nothing_known(_: Arguments, __: Path) -> bool:
    """The `loses_nothing` of a tool of whose calls nothing can be said."""
    return False


def nothing_against(_: Arguments) -> str | None:
    """The `hopeless` of a tool that needs no network."""
    return None


Binds = Callable[[Arguments, Path], str]
"""What an approval of a call with these arguments is for, beside them: the state of what it changes, in this workspace.
May block, never raises. Once that is another, the approval is for nothing, and the person is asked again."""


def binds_nothing(_: Arguments, __: Path) -> str:
    """The `binds` of a tool whose arguments say all."""
    return ""


@dataclass(frozen=True, slots=True)
class Tool:
    """One row of the catalogue. `parameters` is a JSON Schema of type object; `run` ends with exactly one Result.

    A tool that says nothing of itself belongs to admins. `confined`: what it does stays in the workspace and, where
    it runs something, in the sandbox, but for what `leaves` names. `loses_nothing` knows calls that change nothing that
    is there, in this workspace, although the tool could; it may block. `hopeless` says why a call cannot succeed in a
    box without network, and what to do instead. `untrusted`: its results are written by strangers.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    risk: Risk
    run: Run
    role: Role = Role.ADMIN
    approval: Approval = "mode"
    confined: bool = False
    untrusted: bool = False
    normalise: Normalise = as_written
    leaves: Leaves = no_outbound_effect
    loses_nothing: Callable[[Arguments, Path], bool] = nothing_known
    hopeless: Callable[[Arguments], str | None] = nothing_against
    binds: Binds = binds_nothing


def answering(answer: Callable[[Arguments, Context], Awaitable[str]]) -> Run:
    """A `run` for a tool that has nothing to show before its answer."""

    async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        yield Result(ok=True, text=await answer(arguments, context))

    return run

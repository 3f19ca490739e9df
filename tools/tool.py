"""The Tool type: a row with a name, a schema and an async generator that reports progress and ends in a Result."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

from msgspec import Struct

from parsing import Arguments
from tools.base.access import DocumentAccess, HelperAccess, KnowledgeAccess, MemoryAccess, RemoteTask, SessionAccess
from tools.base.outcome import Progress, Result
from tools.base.rights import Approval, Column, Origin, OutboundEffect, Risk, Role
from tools.base.screen import Window
from tools.base.workspace import CallPath
from tools.jobs.manager import Jobs
from tools.sandbox.network.secrets import BoxSecret
from tools.sandbox.sandbox import NO_SANDBOX, NoSandbox, Sandbox


class NoAnswer(Struct, frozen=True):
    """The end of a question without an answer: `denied`, `expired` or `withdrawn`, with the person's note if any."""

    state: str
    note: str = ""


AskPerson = Callable[[str, Arguments, str, Callable[[Arguments], str | None]], Awaitable[Arguments | NoAnswer]]
"""Ask the person whom the run belongs to (name of the question, its fields, the reason).

The last argument validates an answer: an error, or None.
"""


class Recalled(Struct, frozen=True):
    """A search hit: a message of the conversation. `author`: `user`, `assistant`, the name of a tool."""

    position: int
    author: str
    text: str
    untrusted: bool


Recall = Callable[[str, str, int], Awaitable[Sequence[Recalled]]]
"""Search a session: the best matches for a query, at most so many, oldest first. A malformed query finds nothing."""


class Kept(Struct, frozen=True):
    """A part of the result of an earlier call; `characters` counts the whole."""

    text: str
    characters: int
    untrusted: bool


ReadResult = Callable[[str, int, int], Awaitable[Kept | None]]
"""Read a result: call id, offset and size in characters. None if the conversation has no such result."""


def discard_plan(_: Sequence[Struct]) -> None:
    """The `show_plan` of a call that no log shows."""


class Context(Struct, frozen=True):
    """Context of a call: the properties of its run that every tool may use."""

    workspace: Path
    time_limit_s: float = 3600.0
    sandbox: Sandbox | NoSandbox = NO_SANDBOX
    jobs: Jobs | None = None
    session: str = ""
    run: str = ""
    call: str = ""
    principal: str = ""
    speaker: str = ""  # the member of a bot that speaks for the principal
    window: Window | None = None  # of the terminal that commands run in
    secrets: Sequence[BoxSecret] = ()  # that the proxy of this call's command puts into requests
    bound: str = ""  # what an approval is bound to because of the secrets
    withheld: str = ""  # the reason why the call cannot have the secrets that it goes with, and is not run
    private_hosts: tuple[str, ...] = ()  # what web_fetch may reach although it is not on the public internet
    ask: AskPerson | None = None  # None where questions cannot be answered
    recall: Recall | None = None  # None where no conversation is kept
    result: ReadResult | None = None  # None where no conversation is kept
    show_plan: Callable[[Sequence[Struct]], None] = discard_plan  # its steps, each a struct of texts
    skills: Mapping[str, str] = MappingProxyType({})  # their texts by name
    accept_plan: Callable[[], None] | None = None  # lets a run that only plans act
    documents: DocumentAccess | None = None  # None where no conversation is kept
    memory: MemoryAccess | None = None  # None where there is no memory over conversations
    knowledge: KnowledgeAccess | None = None  # None where no folder is searched
    helpers: HelperAccess | None = None  # None where they are switched off
    sessions: SessionAccess | None = None  # the same
    task: RemoteTask | None = None  # that the call had become at an earlier server
    keep_task: Callable[[RemoteTask], Awaitable[None]] | None = None  # until it is durable
    goes_on: Callable[[], bool] = bool  # True if the next server goes on with the call that ends here
    result_characters: int = 20_000  # of a result that the model gets, at most
    of_app: bool = False  # an app made the call: it gets the whole result, and no other app shows it


Run = Callable[[Arguments, Context], AsyncGenerator[Progress | Result, None]]
Normalise = Callable[[Arguments], Arguments]
"""Rewrites the arguments of a call once, before anything is decided: markers in a text become arguments of their own.

Total (arguments are not yet checked) and idempotent; the gate, the approval and the tool get its result.
"""


def as_written(arguments: Arguments) -> Arguments:
    """The `normalise` of a tool whose arguments have one form."""
    return arguments


Leaves = Callable[[Arguments, Path], OutboundEffect | None]
"""The outbound effect of a call with these arguments, in this workspace. Total: the arguments are not yet checked.
None when the call stays in the workspace and, where it runs something, in the sandbox."""


def no_outbound_effect(_: Arguments, __: Path) -> OutboundEffect | None:
    """The `leaves` of a tool without outbound effects beyond what `confined` states."""
    return None


def nothing_known(_: Arguments, __: Path) -> bool:
    """The `loses_nothing` of a tool whose calls are not analysed."""
    return False


def nothing_against(_: Arguments) -> str | None:
    """The `hopeless` of a tool that needs no network."""
    return None


Binds = Callable[[Arguments, Path], str]
"""The state that an approval is bound to besides the arguments: of what the call changes, in this workspace.
May block, never raises. When the state has changed, the approval is void and a new one is needed."""


def binds_nothing(_: Arguments, __: Path) -> str:
    """The `binds` of a tool whose approval depends on its arguments only."""
    return ""


READ_SKILL = "read_skill"
SKILL_REQUEST = "skills/get"  # the own name of the host's tool for the skills of an MCP server
MODEL, APP = "model", "app"  # who sees a tool: models, and the apps of its own server (MCP Apps)
BOTH = (MODEL, APP)
NO_PATHS: Mapping[str, type[CallPath]] = MappingProxyType({})
NO_COLUMNS: Mapping[str, Column] = MappingProxyType({})


class Tool(Struct, frozen=True):
    """One row of the catalogue. `parameters` is a JSON Schema of type object; `run` ends with exactly one Result.

    By default a tool needs the role admin. `confined`: it acts only in the workspace and, where it runs something, in
    the sandbox, except for what `leaves` names. `paths`: the arguments that are paths of the workspace, each with what
    `run` gets in place of the text. `loses_nothing` recognises calls that change nothing that exists in this workspace,
    although the tool could; it may block. `hopeless` returns why a call cannot succeed in a sandbox without network,
    and what to do instead. `untrusted`: its results are treated as untrusted. `handed`: the client runs it, so that its
    calls are handed over, and neither boxed nor asked about here. `needs_person`: it is refused in a run that no person
    answers. `plans`: it is for runs that only plan. `least_window`: a model that can read fewer tokens is not offered
    it, unless the request names it. `through`: the tool of an MCP server that its calls reach, so that it is disabled
    with that one. `origin`: of a tool of an MCP server; its classification can change while it is offered. `in_turn`:
    its calls never run side by side with others. `keeps`: although it changes no file, something is kept of each call
    (a document, a memory, a run), so that one whose outcome is lost is not made again. `local_time`: its argument
    `time_zone`, if it is left out, is that of the person. `visibility`: its callers.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    risk: Risk
    run: Run
    role: Role = Role.ADMIN
    approval: Approval = "mode"
    confined: bool = False
    paths: Mapping[str, type[CallPath]] = NO_PATHS
    untrusted: bool = False
    normalise: Normalise = as_written
    leaves: Leaves = no_outbound_effect
    loses_nothing: Callable[[Arguments, Path], bool] = nothing_known
    hopeless: Callable[[Arguments], str | None] = nothing_against
    binds: Binds = binds_nothing
    handed: bool = False
    needs_person: bool = False
    least_window: int = 0
    through: str = ""
    origin: Origin | None = None
    in_turn: bool = False
    keeps: bool = False
    local_time: bool = False
    columns: Mapping[str, Column] = NO_COLUMNS
    visibility: tuple[str, ...] = BOTH

    @property
    def may_repeat(self) -> bool:
        """True if a call that was started, and whose outcome is lost, may be made again."""
        return self.risk is Risk.READ and not self.keeps and not self.handed

    @property
    def may_write(self) -> bool:
        """True if its calls may change files of the workspace."""
        return not self.handed and self.risk not in (Risk.READ, Risk.NETWORK)

    plans: bool = False

    @property
    def skills(self) -> str:
        """The prefix of the names of the MCP skills that it reads. Such a tool is not listed: `read_skill` is."""
        return skill_prefix(self.name) if self.origin and self.origin.tool == SKILL_REQUEST else ""

    def with_paths(self, arguments: Arguments, workspace: Path) -> Arguments:
        """Return the arguments that `run` gets. Raises ToolFailed for a path outside of the workspace."""
        return arguments | {name: use(workspace, arguments.get(name, "")) for name, use in self.paths.items()}


def skill_prefix(tool: str) -> str:
    """Return what the names of the skills begin with that a server's tool for them reads: its server's name."""
    return tool.removeprefix("mcp__").removesuffix("__skills") + "/"


def answering(answer: Callable[[Arguments, Context], Awaitable[str]]) -> Run:
    """Build the `run` of a tool that reports no progress."""

    async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        yield Result(ok=True, text=await answer(arguments, context))

    return run


MOST_RIGHTS = 256  # lists that are kept of one list


class ToolList(Sequence[Tool]):
    """Tools that do not change, in their order, each name once.

    A list is made once for all runs that have the same tools, and is equal only to itself: what is made of it (schemas,
    prompts, counts) is made once, too, and goes with the list.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.by_name = {tool.name: tool for tool in tools}
        self._tools = tuple(self.by_name.values())
        self._parts: dict[Hashable, ToolList] = {}

    @overload
    def __getitem__(self, at: int) -> Tool: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Tool, ...]: ...
    def __getitem__(self, at: int | slice) -> Tool | tuple[Tool, ...]:
        return self._tools[at]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    @cached_property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """Name and JSON Schema of the parameters of each tool: as the parser needs them."""
        return {tool.name: tool.parameters for tool in self._tools}

    @cached_property
    def of_skills(self) -> tuple[Tool, ...]:
        """Those that read the skills of MCP servers."""
        return tuple(tool for tool in self._tools if tool.skills)

    def part(self, keeps: Callable[[Tool], bool], rights: Hashable = None) -> ToolList:
        """The tools that `keeps` keeps: one list for the same `rights`, if these alone decide that."""
        known = None if rights is None else self._parts.get(rights)
        if known is None:
            known = ToolList(filter(keeps, self._tools))
            if rights is not None:
                if len(self._parts) >= MOST_RIGHTS:
                    self._parts.clear()
                self._parts[rights] = known
        return known


NO_TOOLS = ToolList()


def tokens_of(tools: Iterable[Tool]) -> int:
    """About how many tokens the definitions take: characters / 4."""
    return sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in tools) // 4

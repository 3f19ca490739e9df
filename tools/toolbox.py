"""The one dispatcher: looks up, authorises, validates and runs every call, in whatever dialect it was written."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from parsing import Arguments
from parsing.aliases import loose
from tools.base.outcome import Progress, Result, ToolFailed
from tools.base.patterns import lazy_pattern
from tools.base.permit import Permit, fingerprint
from tools.base.rights import Risk
from tools.base.schemas import CORRECT, argument_error, client_argument_error
from tools.base.texts import shortened
from tools.tool import READ_SKILL, Context, Tool, ToolList, binds_nothing

_NAMED = 20
_NAME = 80  # characters of one that a model has made up
UNKNOWN_TOOL, ARGUMENTS = "unknown_tool", "arguments"  # the refusals of the dispatcher itself

OTHERWISE = " Try another way."
_NEAREST = 3
_MOST_NAMED = 6
_MOST_COMPARED = 500  # names, letter by letter: the loop waits for it
_MCP = "mcp__"
_HASHED = lazy_pattern(r"_[0-9a-f]{10}$")  # the end of a public name that was changed or cut
# Names that models know such tools by from elsewhere, without separators: only to name the right one.
ALSO_CALLED: Mapping[str, Collection[str]] = {
    "bash": (
        *("shell", "sh", "terminal", "cmd", "command", "runcommand", "executecommand", "runshellcommand", "exec"),
        *("grep", "rg", "ripgrep"),
    ),
    "python": ("codeinterpreter", "ipython", "runpython", "executepython", "runcode", "executecode"),
    "read_file": ("cat", "view", "viewfile", "openfile", "getfile", "readtextfile"),
    "write_file": ("createfile", "savefile", "create", "writetofile", "newfile"),
    "edit_file": ("strreplace", "replaceinfile", "applypatch", "strreplaceeditor", "replace"),
    "list_files": ("ls", "dir", "listdir", "listdirectory", "glob", "findfiles", "searchfiles"),
    "search_files": ("grep", "rg", "ripgrep", "searchtext"),
    "web_fetch": ("curl", "browse", "browser", "openurl", "visit", "geturl", "httpget"),
    "web_search": ("search", "google", "googlesearch", "searchweb", "internetsearch", "bing", "duckduckgo", "searxng"),
}

_log = logging.getLogger(__name__)


class Allow(Struct, frozen=True):
    """The tool may be used. `counted` is the permission by which, whose uses are counted: the call needs a permit.

    `reason` and `by` are those of the permission.
    """

    reason: str = ""
    by: str = ""
    counted: str = ""


class Refuse(Struct, frozen=True):
    """The tool may not be used, or (`only_so`) not in this way. `reason` is a sentence for the model and the user.

    `intended`: the tool that the call could be of in its right form. `by`: what has decided so.
    """

    reason: str
    only_so: bool = False
    intended: str = ""
    by: str = ""


class Ask(Struct, frozen=True):
    """The tool may be used once a person has approved this call. `reason` is a sentence for that person.

    `by`: what has decided so.
    """

    reason: str
    by: str = ""


Decision = Allow | Ask | Refuse
Decide = Callable[[Tool, Arguments | None], Decision]
"""Decide on a tool in general (arguments None), or with exactly these arguments."""
Current = Callable[[Tool], Tool]
"""Return a listed tool as it is classified now."""
Offer = Callable[[ToolList], ToolList]
"""Return the tools of a list that may be used at all, by the same rules as `Decide`."""


def as_listed(tool: Tool) -> Tool:
    """A Current for tools whose classification does not change."""
    return tool


def offered_by(decide: Decide) -> Offer:
    """Return an Offer that asks `decide` about each tool, each time."""
    return lambda tools: tools.part(lambda tool: not (tool.skills or isinstance(decide(tool, None), Refuse)))


class Toolbox:
    """The tools of one principal. Its rules are applied twice: to the list of tools, and before each run."""

    time_zone = ""  # of the person whose run it is, if it is known
    lacking: Mapping[str, str] = MappingProxyType({})  # why tools are missing that the settings could add, by name

    def __init__(
        self,
        tools: Iterable[Tool],
        decide: Decide,
        principal: str = "",
        offer: Offer | None = None,
        current: Current = as_listed,
    ) -> None:
        self._current = current
        self._all = tools if isinstance(tools, ToolList) else ToolList(tools)
        self._tools = self._all.by_name
        self._decide = decide
        self._offer = offer or offered_by(decide)
        self._principal = principal

    @property
    def known(self) -> ToolList:
        """All tools, those included that may not be used."""
        return self._all

    @property
    def offered(self) -> ToolList:
        """The tools that are listed to a model."""
        return self._offer(self._all)

    @property
    def usable(self) -> ToolList:
        """The tools that may be used at all, listed or not."""
        return self.offered

    async def choose(self, session: str, message: str) -> None:
        """List what fits the message that began the session: here all."""

    @property
    def offers(self) -> bool:
        """Return whether any tool is listed."""
        return bool(self.offered)

    @property
    def is_empty(self) -> bool:
        """Return True if there are no tools at all, whatever may be used."""
        return not self._tools

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """Name and JSON Schema of the parameters of each offered tool: as the parser needs them."""
        return self.offered.schemas

    def tool(self, name: str) -> Tool | None:
        """Return the tool of this name, as it is classified now."""
        tool = self._tools.get(name)
        return None if tool is None else self._current(tool)

    def is_handed(self, name: str) -> bool:
        """Return whether calls of this name are handed to the client, which runs the tool."""
        tool = self.tool(name)
        return tool is not None and tool.handed

    def changes(self, name: str) -> bool:
        """Return whether a tool of this name can do more than read; true for an unknown name."""
        tool = self.tool(name)
        return tool is None or tool.risk is not Risk.READ

    def runs_in_turn(self, name: str) -> bool:
        """Return whether calls of this name never run side by side with others."""
        tool = self.tool(name)
        return tool is not None and tool.in_turn

    def may_write(self, name: str) -> bool:
        """Return whether a tool of this name may change files of the workspace."""
        tool = self.tool(name)
        return tool is not None and tool.may_write

    def normalise_call(self, name: str, arguments: Arguments) -> tuple[str, Arguments]:
        """Return a call in the normal form that is decided on, shown and run. Idempotent.

        Markers of the tool become arguments; a call of `call_tool` becomes the call inside (`tool_search`), one of
        `read_skill` for a skill of an MCP server the call of that server's tool.
        """
        if name == READ_SKILL and isinstance(skill := arguments.get("name"), str):
            for one in self._all.of_skills:
                if skill.startswith(one.skills):
                    return one.name, {"name": skill.removeprefix(one.skills)}
        tool = self._tools.get(name)
        if tool and tool.local_time and self.time_zone and not arguments.get("time_zone"):
            arguments = {**arguments, "time_zone": self.time_zone}
        return name, tool.normalise(arguments) if tool else arguments

    def decide(self, name: str, arguments: Arguments) -> Decision:
        """Decide whether this call can be run as it is. A refusal says what to do instead."""
        tool = self.tool(name)
        if tool is None:
            near = self._near(name)
            lacking = self.lacking.get(name, "")
            if lacking and not any(_forms(name) & _forms(one) for one in near):
                return Refuse(f"No tool is called {name!r}. {lacking}", by=UNKNOWN_TOOL)
            reason = f"No tool is called {shortened(name, _NAME)!r}. {self._what_there_is(near)}"
            return Refuse(reason, intended=next(iter(near), ""), by=UNKNOWN_TOOL)
        decision = self._decide(tool, arguments)
        if isinstance(decision, Refuse) and not decision.only_so:
            if any(one.name == name for one in self.offered):  # another call of it may run
                return Refuse(f"This call of {name} is refused: {decision.reason}", by=decision.by)
            reason = f"{name} may not be used: {decision.reason} {self._what_there_is(self._near(name))}"
            return Refuse(reason, by=decision.by)
        describe_error = client_argument_error if tool.handed else argument_error
        error = describe_error(tool.name, tool.parameters, arguments)
        if error is None:
            return decision
        return Refuse(error, intended=name if error.endswith(CORRECT) else "", by=ARGUMENTS)

    async def run(
        self, call_name: str, arguments: Arguments, context: Context, permit: Permit | None = None
    ) -> AsyncGenerator[Progress | Result, None]:
        """Run a call. Always ends with exactly one Result; never raises for what a model wrote or a tool did.

        What needs approval needs a `permit` for exactly this call, too; it is used up here.
        """
        decision = self.decide(call_name, arguments)
        needs_permit = isinstance(decision, Ask) or (isinstance(decision, Allow) and decision.counted)
        if needs_permit and not await self._is_permitted(permit, call_name, arguments, context):
            decision = Refuse(f"{call_name} was not run: this call is not approved. {decision.reason}")
        if isinstance(decision, Allow | Ask) and context.withheld:
            decision = Refuse(f"{call_name} was not run: {context.withheld}")
        if isinstance(decision, Refuse):
            yield Result(ok=False, text=decision.reason)
            return
        result = _failed(f"{call_name} ended without a result.", OTHERWISE)
        try:
            tool = self._tools[call_name]
            async with aclosing(tool.run(tool.with_paths(arguments, context.workspace), context)) as updates:
                async for update in updates:
                    if isinstance(update, Result):
                        # Yielded after the tool's clean-up, whose failure would be the result.
                        result = update
                        break
                    yield update
        except ToolFailed as failure:
            result = Result(ok=False, text=str(failure), advice=failure.advice)
        except Exception as error:  # noqa: BLE001 - one of three allowed: a tool that breaks must not end the run
            _log.exception("the tool %s broke", call_name)
            result = _failed(f"{call_name} broke: {shortened(repr(error), 500)}.", OTHERWISE)
        yield result

    async def binding(self, name: str, arguments: Arguments, workspace: Path, secrets: str = "") -> str:
        """Return what an approval of this call is bound to, besides its arguments: a state, and its secrets."""
        tool = self._tools.get(name)
        if tool is None or tool.binds is binds_nothing:
            return secrets
        state = await asyncio.to_thread(tool.binds, arguments, workspace)
        return f"{state}\n{secrets}" if secrets else state

    async def _is_permitted(self, permit: Permit | None, name: str, arguments: Arguments, context: Context) -> bool:
        if permit is None:
            return False
        binding = await self.binding(name, arguments, context.workspace, context.bound)
        return permit.take(fingerprint(self._principal, name, arguments, binding))

    def _near(self, name: str) -> list[str]:
        """Return the names of tools that may be used, listed or not, that a call may have meant; the nearest first."""
        listed = self.offered
        hidden = () if listed is (usable := self.usable) else usable
        return _near_names(
            shortened(name, _NAME), dict.fromkeys(tool.name for tools in (listed, hidden) for tool in tools)
        )

    def _named(self, name: str) -> str:
        """Return a tool's name as hints have it."""
        return name

    def _what_there_is(self, near: Sequence[str]) -> str:
        names = [tool.name for tool in self.offered]
        if not names:
            return "There are no tools: answer without them."
        if near:
            return f"There are: {', '.join(map(self._named, near))}."
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"There are: {', '.join(names[:_NAMED])}{more}."


def _failed(message: str, advice: str) -> Result:
    return Result(ok=False, text=message + advice, advice=advice)


def _near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that are written alike, that have this one behind their server, or else that mean the same.

    They only serve to name the right one, never to run another.
    """
    names, called = list(names), _forms(name)
    whole = [one for one in names if loose(one) == loose(name)]
    behind = [one for one in names if called & _forms(one)]
    meant = [one for one in names if loose(name) in ALSO_CALLED.get(one, ())]
    if not (whole or behind):
        alike = difflib.get_close_matches(name, list(islice(names, _MOST_COMPARED)), n=_NEAREST)
        return alike or meant
    return list(dict.fromkeys([*whole, *behind, *meant]))[:_MOST_NAMED]


def _forms(name: str) -> frozenset[str]:
    """Return a name without its separators: whole, without `mcp__`, and the part behind its server."""
    plain = _HASHED.sub("", name).removeprefix(_MCP)
    tool = plain.partition("__")[2]
    return frozenset(filter(None, map(loose, (name, plain, tool))))

"""Tool search, for more MCP tools than fit into a model's context: `search_tools` finds them, `call_tool` calls them.

The list of tools then never changes within a conversation, so that prefix caches stay valid. Neither tool adds rights:
a call of `call_tool` is replaced by the call inside before it is authorised.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from parsing import Arguments
from parsing.aliases import renamed
from tools.base.outcome import Progress, Result
from tools.base.permit import Permit
from tools.base.rights import Risk, Role
from tools.base.texts import shortened
from tools.mcp.tool_index import Index, Meaning, ranked, shared
from tools.tool import NO_TOOLS, Context, Tool, ToolList, answering, tokens_of
from tools.toolbox import Allow, Current, Decide, Decision, Offer, Toolbox, as_listed

V = TypeVar("V")
FEW = 6  # tools that fit the message
MOST_OF_SERVER = 4  # of these, if others have some that fit
LATELY = 3  # tools that were used lately
MOST_SESSIONS, MOST_PRINCIPALS = 4096, 512  # that are remembered
SEARCH, CALL = "search_tools", "call_tool"
FOUND = 6  # tools in the result of one search
MAX_DESCRIPTION, MAX_SCHEMA, MAX_SOURCES = 600, 3000, 300  # characters
_QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
_CALL = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
}


def toolbox_within(
    limit: float,
    tools: Iterable[Tool],
    decide: Decide,
    principal: str,
    sources: Mapping[str, Collection[str]],
    *,
    offer: Offer | None = None,
    choices: ToolChoices | None = None,
    later: ToolList | None = None,
    current: Current = as_listed,
) -> Toolbox:
    """Build a toolbox that lists the tools of `sources` (server -> names) only if they fit into `limit` tokens.

    If they do not, each session is shown the few that fit it, by `choices`. `later`: the tools that may be used once a
    person has accepted the run's plan, for which there has to be room then.
    """
    whole = Toolbox(tools, decide, principal, offer, current)
    if not sources:
        return whole
    names = frozenset(name for those in sources.values() for name in those)
    bulky = [tool for tool in (whole.offered if later is None else later) if tool.name in names]
    if tokens_of(bulky) <= limit:
        return whole
    hidden = frozenset(tool.name for tool in bulky)
    return SearchedToolbox(whole, hidden, sources, choices=choices, limit=limit, later=later)


class SearchedToolbox(Toolbox):
    """A toolbox whose `hidden` tools are as usable as the others, but not listed; but for those that were chosen."""

    def __init__(
        self,
        whole: Toolbox,
        hidden: frozenset[str],
        sources: Mapping[str, Collection[str]] | None = None,
        *,
        choices: ToolChoices | None = None,
        limit: float = 0,
        later: ToolList | None = None,
    ) -> None:
        self._choices = choices
        self._limit = limit
        self._unlisted = hidden
        self._sources = sources or {}
        used = sorted(source for source, those in self._sources.items() if hidden.intersection(those))
        of = f" (servers: {', '.join(used)})" if used else ""
        description = f"Find more tools{shortened(of, MAX_SOURCES)} by what they do."
        self._meta_tools = (
            Tool(SEARCH, description, _QUERY, Risk.READ, answering(self._search), role=Role.GUEST),
            Tool(
                CALL, f"Call a tool that {SEARCH} found.", _CALL, Risk.READ, answering(_explain_usage), role=Role.GUEST
            ),
        )

        def decided(tool: Tool, arguments: Arguments | None) -> Decision:
            return Allow() if tool.name in (SEARCH, CALL) else whole._decide(tool, arguments)

        self._found = ToolList(tool for tool in whole._all if tool.name not in (SEARCH, CALL))
        super().__init__([*self._found, *self._meta_tools], decided, whole._principal, current=whole._current)
        self._offer_found = whole._offer
        self.lacking = whole.lacking
        self._known_usable: tuple[ToolList, ToolList] = NO_TOOLS, NO_TOOLS
        self.hidden = hidden
        self._index: Index | None = None
        self._later = later

    @property
    def offered(self) -> ToolList:
        return self.usable.part(lambda tool: tool.name not in self._unlisted, self._unlisted)

    async def choose(self, session: str, message: str) -> None:
        """List the hidden tools that fit the message which began the session: the same in all its runs."""
        if self._choices is None:
            return
        tools = [tool for tool in self._later or self.usable if tool.name in self.hidden]
        best = partial(self._best, tools, message)
        chosen = await self._choices.choose(session, self._principal, self._limit, tools, best)
        self._unlisted = self.hidden - chosen

    def run(
        self, call_name: str, arguments: Arguments, context: Context, permit: Permit | None = None
    ) -> AsyncGenerator[Progress | Result, None]:
        if self._choices and call_name in self.hidden:
            self._choices.note_use(self._principal, call_name)
        return super().run(call_name, arguments, context, permit)

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """The schemas of hidden tools, too: a model may call a tool that it has found directly."""
        return self.usable.schemas

    @property
    def usable(self) -> ToolList:
        """The tools that may be used, and the two above: the same list while that stays the same."""
        offered = self._offer_found(self._found)
        if offered is not self._known_usable[0]:
            self._known_usable = offered, ToolList([*offered, *self._meta_tools])
        return self._known_usable[1]

    def normalise_call(self, name: str, arguments: Arguments) -> tuple[str, Arguments]:
        if name == CALL and isinstance(inner := arguments.get("name"), str) and inner != CALL:
            given = arguments.get("arguments", {key: value for key, value in arguments.items() if key != "name"})
            if isinstance(given, dict):
                tool = self.tool(inner)
                name, arguments = inner, renamed(given, tool.parameters)[0] if tool else given
        return super().normalise_call(name, arguments)

    def _named(self, name: str) -> str:
        return f"{name} (call it with {CALL})" if name in self._unlisted else name

    async def _search(self, arguments: Arguments, _: Context) -> str:
        usable = self._hidden_tools
        found = (await self._ranked(usable, arguments["query"]))[:FOUND]
        if not found:
            return f"None of {len(usable)} tools fits. Try other words, for what the tool would do."
        lines = [f"{len(found)} of {len(usable)} tools, the best first. Use them with {CALL}.", *map(_describe, found)]
        return "\n\n".join(lines)

    @property
    def _hidden_tools(self) -> list[Tool]:
        return [tool for tool in self.usable if tool.name in self.hidden]

    async def _best(self, tools: list[Tool], message: str) -> list[Tool]:
        return list(islice(shared(await self._ranked(tools, message), self._sources, MOST_OF_SERVER), FEW))

    async def _ranked(self, tools: list[Tool], text: str) -> list[Tool]:
        index = await asyncio.to_thread(self._index_of, tools)  # 400 tools take 80 ms
        return await ranked(index, text, self._choices.meaning if self._choices else None)

    def _index_of(self, usable: list[Tool]) -> Index:
        if self._index is None or self._index.tools != usable:  # a session may have lost some since
            self._index = Index(usable)
        return self._index


async def _explain_usage(_: Arguments, __: Context) -> str:
    return f'Give the name of a tool that {SEARCH} found, and its arguments: {{"name": ..., "arguments": {{...}}}}.'


def _describe(tool: Tool) -> str:
    schema = shortened(json.dumps(tool.parameters, ensure_ascii=False, separators=(",", ":")), MAX_SCHEMA)
    return f"{tool.name}: {shortened(tool.description, MAX_DESCRIPTION)}\narguments: {schema}"


class ToolChoices:
    """The few searched tools that each session is shown: chosen once, so that its prompt stays the same.

    They fit the message that began the session, or were used lately by its principal. The list of a session changes
    only when the server was restarted, or has forgotten it: that costs a prefix cache, and no tool.
    """

    def __init__(self, meaning: Meaning | None = None) -> None:
        self.meaning = meaning
        self._chosen: dict[str, frozenset[str]] = {}
        self._used: dict[str, tuple[str, ...]] = {}

    def note_use(self, principal: str, tool: str) -> None:
        before = self._used.pop(principal, ())
        _put(self._used, principal, (tool, *(name for name in before if name != tool))[:LATELY], MOST_PRINCIPALS)

    async def choose(
        self,
        session: str,
        principal: str,
        limit: float,
        tools: Sequence[Tool],
        best: Callable[[], Awaitable[Iterable[Tool]]],
    ) -> frozenset[str]:
        """Return the names of tools to show in the session, of about `limit` tokens; `best` finds those that fit."""
        chosen = self._chosen.pop(session, None)
        if chosen is None:
            lately = self._used.get(principal, ())
            by_name = {tool.name: tool for tool in tools}
            wanted = [*await best(), *(by_name[name] for name in lately if name in by_name)]
            chosen = frozenset(tool.name for tool in _within(limit, wanted))
        _put(self._chosen, session, chosen, MOST_SESSIONS)
        return chosen


def _within(limit: float, tools: Iterable[Tool]) -> list[Tool]:
    """Return those of the tools, in their order, that fit beside those before them."""
    kept: list[Tool] = []
    for tool in tools:
        if tool not in kept and tokens_of([*kept, tool]) <= limit:
            kept.append(tool)
    return kept


def _put(kept: dict[str, V], key: str, value: V, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]

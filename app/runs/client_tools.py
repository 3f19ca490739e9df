"""Tools that the client runs itself: offered to the model beside ours, their calls handed over."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Sequence

from msgspec import Struct, field

from app.runs.run_options import ClientTool
from parsing import Arguments
from tools.base.outcome import ToolFailed
from tools.base.rights import Risk, Role
from tools.tool import Context, Tool, ToolList, answering

MOST_LISTS = 64
MOST_CHARACTERS = 4 << 20  # of the declarations in all kept lists


async def _refuse_to_run(_: Arguments, __: Context) -> str:
    raise ToolFailed("The client runs this tool, not the server.")


def tool_of(declared: ClientTool) -> Tool:
    """Return the row of a client's tool."""
    return Tool(
        declared.name,
        declared.description,
        declared.parameters,
        Risk.WRITE,
        answering(_refuse_to_run),
        role=Role.GUEST,
        approval="never",
        confined=True,
        handed=True,
    )


class JoinedTools(Struct, frozen=True):
    """The own tools, and what they are together with a client's, whose declaration has so many characters."""

    own: ToolList
    tools: ToolList
    characters: int


class ClientToolLists(Struct):
    """Lists of tools with those of a client: made once for requests that declare the same, as one client's do."""

    _known: dict[tuple[int, bytes], JoinedTools] = field(default_factory=dict)

    def joined(self, own: ToolList, declared: Sequence[ClientTool]) -> ToolList:
        """The own tools and the declared ones. Of two with one name the client's is offered."""
        if not declared:
            return own
        # A tenth of the time of JSON, for declarations that may be a megabyte; version 2 has no references.
        text = marshal.dumps([[one.name, one.description, one.parameters] for one in declared], 2)
        key = id(own), hashlib.sha256(text).digest()
        known = self._known.get(key)
        if known is None or known.own is not own:
            by_name = {one.name: one for one in declared}  # servers refuse two of one name
            kept = [tool for tool in own if tool.name not in by_name]
            known = JoinedTools(own, ToolList([*kept, *map(tool_of, by_name.values())]), len(text))
            self._keep(key, known)
        return known.tools

    def _keep(self, key: tuple[int, bytes], joined: JoinedTools) -> None:
        self._known.pop(key, None)
        room = MOST_CHARACTERS - joined.characters
        if room < 0:
            return
        while len(self._known) >= MOST_LISTS or sum(one.characters for one in self._known.values()) > room:
            del self._known[next(iter(self._known))]
        self._known[key] = joined

"""Tools that the client runs itself: offered to the model beside ours, their calls handed over."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from msgspec import Struct, field

from app.runs.run_options import ClientTool
from parsing import Arguments
from tools.base.outcome import ToolFailed
from tools.base.rights import Risk, Role
from tools.base.schemas import schema_error
from tools.tool import Context, Tool, ToolList, answering

ANY_OBJECT = {"type": "object"}
MOST_LISTS = 64


async def _refuse_to_run(_: Arguments, __: Context) -> str:
    raise ToolFailed("The client runs this tool, not the server.")


def tool_of(declared: ClientTool) -> Tool:
    """The row of a client's tool. A schema that cannot be used allows any object: the client checks for itself."""
    schema = declared.parameters if schema_error(declared.parameters) is None else ANY_OBJECT
    return Tool(
        declared.name,
        declared.description,
        schema,
        Risk.WRITE,
        answering(_refuse_to_run),
        role=Role.GUEST,
        approval="never",
        confined=True,
        handed=True,
    )


class ClientToolLists(Struct):
    """Lists of tools with those of a client: made once for requests that declare the same, as one client's do."""

    _known: dict[tuple[int, bytes], tuple[ToolList, ToolList]] = field(default_factory=dict)

    def joined(self, own: ToolList, declared: Sequence[ClientTool]) -> ToolList:
        """The own tools and the declared ones. Of two with one name the client's is offered."""
        if not declared:
            return own
        text = json.dumps([[one.name, one.description, one.parameters] for one in declared])
        key = id(own), hashlib.sha256(text.encode()).digest()
        known = self._known.get(key)
        if known is None or known[0] is not own:
            names = {one.name for one in declared}
            kept = [tool for tool in own if tool.name not in names]
            known = own, ToolList([*kept, *map(tool_of, declared)])
            while len(self._known) >= MOST_LISTS:
                del self._known[next(iter(self._known))]
            self._known[key] = known
        return known[1]

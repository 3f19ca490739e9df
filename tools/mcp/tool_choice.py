"""Of the tools that are searched, the few that each session is shown: chosen once, so that its prompt stays the same.

They fit the message that began the session, or were used lately by its principal. The list of a session changes only
when the server was restarted, or has forgotten it: that costs a prefix cache, and no tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tools.tool import Tool, tokens_of

V = TypeVar("V")
FEW = 6  # tools that fit the message
LATELY = 3  # tools that were used lately
MOST_SESSIONS, MOST_PRINCIPALS = 4096, 512  # that are remembered


class ToolChoices:
    """The choices of all sessions on this server, and the tools that were used last."""

    def __init__(self) -> None:
        self._chosen: dict[str, frozenset[str]] = {}
        self._used: dict[str, tuple[str, ...]] = {}

    def note_use(self, principal: str, tool: str) -> None:
        before = self._used.pop(principal, ())
        _put(self._used, principal, (tool, *(name for name in before if name != tool))[:LATELY], MOST_PRINCIPALS)

    def choose(
        self, session: str, principal: str, limit: float, tools: Sequence[Tool], best: Callable[[int], Iterable[Tool]]
    ) -> frozenset[str]:
        """Return the names of tools to show in the session, of about `limit` tokens; `best` finds so many that fit."""
        chosen = self._chosen.pop(session, None)
        if chosen is None:
            lately = self._used.get(principal, ())
            by_name = {tool.name: tool for tool in tools}
            wanted = [*best(FEW), *(by_name[name] for name in lately if name in by_name)]
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

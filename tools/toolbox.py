"""The one dispatcher: whatever a model wrote, in whatever dialect, is looked up, allowed, checked and run here."""

from __future__ import annotations

import difflib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from parsing import Arguments
from tools.schemas import complaint_about
from tools.tool import Context, Progress, Result, Tool, ToolFailed

_NEAREST = 3
_NAMED = 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Allow:
    """The tool may be used."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The tool may not be used. `reason` is a sentence for the model and for people."""

    reason: str


Decision = Allow | Refuse
Decide = Callable[[Tool], Decision]


class Toolbox:
    """The tools of one principal. `decide` is asked twice: what to offer, and again before each run."""

    def __init__(self, tools: Sequence[Tool], decide: Decide) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._decide = decide

    @property
    def offered(self) -> list[Tool]:
        """The tools that a model is told about."""
        return [tool for tool in self._tools.values() if self._decide(tool) == Allow()]

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """Name and JSON Schema of the parameters of each offered tool: what the parser needs."""
        return {tool.name: tool.parameters for tool in self.offered}

    def objection(self, name: str, arguments: Arguments) -> str | None:
        """Why this call may not or cannot run, and what to do instead; None when it can."""
        tool = self._tools.get(name)
        if tool is None:
            return f"No tool is called {_shortened(name)!r}. {self._what_there_is(name)}"
        decision = self._decide(tool)
        if isinstance(decision, Refuse):
            return f"{name} may not be used: {decision.reason} {self._what_there_is(name)}"
        return complaint_about(tool.name, tool.parameters, arguments)

    async def run(
        self, call_name: str, arguments: Arguments, context: Context
    ) -> AsyncGenerator[Progress | Result, None]:
        """Run a call. Always ends with exactly one Result; never raises for what a model wrote or a tool did."""
        if objection := self.objection(call_name, arguments):
            yield Result(ok=False, text=objection)
            return
        result = Result(ok=False, text=f"{call_name} ended without a result. Try another way.")
        try:
            async with aclosing(self._tools[call_name].run(arguments, context)) as news:
                async for seen in news:
                    if isinstance(seen, Result):
                        # Told only when the tool has cleaned up, which may fail and then is the result.
                        result = seen
                        break
                    yield seen
        except ToolFailed as failure:
            result = Result(ok=False, text=str(failure))
        except Exception as error:  # noqa: BLE001 - one of the house's two: a tool that breaks must not end the run
            _log.exception("the tool %s broke", call_name)
            result = Result(ok=False, text=f"{call_name} broke: {_shortened(repr(error), 500)}. Try another way.")
        yield result

    def _what_there_is(self, name: str) -> str:
        names = [tool.name for tool in self.offered]
        if not names:
            return "There are no tools: answer without them."
        if near := difflib.get_close_matches(_shortened(name), names, n=_NEAREST):
            return f"There are: {', '.join(near)}."
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"There are: {', '.join(names[:_NAMED])}{more}."


def _shortened(text: str, characters: int = 80) -> str:
    return text if len(text) <= characters else text[:characters] + "…"

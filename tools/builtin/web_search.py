"""The tool `web_search`: results of the search engine that the operator has configured, an HTTP API or an MCP tool."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from parsing import Arguments
from tools.base.escape_invisible import visible
from tools.base.outcome import Progress, Result, ToolFailed
from tools.base.schemas import argument_error
from tools.base.texts import encoded
from tools.builtin.outbound_effects import query_sent
from tools.tool import Context, Run, Tool, answering
from tools.web.search_client import GO_ON, SearchEngine
from tools.web.search_results import MAX_RESULTS, as_text

USUAL_RESULTS = 5
MAX_QUERY = 400  # characters; the strictest of the APIs takes no more
NOT_CONFIGURED = f"No search engine is configured; this server's operator can set search_kind or search_url. {GO_ON}"
# Names of the parameters of other programs' search tools.
_QUERIES = (
    *("query", "q", "search_query", "searchQuery", "search_term"),
    *("keywords", "search", "text", "question", "input"),
)
_COUNTS = ("count", "num_results", "numResults", "max_results", "maxResults", "limit", "num", "n", "top_k")


class SearchBackend(Struct, frozen=True):
    """A receiver of queries. `place` names it for the person who approves; `through` is the MCP tool that gets them."""

    run: Run
    place: str
    through: str = ""


def with_backend(row: Tool, backend: SearchBackend) -> Tool:
    """Return the tool of the catalogue's row that searches with this backend."""
    return replace(row, run=backend.run, leaves=partial(query_sent, backend.place), through=backend.through)


async def not_configured(_: Arguments, __: Context) -> str:
    raise ToolFailed(NOT_CONFIGURED)


def http_backend(engine: SearchEngine) -> SearchBackend:
    """Build the backend of an HTTP API."""

    async def search(arguments: Arguments, context: Context) -> str:
        query, count = _asked(arguments)
        answer = await engine.search(query, count, context.time_limit_s)
        if answer.results:
            return as_text(answer.results)
        if answer.failures:
            return f"Nothing was found, and these engines did not answer: {answer.failures}. Search again later."
        return "Nothing was found. Use fewer or other words."

    return SearchBackend(answering(search), engine.place)


def mcp_backend(name: str, tools: Callable[[], Sequence[Tool]]) -> SearchBackend:
    """Build the backend of an MCP server's tool. `tools` are those that may be called now."""

    async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        tool = next((one for one in tools() if one.name == name), None)
        if tool is None:
            raise ToolFailed(
                f"The MCP tool {name}, which searches here, is not there: its server may be starting, held back or "
                f"off. The operator of this server can look at GET /mcp/servers. {GO_ON}"
            )
        given = _translated(tool, *_asked(arguments))
        async with aclosing(tool.run(given, context)) as updates:
            async for update in updates:
                yield update

    return SearchBackend(run, f"The MCP tool {name}", through=name)


def _asked(arguments: Arguments) -> tuple[str, int]:
    """Return query and number of results. Raises ToolFailed."""
    query = " ".join(visible(arguments["query"]).split())
    encoded(query)  # refuses what cannot be sent
    if not query:
        raise ToolFailed("query is empty", ": write the words to search for.")
    if len(query) > MAX_QUERY:
        raise ToolFailed(f"query has {len(query):,} characters", f": write at most {MAX_QUERY}.")
    return query, min(int(arguments.get("count", USUAL_RESULTS)), MAX_RESULTS)


def _translated(tool: Tool, query: str, count: int) -> dict[str, Any]:
    """Return the arguments of another search tool. Raises ToolFailed when a query alone does not suffice."""
    properties = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    alone = required if len(required) == 1 else ()
    key = next((name for name in (*_QUERIES, *alone) if name in properties), "query")
    given: dict[str, Any] = {key: query}
    if counted := next((name for name in _COUNTS if name in properties), ""):
        given[counted] = count
    if argument_error(tool.name, tool.parameters, given) is None:
        return given
    if error := argument_error(tool.name, tool.parameters, {key: query}):
        raise ToolFailed(f"{error} The operator of this server has to name another tool in search_tool. {GO_ON}")
    return {key: query}  # its count may be bounded otherwise

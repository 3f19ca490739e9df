"""The tool `web_search`, with the search engine of the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.config.search_settings import MCP, SearchSettings
from tools.builtin.web_search import http_backend, mcp_backend, with_backend
from tools.catalogue import WEB_SEARCH
from tools.tool import Tool
from tools.web.search_client import SearchEngine


def search_tools(settings: SearchSettings, mcp_tools: Callable[[], Sequence[Tool]]) -> Sequence[Tool]:
    """Return `web_search` if a search engine is configured."""
    kind = settings.search_engine
    if kind is None:
        return ()
    if kind == MCP:
        return (with_backend(WEB_SEARCH, mcp_backend(settings.search_tool or "", mcp_tools)),)
    key = settings.search_key.get_secret_value() if settings.search_key else ""
    engine = SearchEngine(kind, settings.search_row, settings.search_url or "", key)
    return (with_backend(WEB_SEARCH, http_backend(engine)),)

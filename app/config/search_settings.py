"""Settings of the web search: which search engine the tool `web_search` uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from pydantic import BaseModel, SecretStr, field_validator

from app.core.settings_fields import setting, web_address
from tools.base.patterns import lazy_pattern
from tools.web.search_apis import SEARCH_APIS, SEARXNG, SearchApi, address_of

MCP, CUSTOM = "mcp", "custom"
KINDS = (*SEARCH_APIS, CUSTOM, MCP)
HEADER = lazy_pattern(r"[A-Za-z0-9_-]+")
AN_ADDRESS = "an http or https URL without a password in it, such as http://127.0.0.1:8888"


class SearchSettings(BaseModel, defer_build=True):
    """Web search."""

    search_kind: str | None = setting(
        None,
        "search engine of the tool web_search (default: by the other settings, else none)",
        ", ".join(KINDS),
    )
    search_url: str | None = setting(None, "base URL of the search engine (default: the API's own)", AN_ADDRESS)
    search_key: SecretStr | None = setting(
        None, "API key of the search engine; prefer the environment", "printable ASCII without spaces"
    )
    search_tool: str | None = setting(
        None, "tool of an MCP server that searches", "a name of GET /tools, such as mcp__websearch__search"
    )
    search_api: Mapping[str, Any] = setting(
        {}, "a search API that is not built in", 'a table such as {url = "https://api.example.com", results = "items"}'
    )

    @field_validator("search_kind")
    @classmethod
    def _known_kind(cls, value: str | None) -> str | None:
        if value is not None and (value := value.lower()) not in KINDS:
            raise ValueError("is no search engine")
        return value

    @property
    def search_engine(self) -> str | None:
        """The kind in force; None if no search engine is configured."""
        if self.search_kind or not (self.search_tool or self.search_api or self.search_url):
            return self.search_kind
        return MCP if self.search_tool else CUSTOM if self.search_api else SEARXNG

    @property
    def search_row(self) -> SearchApi:
        """The row of the API in force. Raises msgspec.ValidationError."""
        if self.search_engine == CUSTOM:
            return msgspec.convert(dict(self.search_api), SearchApi)
        return SEARCH_APIS[self.search_engine or SEARXNG]


def search_problems(settings: SearchSettings) -> Iterator[str]:
    """Contradictions between these settings, a sentence each."""
    kind = settings.search_engine
    if kind is None:
        if settings.search_key:
            yield f"search_key belongs to no search engine: set search_kind ({', '.join(KINDS)})."
        return
    if settings.search_tool and kind != MCP:
        yield f"search_tool is for search_kind mcp, and that is {kind}: remove one of them."
    if settings.search_api and kind != CUSTOM:
        yield f"search_api is for search_kind custom, and that is {kind}: remove one of them."
    if kind != MCP:
        yield from _api_problems(settings, kind)
    elif not settings.search_tool:
        yield "search_kind is mcp: set search_tool to the name of the tool, such as mcp__websearch__search."
    elif settings.search_url or settings.search_key:
        yield "search_url and search_key are not for search_kind mcp: remove them; mcp.json has the server's."


def _api_problems(settings: SearchSettings, kind: str) -> Iterator[str]:
    try:
        row = settings.search_row
        web_address(address_of(row, settings.search_url or ""))
    except msgspec.ValidationError as wrong:
        yield f"search_api cannot be used: {wrong}. See `An API of your own` in docs/tools.md for its fields."
        return
    except ValueError:
        yield f"search_kind is {kind}, and there is no address for it: set search_url, such as http://127.0.0.1:8888."
        return
    if row.key_header and not HEADER.fullmatch(row.key_header):
        yield "search_api: key_header is no name of a header. Write letters, digits and hyphens, such as X-API-Key."
    if row.method == "GET" and not all(isinstance(value, str | int | float) for value in row.fixed.values()):
        yield 'search_api: fixed holds lists or tables, which only a POST can send. Add method = "POST".'
    if settings.search_key and not row.takes_key:
        yield "search_key is not used: name its place in search_api with key_header or key_parameter."
    if row.takes_key and not row.keyless and not settings.search_key:
        yield f"search_kind is {kind}, which needs a key: set search_key, best as DRAGOMAN_SEARCH_KEY."

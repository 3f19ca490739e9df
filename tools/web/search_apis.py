"""The table of search APIs: a row says how a query is sent, and where in the JSON of the answer the results are.

The formats: https://docs.searxng.org/dev/search_api.html,
https://api-dashboard.search.brave.com/api-reference/web/search/get,
https://docs.tavily.com/documentation/api-reference/endpoint/search, https://serper.dev/playground,
https://exa.ai/docs/reference/search.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct, field

SEARXNG = "searxng"


class SearchApi(Struct, frozen=True, forbid_unknown_fields=True):
    """One HTTP API; a row of the operator's own has the same fields.

    `query` and `count` name parameters, which a GET sends in the URL and a POST as JSON; `fixed` are sent with them.
    The key goes into `key_header`, behind `key_prefix`, or into `key_parameter`; a `keyless` one works without.
    `results`, and in each of them the other three, are paths such as `web.results`. `failures` is where the answer
    lists engines that did not answer, as lists of texts.
    """

    url: str = ""
    path: str = ""
    method: Literal["GET", "POST"] = "GET"
    query: str = "q"
    count: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    key_header: str = ""
    key_prefix: str = ""
    key_parameter: str = ""
    keyless: bool = False
    results: str = "results"
    result_title: str = "title"
    result_url: str = "url"
    result_text: str = "content"
    failures: str = ""

    @property
    def takes_key(self) -> bool:
        return bool(self.key_header or self.key_parameter)


SEARCH_APIS: Mapping[str, SearchApi] = MappingProxyType(
    {
        SEARXNG: SearchApi(
            path="/search",
            fixed={"format": "json"},
            key_header="Authorization",  # of a proxy before it: SearXNG itself has no keys
            key_prefix="Bearer ",
            keyless=True,
            failures="unresponsive_engines",
        ),
        "brave": SearchApi(
            "https://api.search.brave.com/res/v1",
            "/web/search",
            count="count",
            fixed={"result_filter": "web", "text_decorations": False},
            key_header="X-Subscription-Token",
            results="web.results",
            result_text="description",
        ),
        "tavily": SearchApi(
            "https://api.tavily.com",
            "/search",
            "POST",
            "query",
            "max_results",
            key_header="Authorization",
            key_prefix="Bearer ",
        ),
        "serper": SearchApi(
            "https://google.serper.dev",
            "/search",
            "POST",
            count="num",
            key_header="X-API-KEY",
            results="organic",
            result_url="link",
            result_text="snippet",
        ),
        "exa": SearchApi(
            "https://api.exa.ai",
            "/search",
            "POST",
            "query",
            "numResults",
            fixed={"contents": {"highlights": True}},
            key_header="x-api-key",
            result_text="highlights",
        ),
    }
)


def address_of(api: SearchApi, url: str = "") -> str:
    """Return the URL that queries are sent to: a base gets the path of the row, if it does not end in it."""
    base = (url or api.url).rstrip("/")
    return base if api.path and base.endswith(api.path) else base + api.path

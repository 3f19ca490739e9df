"""One search with an HTTP API: the request, and an error that says what to do for each way in which it can fail.

The operator has configured the address, which may be private. A redirect is never followed: it would carry the key and
the query to an address that is not configured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any

import httpx2
from msgspec import Struct

from tools.base.outcome import ToolFailed
from tools.web.bodies import ACCEPT_ENCODING, Connect, UnknownPacking, connect, is_about_tls, read_body, reason_of
from tools.web.search_apis import SEARXNG, SearchApi, address_of
from tools.web.search_results import Answer, UnfitAnswer, error_message, read_answer
from tools.web.url_target import shown

GO_ON = "Go on without searching, and tell the person what is wrong."
_HEADERS = {"User-Agent": "dragoman (web_search)", "Accept": "application/json", "Accept-Encoding": ACCEPT_ENCODING}
_KEY = "it does not accept the key. The operator of this server can correct search_key"
_SPENT = "its quota is used up. The operator of this server can raise it, or choose another search engine"
_BUSY = "it gets too many searches. Wait before you search again, and search less"
_MISSING = "nothing is there. The operator of this server can correct search_url"
_ADVICE: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: _KEY,
    HTTPStatus.PAYMENT_REQUIRED: _SPENT,
    HTTPStatus.FORBIDDEN: _KEY,
    HTTPStatus.NOT_FOUND: _MISSING,
    HTTPStatus.METHOD_NOT_ALLOWED: _MISSING,
    HTTPStatus.TOO_MANY_REQUESTS: _BUSY,
    432: _SPENT,  # Tavily: https://docs.tavily.com/documentation/api-reference/endpoint/search
    433: _SPENT,
}
_ADVICE_BY_KIND: Mapping[tuple[str, int], str] = {
    # https://docs.searxng.org/admin/settings/settings_search.html
    (SEARXNG, HTTPStatus.FORBIDDEN): "it offers no JSON. Its operator has to add json to search.formats in its "
    "settings.yml, and restart it",
    # https://docs.searxng.org/admin/searx.limiter.html
    (SEARXNG, HTTPStatus.TOO_MANY_REQUESTS): "its limiter refuses this server. Its operator can let it pass in "
    "limiter.toml, or turn off server.limiter in settings.yml; or wait before you search again",
}


class SearchLimits(Struct, frozen=True):
    """Limits of one search. `bytes` counts decompressed bytes."""

    seconds: float = 20.0
    connect_s: float = 10.0
    bytes: int = 2_000_000


class SearchEngine:
    """A configured API. `url` replaces the base of the row."""

    def __init__(
        self,
        kind: str,
        api: SearchApi,
        url: str = "",
        key: str = "",
        *,
        limits: SearchLimits | None = None,
        connect: Connect = connect,
    ) -> None:
        self._kind = kind
        self._api = api
        self._url = httpx2.URL(address_of(api, url))
        self._key = key
        self._limits = limits or SearchLimits()
        self._connect = connect

    @property
    def place(self) -> str:
        """The host that gets the queries."""
        return self._url.netloc.decode("ascii")

    async def search(self, query: str, count: int, time_limit_s: float) -> Answer:
        """Return at most `count` results. Raises ToolFailed."""
        seconds = min(self._limits.seconds, time_limit_s)
        try:
            async with asyncio.timeout(seconds):
                body = await self._body(query, count)
                return await asyncio.to_thread(read_answer, body, self._api, count)
        except TimeoutError as error:
            raise ToolFailed(
                f"The search engine {self.place} has not answered within {seconds:g} s.",
                " Search again once, or go on without searching.",
            ) from error
        except UnfitAnswer as unfit:
            raise self._failed(
                f"what it answers {unfit}. The operator of this server can check search_kind and search_url"
            ) from unfit
        except UnknownPacking as packing:
            raise self._failed(f"it packs its answer as {shown(packing)}, which was not requested") from packing
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            what = "no safe connection to it can be made" if is_about_tls(error) else "it cannot be reached"
            raise self._failed(
                f"{what} ({reason_of(error)}). The operator of this server can check search_url"
            ) from error
        except httpx2.HTTPError as error:
            raise ToolFailed(
                f"The search engine {self.place} broke off or does not speak HTTP ({reason_of(error)}).",
                " Search again once, or go on without searching.",
            ) from error

    async def _body(self, query: str, count: int) -> bytes:
        timeout = httpx2.Timeout(self._limits.seconds, connect=self._limits.connect_s)
        async with (
            httpx2.AsyncClient(
                transport=await self._connect(), timeout=timeout, headers=_HEADERS, trust_env=False
            ) as client,
            self._sent(client, query, count) as response,
        ):
            if response.has_redirect_location:
                raise self._failed(
                    f"it redirects to {shown(response.headers['location'])}, where nothing was sent. If that is the "
                    "same search engine, the operator of this server can set search_url to it"
                )
            body, cut = await read_body(response, self._limits.bytes)
            if response.status_code != HTTPStatus.OK:
                raise self._refused(response.status_code, body)
            if cut:
                raise self._failed(f"it answers with more than {self._limits.bytes:,} bytes")
            return body

    def _sent(self, client: httpx2.AsyncClient, query: str, count: int) -> AbstractAsyncContextManager[httpx2.Response]:
        api, headers = self._api, {}
        parameters: dict[str, Any] = {**api.fixed, api.query: query}
        if api.count:
            parameters[api.count] = count
        if self._key and api.key_parameter:
            parameters[api.key_parameter] = self._key
        if self._key and api.key_header:
            headers[api.key_header] = api.key_prefix + self._key
        if api.method == "POST":
            return client.stream("POST", self._url, json=parameters, headers=headers, follow_redirects=False)
        url = self._url.copy_merge_params(parameters)
        return client.stream("GET", url, headers=headers, follow_redirects=False)

    def _refused(self, status: int, body: bytes) -> ToolFailed:
        advice = _ADVICE_BY_KIND.get((self._kind, status)) or _ADVICE.get(status, "")
        message = error_message(body)
        answers = f"it answers {status}" + (f" ({message})" if message else "")
        return self._failed(f"{answers}: {advice}" if advice else answers)

    def _failed(self, why: str) -> ToolFailed:
        return ToolFailed(f"The search engine {self.place} cannot be used: {why}. {GO_ON}")

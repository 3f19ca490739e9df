"""The tool `web_fetch`: a page of the public web, or of a configured private host, as readable text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from http import HTTPStatus

import httpx2
from msgspec import Struct

from parsing import Arguments
from tools.base.escape_invisible import visible
from tools.base.outcome import Progress, Result, ToolFailed
from tools.tool import Context
from tools.web.bodies import ACCEPT_ENCODING, Connect, UnknownPacking, connect, is_about_tls, read_body, reason_of, sent
from tools.web.html_text import Page
from tools.web.page_text import is_text, media_type, text_of
from tools.web.public_hosts import Resolve, resolve
from tools.web.url_target import UrlTarget, parsed, same_origin, shown, target

PAGE_CHARACTERS = 20_000
MAX_REDIRECTS = 5
MAX_LOCATION = 2_000  # characters of an address that the model is to write again

_HEADERS = {
    "User-Agent": "dragoman (web_fetch)",
    "Accept": "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, application/xml;q=0.8",
    "Accept-Encoding": ACCEPT_ENCODING,
}
_PROGRESS_S = 0.5


class FetchLimits(Struct, frozen=True):
    """Limits of one fetch, redirects included. `bytes` counts decompressed bytes."""

    seconds: float = 30.0
    connect_s: float = 10.0
    reading_s: float = 5.0
    bytes: int = 5_000_000


class WebFetch:
    """The tool's `run`. `resolve` and `connect` are how it reaches the world."""

    def __init__(
        self, resolve: Resolve = resolve, connect: Connect = connect, limits: FetchLimits | None = None
    ) -> None:
        self._resolve = resolve
        self._connect = connect
        self._limits = limits or FetchLimits()

    async def __call__(self, arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        """Fetch a page and report the bytes received; a failure is a ToolFailed."""
        started = time.monotonic()
        url, offset = parsed(arguments["url"]), int(arguments.get("offset", 0))
        fetch = _Fetch(self._resolve, self._connect, self._limits, context.private_hosts)
        seconds = min(self._limits.seconds, context.time_limit_s)
        # A task of its own, so that its timeout runs while this generator is suspended.
        fetching = asyncio.create_task(asyncio.wait_for(fetch.page(url), seconds))
        try:
            while not (await asyncio.wait({fetching}, timeout=_PROGRESS_S))[0]:
                yield Progress(round(time.monotonic() - started, 3), bytes=fetch.bytes)
            yield Result(ok=True, text=_answer(fetching.result(), offset))
        except TimeoutError as error:
            raise ToolFailed(
                f"{shown(url)} was not there after {seconds:g} s ({fetch.bytes:,} bytes came): try another page."
            ) from error
        finally:
            fetching.cancel()
            with suppress(asyncio.CancelledError, TimeoutError, ToolFailed):
                await fetching


class _Fetched(Struct, frozen=True):
    """A page, where it was found, and whether there was more than was read."""

    page: Page
    moved_to: httpx2.URL | None
    cut: bool


class _Fetch:
    """One fetch: its redirects, and how much has come."""

    def __init__(self, resolve: Resolve, connect: Connect, limits: FetchLimits, private_hosts: Sequence[str]) -> None:
        self._resolve = resolve
        self._connect = connect
        self._limits = limits
        self._private_hosts = private_hosts
        self.bytes = 0

    async def page(self, url: httpx2.URL) -> _Fetched:
        """Follow redirects within one origin, each checked like the first URL, to a page."""
        requested = url
        for _ in range(MAX_REDIRECTS + 1):
            found = await target(url, self._private_hosts, self._resolve)
            seen = await self._open(found)
            if isinstance(seen, httpx2.URL):
                url = seen
                continue
            raw, kind, cut = seen
            page = await asyncio.to_thread(text_of, raw, kind, str(url), self._limits.reading_s, cut=cut)
            return _Fetched(page, None if url == requested else url, cut or page.cut)
        raise ToolFailed(f"{shown(requested)} redirects more than {MAX_REDIRECTS} times: try another page.")

    async def _open(self, found: UrlTarget) -> httpx2.URL | tuple[bytes, str, bool]:
        """Return the redirect target, or the body: bytes, content type, and whether it was cut."""
        request = httpx2.Request("GET", found.url, headers=_HEADERS)
        timeout = httpx2.Timeout(self._limits.seconds, connect=self._limits.connect_s)
        try:
            async with sent(request, found.addresses, self._connect, timeout) as response:
                return _redirect(found.url, response) or await self._load(found.url, response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise _unreachable(found, error) from error
        except httpx2.HTTPError as error:
            raise ToolFailed(
                f"{shown(found.url)} broke off or is not sent as HTTP should be "
                f"({reason_of(error)}): try again once, or another page."
            ) from error

    async def _load(self, url: httpx2.URL, response: httpx2.Response) -> tuple[bytes, str, bool]:
        if response.status_code != HTTPStatus.OK:
            raise _refused(url, response)
        kind = response.headers.get("content-type", "")
        if not is_text(media_type(kind)):
            raise ToolFailed(f"{shown(url)} is {shown(media_type(kind))}, which is not text: look for a page about it.")
        try:
            body, cut = await read_body(response, self._limits.bytes, self._note)
        except UnknownPacking as packing:
            raise ToolFailed(
                f"{shown(url)} is packed as {shown(packing)}, which was not requested: try another page."
            ) from packing
        return body, kind, cut

    def _note(self, count: int) -> None:
        self.bytes = count


def _redirect(url: httpx2.URL, response: httpx2.Response) -> httpx2.URL | None:
    """Return the target of a redirect that may be followed; None when the response is no redirect.

    Another origin needs a call of its own, so that the gate decides on it.
    """
    if not response.has_redirect_location:
        return None
    location = response.headers["location"]
    try:
        to = parsed(str(url.join(location)))
    except (httpx2.InvalidURL, ToolFailed) as error:
        raise ToolFailed(f"{shown(url)} redirects to {shown(location)}, which cannot be followed: {error}") from error
    if url.scheme == "https" and to.scheme == "http":
        raise ToolFailed(
            f"{shown(url)} redirects to {shown(to)}, which is not encrypted. Fetch that itself if it is what you want."
        )
    if not same_origin(url, to):
        raise ToolFailed(
            f"{shown(url)} redirects to another site, and nothing was fetched from there: "
            f"{visible(str(to))[:MAX_LOCATION]} If you want that page, call web_fetch with its own address."
        )
    return to


def _refused(url: httpx2.URL, response: httpx2.Response) -> ToolFailed:
    status = response.status_code
    with suppress(ValueError):
        what = f"{status} {HTTPStatus(status).phrase}"
        return ToolFailed(f"{shown(url)} answers {what}: {_ADVICE.get(HTTPStatus(status), 'try another page')}.")
    return ToolFailed(f"{shown(url)} answers {status}: try another page.")


_ADVICE = {
    HTTPStatus.UNAUTHORIZED: "it wants a login, so try another page",
    HTTPStatus.FORBIDDEN: "it does not want to be fetched, so try another page",
    HTTPStatus.NOT_FOUND: "check the address, or begin at the site's first page",
    HTTPStatus.GONE: "check the address, or begin at the site's first page",
    HTTPStatus.TOO_MANY_REQUESTS: "wait before you fetch from there again, or try another site",
    HTTPStatus.SERVICE_UNAVAILABLE: "try again later, or another site",
}


def _unreachable(found: UrlTarget, error: httpx2.TransportError) -> ToolFailed:
    if is_about_tls(error):
        return ToolFailed(
            f"No safe connection to {shown(found.host)} ({reason_of(error)}). Nothing was fetched; use another site."
        )
    return ToolFailed(f"{shown(found.host)} does not answer ({reason_of(error)}): check the address, or try another.")


def _answer(fetched: _Fetched, offset: int) -> str:
    """One page of the text from character `offset`, what to know of it, and how to get the next."""
    page, text = fetched.page, fetched.page.text
    if offset and offset >= len(text):
        raise ToolFailed(
            f"The text has only {len(text):,} characters: give an offset from 0 to {max(len(text) - 1, 0)}."
        )
    notes = []
    if page.hidden:
        notes.append(f"[{page.hidden:,} characters that the page hides from people are left out.]")
    if fetched.cut:
        notes.append("[The page is longer; only its beginning was read.]")
    if not text:
        return "\n".join(["(no text: the page may need a browser)", *notes])
    end = len(text)
    if end - offset > PAGE_CHARACTERS:
        end = text.rfind("\n", offset + 1, offset + PAGE_CHARACTERS) + 1 or offset + PAGE_CHARACTERS
        notes.append(f"[Characters {offset} to {end - 1} of {len(text)}. Next page: offset={end}]")
    head = [f"[Found at {shown(fetched.moved_to)}]"] if fetched.moved_to else []
    head += [f"Title: {page.title}\n"] if page.title and not offset else []
    return "\n".join([*head, text[offset:end].rstrip("\n") if notes else text[offset:end], *notes])

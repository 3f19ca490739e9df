"""Results of a search: read from the JSON of an answer, without HTML, bounded, and written as text for the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
from msgspec import Struct

from tools.base.escape_invisible import visible
from tools.base.texts import without_surrogates
from tools.web.html_text import plain_text
from tools.web.search_apis import SearchApi

MAX_RESULTS = 10
MAX_TITLE, MAX_URL, MAX_SNIPPET = 200, 1_000, 500  # characters
_READ = 8  # times as many characters are read, because markup takes some
_NAMED = 5
# Where APIs put the sentence of an error.
_MESSAGES = ("error.detail", "error.message", "detail.error", "detail.message", "message", "error", "detail")


class UnfitAnswer(Exception):
    """An answer that is not what the row of its API says. The message says what it is instead."""


class SearchResult(Struct, frozen=True):
    """One result. `url` is an http(s) address; the texts are one line each."""

    title: str
    url: str
    snippet: str


class Answer(Struct, frozen=True):
    """The results of one search, and what the engine says of engines that did not answer."""

    results: Sequence[SearchResult]
    failures: str = ""


def read_answer(body: bytes, api: SearchApi, count: int) -> Answer:
    """Read at most `count` results. May take some ms: call it in a thread. Raises UnfitAnswer."""
    answer = _json(body)
    listed = at_path(answer, api.results)
    if not isinstance(answer, dict) or not isinstance(listed, list | None):
        raise UnfitAnswer(f"has no list at {api.results!r}")
    found: dict[str, SearchResult] = {}
    for one in listed or ():
        if len(found) >= count:
            break
        if (result := _result(one, api)) is not None:
            found.setdefault(result.url, result)
    return Answer(tuple(found.values()), _failures(at_path(answer, api.failures)) if api.failures else "")


def error_message(body: bytes) -> str:
    """Return the sentence in the JSON of an error; empty if there is none."""
    try:
        answer = _json(body)
    except UnfitAnswer:
        return ""
    texts = (at_path(answer, path) for path in _MESSAGES)
    return next((one_line(text, MAX_TITLE) for text in texts if isinstance(text, str) and text.strip()), "")


def as_text(results: Sequence[SearchResult]) -> str:
    """Write results for the model. Each is a block: number and title, URL, snippet."""
    blocks = (
        "\n".join(filter(None, (f"{number}. {one.title}", one.url, one.snippet)))
        for number, one in enumerate(results, start=1)
    )
    return "\n\n".join(blocks)


def at_path(value: Any, path: str) -> Any:
    """Return what a path such as `web.results` leads to; None where nothing is."""
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def one_line(text: str, most: int) -> str:
    """Return untrusted text as one bounded line without HTML."""
    line = " ".join(visible(plain_text(text[: most * _READ])).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def _json(body: bytes) -> Any:
    try:
        return without_surrogates(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise UnfitAnswer("is not JSON") from error


def _result(one: Any, api: SearchApi) -> SearchResult | None:
    """Return a result, if it has the address of a web page."""
    url = _address(at_path(one, api.result_url))
    if not url:
        return None
    title, snippet = (" … ".join(_texts(at_path(one, path))) for path in (api.result_title, api.result_text))
    return SearchResult(one_line(title, MAX_TITLE) or httpx2.URL(url).host, url, one_line(snippet, MAX_SNIPPET))


def _address(written: Any) -> str:
    if not isinstance(written, str) or not 0 < len(written.strip()) <= MAX_URL:
        return ""
    try:
        url = httpx2.URL(visible(written.strip()))
    except httpx2.InvalidURL:
        return ""
    return str(url) if url.scheme in ("http", "https") and url.host and not url.userinfo else ""


def _texts(value: Any) -> Iterator[str]:
    """Yield a text, or the texts of a list."""
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, str):
            yield one


def _failures(listed: Any) -> str:
    """Write `[["google", "timeout"]]` as `google (timeout)`."""
    rows = [[*_texts(row)] for row in listed] if isinstance(listed, list) else []
    named = [f"{row[0]} ({', '.join(row[1:])})" if row[1:] else row[0] for row in rows if row]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return one_line(", ".join(named[:_NAMED]) + more, MAX_SNIPPET)

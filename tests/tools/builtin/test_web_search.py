"""web_search on real servers of this machine: what each API is sent, and what the model reads of its answer."""

from __future__ import annotations

import gzip
import json
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from parsing import Arguments
from tests import ROOT
from tests.support.models.upstream import Act, Asked, answer, hang, hang_up, upstream
from tools.base.outcome import Result, ToolFailed
from tools.base.rights import Risk
from tools.builtin.web_search import MAX_QUERY, http_backend, mcp_backend
from tools.catalogue import WEB_SEARCH
from tools.tool import Context, Run, Tool, answering
from tools.web.search_apis import SEARCH_APIS, SearchApi, address_of
from tools.web.search_client import SearchEngine, SearchLimits
from tools.web.search_results import MAX_SNIPPET, MAX_TITLE

pytestmark = pytest.mark.anyio

KEY = "key-4711"
RECORDED = (ROOT / "fixtures/search/searxng.json").read_bytes()
PAGE = {"title": "A page", "url": "https://example.org/a"}
SMALL = SearchLimits(bytes=2_000)


async def searched(engine: SearchEngine, query: str = "tea", **more: Any) -> str:
    """What the model reads. Raises ToolFailed."""
    result = await result_of(http_backend(engine).run, query=query, **more)
    assert result.ok
    return result.text


async def result_of(run: Run, **arguments: Any) -> Result:
    async with aclosing(run(arguments, Context(Path("/")))) as updates:
        [result] = [one async for one in updates]
    assert isinstance(result, Result)
    return result


async def asked(
    act: Act, kind: str = "searxng", api: SearchApi | None = None, limits: SearchLimits | None = None, **more: Any
) -> tuple[str, Asked]:
    """What the model reads of this answer, and what the server was asked."""
    async with upstream(act) as server:
        url = f"http://127.0.0.1:{server.port}"
        text = await searched(SearchEngine(kind, api or SEARCH_APIS[kind], url, KEY, limits=limits), **more)
        return text, server.asked[0]


async def read(*results: object, **more: Any) -> str:
    return (await asked(answer(json.dumps({"results": results})), **more))[0]


BRAVE = {"type": "search", "web": {"results": [PAGE | {"description": "Black <strong>tea</strong> &amp; milk"}]}}
TAVILY = {"query": "tea", "results": [PAGE | {"content": "Black tea & milk", "score": 0.9}]}
SERPER = {"organic": [{"title": "A page", "link": PAGE["url"], "snippet": "Black tea & milk", "position": 1}]}
EXA = {"requestId": "1", "results": [PAGE | {"id": PAGE["url"], "highlights": ["Black tea", "milk"]}]}
ROWS = [
    # kind, what it answers, method and path, parameters, header of the key, the snippet
    ("searxng", TAVILY, "GET /search", {"q": "tea", "format": "json"}, ("authorization", f"Bearer {KEY}")),
    (
        "brave",
        BRAVE,
        "GET /web/search",
        {"q": "tea", "count": "3", "result_filter": "web", "text_decorations": "false"},
        ("x-subscription-token", KEY),
    ),
    ("tavily", TAVILY, "POST /search", {"query": "tea", "max_results": 3}, ("authorization", f"Bearer {KEY}")),
    ("serper", SERPER, "POST /search", {"q": "tea", "num": 3}, ("x-api-key", KEY)),
    (
        "exa",
        EXA,
        "POST /search",
        {"query": "tea", "numResults": 3, "contents": {"highlights": True}},
        ("x-api-key", KEY),
    ),
]


def parameters(request: Asked) -> dict[str, Any]:
    if request.method == "POST":
        return dict(request.json)
    return {name: value for name, [value] in parse_qs(urlsplit(request.path).query).items()}


@pytest.mark.parametrize(("kind", "body", "line", "sent", "header"), ROWS, ids=[row[0] for row in ROWS])
async def test_each_api_is_sent_its_request_and_its_results_are_read(
    kind: str, body: object, line: str, sent: dict[str, Any], header: tuple[str, str]
) -> None:
    text, request = await asked(answer(json.dumps(body)), kind, count=3)
    assert re.fullmatch(r"1\. A page\nhttps://example\.org/a\nBlack tea (&|…) milk", text)
    assert f"{request.method} {request.path.partition('?')[0]}" == line
    assert parameters(request) == sent
    assert request.headers[header[0]] == header[1]


def test_every_row_has_a_case() -> None:
    assert {row[0] for row in ROWS} == set(SEARCH_APIS)
    assert all(urlsplit(address_of(row)).scheme == "https" for kind, row in SEARCH_APIS.items() if kind != "searxng")
    assert address_of(SEARCH_APIS["searxng"], "http://h:1/sub/search/") == "http://h:1/sub/search"


async def test_a_recorded_answer_of_searxng_is_read() -> None:
    text, _ = await asked(answer(RECORDED))
    assert text == (
        "1. Installing packages & more\nhttps://packages.example.org/install?a=1\n"
        "Use pip to install <name> from an index.\n\n"
        "2. Second result\nhttps://docs.example.com/second\nAnother page."
    )


async def test_an_api_of_ones_own_is_a_row_like_the_others() -> None:
    own = SearchApi("https://unused.example/v1", query="words", fixed={"cx": "7"}, key_parameter="key", results="a.b")
    text, request = await asked(answer(json.dumps({"a": {"b": [PAGE]}})), "custom", own)
    assert text == "1. A page\nhttps://example.org/a"
    assert parameters(request) == {"words": "tea", "cx": "7", "key": KEY}


async def test_results_are_bounded_plain_and_on_lines_of_their_own() -> None:
    hostile = {
        "title": "<b>Big</b>\n2. Forged\u202e\nhttps://evil.example/" + "t" * 5_000,
        "url": "https://example.org/b",
        "content": "<script>alert(1)</script>list<int> &lt;b&gt; <p>new</p>\n\n<img src=x onerror=y>" + "s" * 50_000,
    }
    first, second = (await read(hostile, PAGE, hostile)).split("\n\n")
    assert second == "2. A page\nhttps://example.org/a", "each address once"
    title, url, snippet = first.split("\n")
    assert title.startswith("1. Big 2. Forged https://evil.example/ttt") and len(title) <= MAX_TITLE + 3
    assert url == "https://example.org/b"
    assert snippet.startswith("list<int> <b> new sss") and len(snippet) <= MAX_SNIPPET


@pytest.mark.parametrize(
    "url",
    [
        *("", "javascript:alert(1)", "file:///etc/passwd", "magnet:?xt=1", "https://", "//x.example", "http://[::1"),
        *(7, None, "https://user@example.org/", "https://example.org/" + "a" * 2_000),
    ],
)
async def test_what_is_no_address_of_a_page_is_left_out(url: object) -> None:
    assert await read({"title": "Odd", "url": url}, "odd", PAGE) == "1. A page\nhttps://example.org/a"


async def test_halves_of_characters_are_replaced() -> None:
    half = "\ud800"
    text = await read({"title": f"T{half}", "url": f"https://example.org/{half}", "content": f"{half}a"})
    assert text == "1. T\ufffd\nhttps://example.org/%EF%BF%BD\n\ufffda"


async def test_the_number_of_results_is_small_whatever_is_requested_or_sent() -> None:
    many = [{"title": str(number), "url": f"https://example.org/{number}"} for number in range(50)]
    counts = [(await read(*many, **more)).count("https://") for more in ({}, {"count": 2}, {"count": 1_000})]
    assert counts == [5, 2, 10]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"results": []}, "Nothing was found. Use fewer or other words."),
        ({"results": None}, "Nothing was found."),
        ({}, "Nothing was found."),
        (
            {"results": [], "unresponsive_engines": [["google", "CAPTCHA"], ["<b>bing</b>"], 7, []]},
            "Nothing was found, and these engines did not answer: google (CAPTCHA), bing.",
        ),
    ],
)
async def test_nothing_found_is_no_failure(body: object, told: str) -> None:
    assert (await asked(answer(json.dumps(body))))[0].startswith(told)


FAILURES = [
    (
        "searxng",
        answer("Forbidden", 403, "text/html"),
        "403: it offers no JSON. Its operator has to add json to search.f",
    ),
    ("searxng", answer("Too many", 429), "429: its limiter refuses this server"),
    ("searxng", answer("", 404), "404: nothing is there. The operator of this server can correct search_url"),
    (
        "searxng",
        answer("<html>", 200),
        "what it answers is not JSON. The operator of this server can check search_kind",
    ),
    ("searxng", answer("[" * 1_900), "is not JSON"),
    ("searxng", answer("[]"), "has no list at 'results'"),
    ("brave", answer('{"web": {"results": "none"}}'), "has no list at 'web.results'"),
    (
        "brave",
        answer('{"error": {"detail": "Wrong <b>token</b>."}}', 401),
        r"401 \(Wrong token\.\): it does not accept the key. The operator of this server can correct search_key",
    ),
    ("tavily", answer('{"detail": {"error": "Over."}}', 432), r"432 \(Over\.\): its quota is used up"),
    ("serper", answer("{}", 402), "402: its quota is used up"),
    ("exa", answer('{"error": "Slow down"}', 429), r"429 \(Slow down\): it gets too many searches. Wait"),
    ("exa", answer("oops", 500), "it answers 500. Go on without searching"),
    ("exa", answer(RECORDED, content_encoding="br"), "it packs its answer as br"),
    ("exa", hang_up, "broke off or does not speak HTTP"),
    ("exa", answer(json.dumps({"results": ["a" * 3_000]})), "it answers with more than 2,000 bytes"),
    ("exa", answer(gzip.compress(b"a" * 9_000_000), content_encoding="gzip"), "more than 2,000 bytes"),
]


@pytest.mark.parametrize(("kind", "act", "told"), FAILURES)
async def test_a_failure_names_the_engine_and_the_next_step(kind: str, act: Act, told: str) -> None:
    with pytest.raises(ToolFailed, match=told) as failed:
        await asked(act, kind, limits=SMALL)
    assert re.search(r"[Gg]o on without searching", str(failed.value))
    assert re.search(r"^The search engine 127\.0\.0\.1:\d+ ", str(failed.value))
    assert KEY not in str(failed.value) and len(str(failed.value)) < 600


async def test_a_redirect_is_not_followed_so_the_key_goes_nowhere_else() -> None:
    async with upstream(answer(RECORDED)) as other:
        to = f"http://127.0.0.1:{other.port}/search"
        for status in (301, 302, 307, 308):
            with pytest.raises(ToolFailed, match=f"it redirects to {to}, where nothing was sent"):
                await asked(answer("", status, location=to), "tavily")
        assert not other.asked


async def test_an_engine_that_is_silent_is_left() -> None:
    with pytest.raises(ToolFailed, match=r"has not answered within 0\.4 s. Search again once"):
        await asked(hang, limits=SearchLimits(seconds=0.4))


async def test_an_engine_that_is_not_there() -> None:
    async with upstream() as server:
        port = server.port
    with pytest.raises(ToolFailed, match=r"it cannot be reached .*check search_url"):
        await searched(SearchEngine("searxng", SEARCH_APIS["searxng"], f"http://127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (" \u200b\n", "query is empty"),
        ("a" * (MAX_QUERY + 1), "401 characters: write at most 400"),
        ("a\ud800", "The character at 1 is a lone surrogate"),
    ],
)
async def test_a_query_that_cannot_be_sent(query: str, told: str) -> None:
    with pytest.raises(ToolFailed, match=told):
        await read(PAGE, query=query)


async def test_a_query_is_one_parameter_whatever_is_in_it() -> None:
    _, request = await asked(answer(RECORDED), query='a&format=html#x\n "b c" ü\u202e')
    assert parameters(request) == {"q": 'a&format=html#x "b c" ü', "format": "json"}


async def test_without_an_engine_the_row_of_the_catalogue_says_so() -> None:
    with pytest.raises(ToolFailed, match="No search engine is configured"):
        await result_of(WEB_SEARCH.run, query="tea")


async def through_mcp(name: str, *tools: Tool, query: str = "tea") -> Result:
    return await result_of(mcp_backend(name, lambda: tools).run, query=query)


def searching(name: str, required: list[str], **properties: dict[str, Any]) -> Tool:
    """A tool that answers with its arguments."""

    async def run(arguments: Arguments, _: Context) -> str:
        return json.dumps(arguments)

    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(name, "Searches.", schema, Risk.ADMIN, answering(run))


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("required", "properties", "given"),
    [
        (["q"], {"q": TEXT, "max_results": {"type": "integer"}}, {"q": "tea", "max_results": 5}),
        (["query"], {"query": TEXT, "limit": {"type": "integer", "maximum": 3}}, {"query": "tea"}),
        (["wanted"], {"wanted": TEXT, "language": TEXT}, {"wanted": "tea"}),
        ([], {"text": TEXT}, {"text": "tea"}),
    ],
)
async def test_the_query_is_put_where_another_tool_takes_it(
    required: list[str], properties: dict[str, dict[str, Any]], given: dict[str, Any]
) -> None:
    result = await through_mcp("a", searching("b", []), searching("a", required, **properties))
    assert json.loads(result.text) == given


async def test_a_tool_that_a_query_does_not_suffice_for_and_one_that_is_not_there() -> None:
    abroad = searching("a", ["query", "country"], query=TEXT, country=TEXT)
    with pytest.raises(ToolFailed, match=r"country.*has to name another tool in search_tool"):
        await through_mcp("a", abroad)
    with pytest.raises(ToolFailed, match=r"The MCP tool b, which searches here, is not there"):
        await through_mcp("b", abroad)
    with pytest.raises(ToolFailed, match="query is empty"):
        await through_mcp("a", abroad, query=" ")

"""Answers of other servers: models and their lists, MCP servers, web pages."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.support.fuzz.answers import FIELDS, PIECES, RAW, answer, raw_body
from tests.support.fuzz.blocks import (
    PATTERNS,
    dumped,
    json_text,
    openers,
    repeated,
    schema,
    size,
    text,
    value,
)
from tests.support.fuzz.judging import Case, Door
from tests.support.fuzz.requests import spoilt
from tests.support.fuzz.site import Site, whole
from tests.support.fuzz.streams import LANES, fine, native, streamed


def model_answer(door: str, endpoints: tuple[str, ...], lanes: tuple[str, ...]) -> Door:
    def generate(rng: random.Random, most: int) -> Case:
        where = rng.choice((*FIELDS, *FIELDS[:4], *RAW))
        endpoint = rng.choice(endpoints)
        form = "anthropic" if endpoint == "anthropic" else "openai"
        cut = rng.choice(PIECES)
        how = {"endpoint": endpoint, "format": form, "field": where, "lane": rng.choice(lanes), "cut": cut}
        how["pieces"] = rng.choice((0, 0, 0, 7, 1_000))
        if where in RAW:
            return Case(door, raw_body(rng, where, most), how)
        made = text(rng, most) if where != "usage" else json_text(rng, size(rng, most))
        if cut < 40:
            made = made[: most // 10]
        if how["pieces"] == 7:
            made = made[:5_000]
        return Case(door, made.encode("utf-8", "surrogatepass"), how)

    async def send(site: Site, case: Case) -> str:
        path = "/a/v1/messages" if case.how["format"] == "anthropic" else "/v1/chat/completions"
        site.upstreams.pieces = case.how["pieces"] if len(case.body) < 50_000 else 0
        site.upstreams.answers = {path: [answer(case.body, case.how)]}
        body = LANES[case.how["lane"]][0](f"{case.how['endpoint']}/m", "Hello")
        body |= {"threadId": f"t{id(case)}"} if "threadId" in body else {}
        body |= {"id": f"c{id(case)}"} if "id" in body else {}
        try:
            return (await streamed(site, case.how["lane"], body))[1]
        finally:
            site.upstreams.answers, site.upstreams.pieces = {}, 0

    return Door(door, generate, send)


def mcp_case(rng: random.Random, most: int) -> Case:
    made: Any = schema(rng, most)
    kind = rng.choice(("schema", "schema", "result", "result", "tools", "app", "task", "raw"))
    tool: dict[str, Any] = {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}}
    result: Any = {"content": [{"type": "text", "text": "x"}]}
    arguments: Any = {
        "text": rng.choice((text(rng, 2_000), repeated(rng.choice(PATTERNS)[1], 60) + "!", [1] * 3_000, {}))
    }
    if kind == "schema":
        tool["inputSchema"] = made
        if rng.random() < 0.4:
            tool |= {"inputSchema": {"type": "object"}, "outputSchema": made}
            result["structuredContent"] = arguments
    elif kind == "result":
        odd = value(rng, most)
        block = rng.choice(
            (
                {"type": "text", "text": text(rng, most)},
                {"type": "image", "data": "x", "mimeType": odd},
                {"type": "resource", "resource": {"uri": "x", "text": text(rng, most)}},
                odd,
                {"type": "resource_link", "uri": text(rng, 2_000), "name": odd},
                {"type": "text", "text": odd},
            )
        )
        result = rng.choice(
            (
                {"content": [block]},
                {"content": [block] * size(rng, 3_000)},
                {"structuredContent": odd},
                {"content": odd, "isError": odd},
                {"content": [], "_meta": odd},
                odd,
            )
        )
    elif kind == "app":  # what is called and what is read have the same answer
        tool["_meta"] = {"ui": {"resourceUri": rng.choice(("ui://f/x", text(rng, 2_000)))}}
        page = {"uri": "ui://f/x", "mimeType": "text/html;profile=mcp-app", "text": text(rng, most)}
        result |= {"contents": rng.choice(([page], [page] * 300, value(rng, most))), "_meta": value(rng, 3_000)}
    elif kind == "task":
        task = {
            "taskId": text(rng, 999),
            "status": rng.choice(("failed", "completed", text(rng, 99))),
            "ttl": value(rng, 9),
        }
        result = rng.choice(({"resultType": "task", **task}, {"task": task}, {"task": value(rng, most)}))
    tools: Any = [tool]
    if kind == "tools":
        tools = rng.choice(([dict(tool, name=f"t{number}") for number in range(size(rng, 3_000))], value(rng, most),
                            [dict(tool, description=text(rng, most))], [dict(tool, annotations=value(rng, most))],
                            [tool] * size(rng, 3_000), [dict(tool, _meta={"ui": value(rng, most)})],
                            [dict(tool, name=text(rng, 2_000))]))  # fmt: skip
    body = {"tools": tools, "result": result, "arguments": arguments}
    if kind == "raw":
        name = rng.choice(("tools", "result"))
        raw = json_text(rng, size(rng, most))
        return Case("mcp", raw.encode("utf-8", "surrogatepass"), {"raw": name})
    return Case("mcp", dumped(body))


async def send_to_mcp(site: Site, case: Case) -> str:
    """Add the server, have the model call its tool, remove it."""
    try:
        sent = {} if case.how else json.loads(case.body)
    except (ValueError, RecursionError):
        return ""  # it was cut
    others = site.upstreams
    others.tools = dumped(sent.get("tools", [{"name": "echo", "inputSchema": {"type": "object"}}]))
    others.result = dumped(sent.get("result", {"content": []}))
    if case.how:
        others.tools = case.body if case.how["raw"] == "tools" else others.tools
        others.result = case.body if case.how["raw"] == "result" else others.result
    try:
        _, wrong = await fine(site, "POST", "/mcp/servers", json={"name": "f", "url": f"{others.url}/mcp"})
        if wrong:
            return wrong
        call = {"name": "mcp__f__echo", "arguments": json.dumps(sent.get("arguments", {}))}
        others.answers = {"/v1/chat/completions": [native(call)]}
        for path in ("/tools", "/mcp/servers", "/mcp/servers/f"):
            _, wrong = await fine(site, "GET", path)
            if wrong:
                return wrong
        _, wrong = await streamed(site, "/chat", LANES["/chat"][0]("native/m", "Hello"))
        return wrong
    finally:
        await site.client.delete("/mcp/servers/f")
        others.answers, others.tools, others.result = {}, b"[]", b"{}"


def models_case(rng: random.Random, most: int) -> Case:
    row = {"id": "m", "object": "model", "context_length": 1}
    odd = value(rng, most)
    made = rng.choice(({"data": [row] * size(rng, 9_000)}, {"data": odd}, {"data": [dict(row, id=text(rng, most))]},
                       odd,
                       {"data": [dict(row, id=f"m{number}") for number in range(size(rng, 9_000))]}))  # fmt: skip
    return Case("models", spoilt(rng, dumped(made), most), {"path": rng.choice(("models", "props", "../api/show"))})


async def send_to_models(site: Site, case: Case) -> str:
    """An endpoint that answers so, added and listed."""
    listed = whole("application/json", case.body)
    paths = ("/f/v1/models", "/f/props", "/f/api/tags", "/f/api/show", "/f/version", "/f/v1/models/m", "/f/health")
    site.upstreams.answers = {path: [listed] * 3 for path in paths}
    try:
        body = {"name": "fuzzed", "url": f"{site.upstreams.url}/f/v1"}
        wrongs = [(await fine(site, "POST", "/endpoints", json=body))[1]]
        wrongs += [(await fine(site, "GET", path))[1] for path in ("/endpoints", "/v1/models", "/options")]
        wrongs.append((await streamed(site, "/chat", LANES["/chat"][0]("fuzzed", "Hello")))[1])
        return next(filter(None, wrongs), "")
    finally:
        await site.client.delete("/endpoints/fuzzed")
        site.upstreams.answers = {}


def web_case(rng: random.Random, most: int) -> Case:
    piece = rng.choice(("<a href=x>", "<div>", "<a ", "<!--", "<p>x</p>", "<table><tr><td>", "&#x", "<b a='",
                        "<![CDATA[", "<li><ul>", "<title>", "<style>", "</", "<?xml ", "<script>"))  # fmt: skip
    made = rng.choice((repeated(piece, size(rng, most)), text(rng, most), openers(rng, size(rng, most))))
    kind = rng.choice(
        ("text/html", "text/plain", "application/json", "application/xml", "text/html; charset=utf-7", "x")
    )
    return Case("web", made.encode("utf-8", "surrogatepass"), {"kind": kind})


async def send_to_web(site: Site, case: Case) -> str:
    fetch = {"name": "web_fetch", "arguments": json.dumps({"url": f"{site.upstreams.url}/page"})}
    site.upstreams.answers = {
        "/v1/chat/completions": [native(fetch)],
        "/page": [whole(case.how["kind"], case.body)] * 2,
    }
    try:
        return (await streamed(site, "/chat", LANES["/chat"][0]("native/m", "Read.")))[1]
    finally:
        site.upstreams.answers = {}

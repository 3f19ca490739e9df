"""The doors by which strangers' bytes come in, a row each: what is made for it, and how it is sent."""

from __future__ import annotations

import base64
import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from typing import Any

from routes.server import ROUTES
from routes.transcripts.formats import FORMATS
from tests.support.access.access_table import LOST
from tests.support.documents.hostile import DOCUMENTS
from tests.support.fuzz.answers import FIELDS, PIECES, RAW, answer, raw_body, text_of
from tests.support.fuzz.blocks import (
    PATTERNS,
    TEXTS,
    dumped,
    json_text,
    markdown,
    mutated,
    openers,
    repeated,
    schema,
    size,
    text,
    value,
)
from tests.support.fuzz.judging import Case, Door
from tests.support.fuzz.site import Site, events, whole

JSON = {"content-type": "application/json"}
LOOK = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {"a": {}}}}


# --- what ends a stream, on each lane ---


def native_ends(said: str) -> int:
    kinds = [kind for kind, _ in events(said)]
    ends = [number for number, kind in enumerate(kinds) if kind in ("run.finished", "run.failed")]
    return len(ends) if not ends or ends[-1] == len(kinds) - 1 else -1


def counted(mark: str) -> Callable[[str], int]:
    return lambda said: len(re.findall(mark, said))


def chat_ends(said: str) -> int:
    """An error stands for the last line of the format."""
    return len(re.findall(r"(?m)^data: \[DONE\]$", said)) or len(re.findall(r'(?m)^data: \{"error"', said))


LaneBody = Callable[[str, str], dict[str, Any]]
LANES: dict[str, tuple[LaneBody, Callable[[str], int]]] = {
    "/chat": (lambda model, message: {"message": message, "model": model, "approval": "auto"}, native_ends),
    "/v1/chat/completions": (
        lambda model, message: {"model": model, "messages": [{"role": "user", "content": message}], "stream": True,
                                "tools": [{"type": "function", "function": LOOK}]},
        chat_ends,
    ),
    "/v1/responses": (
        lambda model, message: {"model": model, "input": message, "stream": True, "tools": [{"type": "function", **LOOK}]},
        counted(r"(?m)^event: (?:response\.(?:completed|failed|incomplete)|error)$"),
    ),
    "/v1/messages": (
        lambda model, message: {"model": model, "messages": [{"role": "user", "content": message}], "stream": True,
                                "max_tokens": 9_000, "tools": [{"name": "look", "input_schema": {"type": "object"}}]},
        counted(r"(?m)^event: (?:message_stop|error)$"),
    ),
    "/ag-ui": (
        lambda model, message: {"threadId": "", "runId": "", "state": {}, "tools": [], "context": [],
                                "forwardedProps": {"model": model},
                                "messages": [{"id": "m", "role": "user", "content": message}]},
        counted(r'"type": ?"RUN_(?:FINISHED|ERROR)"'),
    ),
    "/ui-message-stream": (
        lambda model, message: {"id": "", "model": model, "trigger": "submit-message",
                                "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": message}]}]},
        counted(r"(?m)^data: \[DONE\]$"),
    ),
}  # fmt: skip


async def streamed(site: Site, lane: str, body: dict[str, Any]) -> tuple[str, str]:
    """The stream of one turn, and what is wrong with it."""
    response = await site.client.post(lane, json=body)
    said = response.text
    if response.status_code == 500 or '"internal"' in said:
        return said, f"{lane}: {response.status_code} {said[-300:]}"
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        return said, ""
    ends = LANES[lane][1](said)
    return said, "" if ends == 1 else f"{lane}: {ends} ends: {said[-200:]!r}"


async def fine(site: Site, method: str, path: str, **request: Any) -> tuple[Any, str]:
    response = await site.client.request(method, path, **request)
    return response, f"{method} {path}: 500 {response.text[:200]}" if response.status_code == 500 else ""


# --- models ---


def _model_answer(door: str, endpoints: tuple[str, ...], lanes: tuple[str, ...]) -> Door:
    def generate(rng: random.Random, most: int) -> Case:
        where = rng.choice((*FIELDS, *FIELDS[:4], *RAW))
        endpoint = rng.choice(endpoints)
        form = "anthropic" if endpoint == "anthropic" else "openai"
        how = {
            "endpoint": endpoint,
            "format": form,
            "field": where,
            "lane": rng.choice(lanes),
            "cut": rng.choice(PIECES),
        }
        how["pieces"] = rng.choice((0, 0, 0, 7, 1_000))
        if where in RAW:
            return Case(door, raw_body(rng, where, most), how)
        made = text(rng, most) if where != "usage" else json_text(rng, size(rng, most))
        if how["cut"] < 40:
            made = made[: most // 10]
        if how["pieces"] == 7:
            made = made[:5_000]
        return Case(door, made.encode("utf-8", "surrogatepass"), how)

    async def send(site: Site, case: Case) -> str:
        path = "/a/v1/messages" if case.how["format"] == "anthropic" else "/v1/chat/completions"
        site.strangers.pieces = case.how["pieces"] if len(case.body) < 50_000 else 0
        site.strangers.said = {path: [answer(case.body, case.how)]}
        body = LANES[case.how["lane"]][0](f"{case.how['endpoint']}/m", "Hello")
        body |= {"threadId": f"t{id(case)}"} if "threadId" in body else {}
        body |= {"id": f"c{id(case)}"} if "id" in body else {}
        try:
            return (await streamed(site, case.how["lane"], body))[1]
        finally:
            site.strangers.said, site.strangers.pieces = {}, 0

    return Door(door, generate, send)


# --- bodies of requests ---


def _odd_field(rng: random.Random, example: Any, most: int) -> Any:
    """The example with a strange value somewhere."""
    if isinstance(example, dict) and example and rng.random() < 0.85:
        name = rng.choice(list(example))
        return example | {name: _odd_field(rng, example[name], most)}
    if isinstance(example, list) and example and rng.random() < 0.7:
        if rng.random() < 0.3:
            return example * size(rng, most // (len(dumped(example)) + 1) + 2)
        return [_odd_field(rng, example[0], most), *example[1:]]
    if isinstance(example, str) and rng.random() < 0.6:
        return text(rng, most)
    if isinstance(example, dict) and rng.random() < 0.5:
        return example | {f"k{number}": 1 for number in range(size(rng, most // 12 + 2))}
    return value(rng, most)


def _messages(rng: random.Random) -> list[dict[str, Any]]:
    """A history with each kind of part."""
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
        },
        {"role": "assistant", "content": "y", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "z"},
        {"role": "user", "content": rng.choice(("x", "word " * 20))},
    ]


def _lane_example(rng: random.Random, lane: str) -> dict[str, Any]:
    example = LANES[lane][0]("openai/m", "Hello")
    if lane in ("/v1/chat/completions", "/ag-ui"):
        example["messages"] = _messages(rng)
    more: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"temperature": 1, "stop": ["x"], "tool_choice": "auto", "metadata": {"a": "b"},
                                 "response_format": {"type": "json_schema", "json_schema": {"schema": {}, "name": "a"}}},
        "/v1/responses": {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
                                    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                                    {"type": "function_call_output", "call_id": "c", "output": "x"}],
                          "instructions": "x", "text": {"format": {"type": "text"}}},
        "/v1/messages": {"system": [{"type": "text", "text": "x"}], "stop_sequences": ["x"], "metadata": {},
                         "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        "/ag-ui": {"tools": [LOOK], "context": [{"description": "a", "value": "b"}], "threadId": f"t{rng.random()}"},
        "/ui-message-stream": {"id": f"c{rng.random()}"},
        "/chat": {"system": {"text": "x"}, "options": {}, "client_tools": [LOOK], "labels": ["a"], "max_rounds": 2},
    }  # fmt: skip
    return example | more[lane]


def _lane_case(rng: random.Random, most: int) -> Case:
    lane = rng.choice(list(LANES))
    example = _lane_example(rng, lane)
    if "tools" in example and rng.random() < 0.3:
        body = dumped(example | {"tools": _with_schema(example["tools"], schema(rng, most))})
    else:
        body = dumped(_odd_field(rng, example, most))
    return Case("lanes", _spoilt(rng, body, most), {"lane": lane})


def _with_schema(tools: Any, made: Any) -> Any:
    """The client's tools, with this schema of their arguments."""
    replaced = json.loads(json.dumps(tools))
    for tool in replaced:
        inner = tool.get("function", tool)
        inner["input_schema" if "input_schema" in inner else "parameters"] = made
    return replaced


def _spoilt(rng: random.Random, body: bytes, most: int) -> bytes:
    """Now and then bytes that are no such body."""
    match rng.randrange(12):
        case 0:
            return mutated(rng, body)
        case 1:
            return json_text(rng, size(rng, most)).encode("utf-8", "surrogatepass")
    return body


async def _send_to_lane(site: Site, case: Case) -> str:
    lane = case.how["lane"]
    response, wrong = await fine(site, "POST", lane, content=case.body, headers=JSON)
    if wrong or not response.headers.get("content-type", "").startswith("text/event-stream"):
        return wrong
    ends = LANES[lane][1](response.text)
    return "" if ends == 1 else f"{lane}: {ends} ends: {response.text[-200:]!r}"


# What would change the server for the cases behind it, or ask a real model.
NOT_TRIED = (
    "POST /pause",
    "POST /resume",
    "PATCH /settings",
    "POST /tokens",
    "POST /endpoints",
    "PATCH /people/{name}",
)
WITH_BODY = [
    route for route in ROUTES
    if route.body is not None and route.name not in NOT_TRIED and route.path not in LANES
    and isinstance(route.body.example, dict)
]  # fmt: skip


def _route_case(rng: random.Random, most: int) -> Case:
    route = rng.choice(WITH_BODY)
    assert route.body
    most = rng.choice((200, 60_000, most))
    body = _spoilt(rng, dumped(_odd_field(rng, dict(route.body.example), most)), most)
    return Case("routes", body, {"method": route.method, "path": route.path})


async def _send_to_route(site: Site, case: Case) -> str:
    path = re.sub(r"\{(\w+)(?::path)?\}", lambda found: LOST.get(found[1], "x"), case.how["path"])
    return (await fine(site, case.how["method"], path, content=case.body, headers=JSON))[1]


# --- MCP servers and ours ---


def _mcp_case(rng: random.Random, most: int) -> Case:
    made: Any = schema(rng, most)
    kind = rng.choice(("schema", "schema", "result", "result", "tools", "raw"))
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


async def _send_to_mcp(site: Site, case: Case) -> str:
    """Add the server, have the model call its tool, remove it."""
    try:
        sent = {} if case.how else json.loads(case.body)
    except (ValueError, RecursionError):
        return ""  # it was cut
    said = site.strangers
    said.tools = dumped(sent.get("tools", [{"name": "echo", "inputSchema": {"type": "object"}}]))
    said.result = dumped(sent.get("result", {"content": []}))
    if case.how:
        said.tools = case.body if case.how["raw"] == "tools" else said.tools
        said.result = case.body if case.how["raw"] == "result" else said.result
    try:
        _, wrong = await fine(site, "POST", "/mcp/servers", json={"name": "f", "url": f"{said.url}/mcp"})
        if wrong:
            return wrong
        call = {"name": "mcp__f__echo", "arguments": json.dumps(sent.get("arguments", {}))}
        said.said = {"/v1/chat/completions": [_native(call)]}
        for path in ("/tools", "/mcp/servers", "/mcp/servers/f"):
            _, wrong = await fine(site, "GET", path)
            if wrong:
                return wrong
        _, wrong = await streamed(site, "/chat", LANES["/chat"][0]("native/m", "Hello"))
        return wrong
    finally:
        await site.client.delete("/mcp/servers/f")
        said.said, said.tools, said.result = {}, b"[]", b"{}"


def _native(*calls: dict[str, Any]) -> bytes:
    """A model's answer that makes these calls."""
    made = [{"index": number, "id": f"c{number}", "function": call} for number, call in enumerate(calls)]
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": made}, "finish_reason": "tool_calls"}]}
    return whole("text/event-stream", b"data: %s\n\ndata: [DONE]\n\n" % dumped(chunk))


def _gateway_case(rng: random.Random, most: int) -> Case:
    method = rng.choice(
        ("initialize", "tools/list", "tools/call", "resources/read", "server/discover", "tasks/get", "ping")
    )
    params = rng.choice((value(rng, most), {"name": "ask_agent", "arguments": value(rng, most)}, {"cursor": text(rng, most)},
                         {"protocolVersion": text(rng, 999), "capabilities": value(rng, most)}))  # fmt: skip
    message = {
        "jsonrpc": "2.0",
        "id": rng.choice((1, text(rng, 300), None, [], 1.5)),
        "method": method,
        "params": params,
    }
    body = rng.choice((message, message, [message] * size(rng, 500), _odd_field(rng, message, most)))
    return Case("gateway", _spoilt(rng, dumped(body), most))


async def _send_to_gateway(site: Site, case: Case) -> str:
    headers = JSON | {"accept": "application/json, text/event-stream"}
    return (await fine(site, "POST", "/mcp", content=case.body, headers=headers))[1]


# --- tools of ours ---

# But for those that wait for a person.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "bash": ("command",), "python": ("code",), "read_file": ("path",), "write_file": ("path", "content"),
    "edit_file": ("path", "old", "new"), "list_files": ("path", "pattern"), "job_status": ("id",),
    "job_output": ("id",), "job_cancel": ("id",), "recall_history": ("query",), "read_result": ("call",),
    "update_plan": ("steps",), "create_document": ("title", "content", "kind"),
    "update_document": ("document", "old", "new"), "suggest_edits": ("document", "old", "new", "reason"),
    "read_document": ("document",), "web_fetch": ("url",), "remember": ("text",),
}  # fmt: skip
PLAUSIBLE = {"path": "a.txt", "pattern": "*.py", "document": "Doc", "old": "word ", "title": "Doc", "kind": "markdown"}
WORDS = "a word and a line\n"


def _tool_case(rng: random.Random, most: int) -> Case:
    """Calls of one answer: what is there to be changed first."""
    calls: list[Any] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(list(ARGUMENTS))
        arguments: dict[str, Any] = {
            one: PLAUSIBLE.get(one, WORDS) if rng.random() < 0.5 else _argument(rng, one, most)
            for one in ARGUMENTS[name]
        }
        if rng.random() < 0.1:
            arguments[rng.choice(("extra", "network", "background", "offset"))] = value(rng, most)
        calls.append({"name": name, "arguments": arguments if rng.random() < 0.95 else value(rng, most)})
    if any(call["name"] in ("update_document", "suggest_edits") for call in calls):
        content = rng.choice(
            (WORDS * 9_000, repeated(rng.choice(("word ", "a\n", "<b>*", "é")), size(rng, most)) + "word ")
        )
        calls.insert(0, {"name": "create_document", "arguments": {"title": "Doc", "content": content}})
    if any(call["name"] == "edit_file" for call in calls):
        calls.insert(
            0, {"name": "write_file", "arguments": {"path": "a.txt", "content": "word " + "a\n" * size(rng, most)}}
        )
    return Case("tools", dumped(calls))


def _argument(rng: random.Random, name: str, most: int) -> Any:
    if name in ("choices", "steps"):
        step: Any = rng.choice((text(rng, 999), {"step": text(rng, 999), "state": "active"}))
        return rng.choice(([step] * size(rng, 9_000), value(rng, most)))
    if name in ("command", "code") and rng.random() < 0.7:
        piece = rng.choice(
            (
                "echo $(",
                "a|",
                "a&&",
                "((",
                "x=",
                "<<A\n",
                "'",
                '"',
                "$(( ",
                "if true; then ",
                "{ ",
                "f() { ",
                "for i in a; do ",
                "case x in ",
                ">a ",
                "`",
                "sudo ",
                "env A=b ",
                "xargs ",
                "$'\\x41'",
                "a{b,c}",
            )
        )
        return repeated(piece, size(rng, 100_000))  # fmt: skip
    if name in ("pattern", "path") and rng.random() < 0.5:
        return repeated(
            rng.choice(("*", "**/", "a*", "[a-", "{a,", "../", "/", "?*", "\0", "a/", "[!", "%2e/")), size(rng, 9_000)
        )
    if name == "url":
        return rng.choice(("http://127.0.0.1:9/", "http://", "//", "data:")) + text(rng, 5_000)
    return text(rng, most)


async def _send_to_tools(site: Site, case: Case) -> str:
    try:
        calls = json.loads(case.body)
        made = [{"name": one["name"], "arguments": json.dumps(one["arguments"])} for one in calls]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""  # it was cut
    said = site.strangers
    said.said = {"/v1/chat/completions": [_native(*made)]}
    body = LANES["/chat"][0]("native/m", "Hello") | {"approval": "deny", "time_limit_s": 30}
    if not any(one["name"] in ("bash", "python") for one in made):
        body["approval"] = "auto"
    try:
        return (await streamed(site, "/chat", body))[1]
    finally:
        said.said = {}


# --- what is shown elsewhere ---

EXPORTS = ("markdown", "html", "responses", "json")


def _page_case(rng: random.Random, most: int) -> Case:
    made = rng.choice((markdown, *TEXTS))(rng, size(rng, most))
    return Case("exports", made.encode("utf-8", "surrogatepass"), {"thought": rng.random() < 0.2})


async def _send_to_exports(site: Site, case: Case) -> str:
    """An answer with it, and each form in which a conversation leaves."""
    how = {"format": "openai", "field": "reasoning_content" if case.how["thought"] else "content", "cut": 4_000}
    site.strangers.said = {"/v1/chat/completions": [answer(case.body, how)]}
    said, wrong = await streamed(site, "/chat", LANES["/chat"][0]("native/m", text_of(case.body[:2_000])))
    found = re.search(r'"session": ?"(\w+)"', said)
    if wrong or not found:
        return wrong
    session, wrongs = found[1], list[str]()
    for path in (*(f"export?format={one}" for one in EXPORTS), "log", "documents"):
        wrongs.append((await fine(site, "GET", f"/sessions/{session}/{path}"))[1])
    link, wrong = await fine(site, "POST", f"/sessions/{session}/shares", json={})
    wrongs.append(wrong)
    if link.status_code == 201:
        for kind in ("text/html", "application/json"):
            wrongs.append((await fine(site, "GET", link.json()["path"], headers={"accept": kind}))[1])
        await site.client.delete(f"/shares/{link.json()['id']}")
    wrongs.append((await fine(site, "DELETE", f"/sessions/{session}"))[1])
    return next(filter(None, wrongs), "")


def _import_case(rng: random.Random, most: int) -> Case:
    kind = rng.choice(list(FORMATS))
    odd = value(rng, most)
    said = {
        "role": rng.choice(("user", "assistant")),
        "content": rng.choice((odd, text(rng, most), [{"type": "text", "text": "x"}])),
    }
    row: Any = {
        "claude": {"type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "message": said},
        "codex": {"type": "response_item", "timestamp": "2026-01-01T00:00:00Z", "payload": {"type": "message", **said}},
        "responses": {"type": "message", **said},
    }.get(kind, {"info": {"id": "s"}, "messages": [{"info": said, "parts": [{"type": "text", "text": "x"}]}]})
    row = _odd_field(rng, row, most) if rng.random() < 0.5 else row
    body = b"\n".join([dumped(row)] * (size(rng, 3_000) if len(dumped(row)) < 2_000 else 1))
    return Case("imports", _spoilt(rng, body, most), {"format": kind})


async def _send_to_imports(site: Site, case: Case) -> str:
    return (await fine(site, "POST", f"/sessions/import?format={case.how['format']}", content=case.body))[1]


# --- rules ---


def _rules_case(rng: random.Random, most: int) -> Case:
    names = ("paths", "hosts", "commands", "tool", "arguments", "reason", "network", "name")
    stars = repeated(rng.choice(("*", "**/", "a*", "?*", "[a-z]*", "**a")), size(rng, 3_000))
    rows = [
        {"tool": rng.choice(("bash", "*", stars)), "action": rng.choice(("deny", "ask", "allow")), "reason": "x"}
        | {
            rng.choice(names): rng.choice(
                (stars, [stars] * size(rng, 30), value(rng, most), {"text": stars}, [text(rng, most)])
            )
        }
        for _ in range(rng.choice((1, 1, 40)))
    ]
    return Case("rules", _spoilt(rng, dumped({"rules": rows}), most))


async def _send_to_rules(site: Site, case: Case) -> str:
    """Try the rules on a call with a long command and on what came by other cases."""
    long = {"name": "write_file", "arguments": json.dumps({"path": "a/" * 400 + "b", "content": "a" * 9_000})}
    site.strangers.said = {
        "/v1/chat/completions": [_native(long, {"name": "bash", "arguments": '{"command": "echo a b c"}'})]
    }
    _, wrong = await streamed(site, "/chat", LANES["/chat"][0]("native/m", "Hello") | {"approval": "deny"})
    site.strangers.said = {}
    return wrong or (await fine(site, "POST", "/rules/backtest", content=case.body, headers=JSON))[1]


# --- files ---


def _document_case(rng: random.Random, most: int) -> Case:
    names = sorted(one.name for one in DOCUMENTS.iterdir() if one.suffix not in (".md", ".txt"))
    name = rng.choice(names)
    data = (DOCUMENTS / name).read_bytes()
    if rng.random() < 0.6 and zipfile.is_zipfile(io.BytesIO(data)):
        data = _repacked(rng, data, most)
    elif rng.random() < 0.3:
        data, name = (
            text(rng, most).encode("utf-8", "surrogatepass"),
            rng.choice(("a.html", "a.csv", "a.eml", "a.md", "a.py")),
        )
    else:
        data = mutated(rng, data)
    return Case("documents", data, {"name": name, "way": rng.choice(("attached", "put"))})


def _repacked(rng: random.Random, data: bytes, most: int) -> bytes:
    """The archive with parts that are spoilt."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new,
    ):
        for one in old.infolist():
            part = old.read(one)
            if rng.random() < 0.2:
                piece = rng.choice((b"<w:p>", b"<a>", b"<si/>", b"&lt;", b"<!--", b"<row><c r='A1'><v>1</v></c></row>"))
                at = rng.randrange(len(part) + 1)
                part = rng.choice((mutated(rng, part), part[:at] + piece * size(rng, most) + part[at:]))
            new.writestr(rng.choice((one.filename,) * 9 + ("../x", "/x", "a/" * 2_000, "\x01")), part)
    return out.getvalue()


async def _send_to_documents(site: Site, case: Case) -> str:
    if case.how["way"] == "attached":
        part = {"type": "file", "data": base64.b64encode(case.body).decode(), "name": case.how["name"]}
        return (await streamed(site, "/chat", LANES["/chat"][0]("native/m", "") | {"message": [part]}))[1]
    place = f"/workspace/files/fuzzed-{case.how['name']}"
    site.strangers.said = {
        "/v1/chat/completions": [_native({"name": "read_file", "arguments": json.dumps({"path": place[17:]})})]
    }
    try:
        _, wrong = await fine(site, "PUT", place, content=case.body)
        return wrong or (await streamed(site, "/chat", LANES["/chat"][0]("native/m", "Read.")))[1]
    finally:
        site.strangers.said = {}
        await site.client.delete(place)


# --- lists of models, web pages ---


def _models_case(rng: random.Random, most: int) -> Case:
    row = {"id": "m", "object": "model", "context_length": 1}
    odd = value(rng, most)
    made = rng.choice(({"data": [row] * size(rng, 9_000)}, {"data": odd}, {"data": [dict(row, id=text(rng, most))]}, odd,
                       {"data": [dict(row, id=f"m{number}") for number in range(size(rng, 9_000))]}))  # fmt: skip
    return Case("models", _spoilt(rng, dumped(made), most), {"path": rng.choice(("models", "props", "../api/show"))})


async def _send_to_models(site: Site, case: Case) -> str:
    """An endpoint that answers so, added and listed."""
    told = whole("application/json", case.body)
    paths = ("/f/v1/models", "/f/props", "/f/api/tags", "/f/api/show", "/f/version", "/f/v1/models/m", "/f/health")
    site.strangers.said = {path: [told] * 3 for path in paths}
    try:
        body = {"name": "fuzzed", "url": f"{site.strangers.url}/f/v1"}
        wrongs = [(await fine(site, "POST", "/endpoints", json=body))[1]]
        for path in ("/endpoints", "/v1/models", "/options"):
            wrongs.append((await fine(site, "GET", path))[1])
        wrongs.append((await streamed(site, "/chat", LANES["/chat"][0]("fuzzed", "Hello")))[1])
        return next(filter(None, wrongs), "")
    finally:
        await site.client.delete("/endpoints/fuzzed")
        site.strangers.said = {}


def _web_case(rng: random.Random, most: int) -> Case:
    piece = rng.choice(("<a href=x>", "<div>", "<a ", "<!--", "<p>x</p>", "<table><tr><td>", "&#x", "<b a='", "<script>",
                        "<![CDATA[", "<li><ul>", "<title>", "<style>", "</", "<?xml ", "<pre>", "<a b=c d=e f=g>"))  # fmt: skip
    made = rng.choice((repeated(piece, size(rng, most)), text(rng, most), openers(rng, size(rng, most))))
    kind = rng.choice(
        ("text/html", "text/plain", "application/json", "application/xml", "text/html; charset=utf-7", "x")
    )
    return Case("web", made.encode("utf-8", "surrogatepass"), {"kind": kind})


async def _send_to_web(site: Site, case: Case) -> str:
    fetch = {"name": "web_fetch", "arguments": json.dumps({"url": f"{site.strangers.url}/page"})}
    site.strangers.said = {"/v1/chat/completions": [_native(fetch)], "/page": [whole(case.how["kind"], case.body)] * 2}
    try:
        return (await streamed(site, "/chat", LANES["/chat"][0]("native/m", "Read.")))[1]
    finally:
        site.strangers.said = {}


DOORS: dict[str, Door] = {
    door.name: door
    for door in (
        _model_answer("openai", ("openai", "native"), ("/chat",)),
        _model_answer("anthropic", ("anthropic",), ("/chat",)),
        _model_answer("relays", ("openai", "native", "anthropic"), tuple(LANES)),
        Door("lanes", _lane_case, _send_to_lane),
        Door("routes", _route_case, _send_to_route),
        Door("mcp", _mcp_case, _send_to_mcp, 500_000),
        Door("gateway", _gateway_case, _send_to_gateway, 500_000),
        Door("tools", _tool_case, _send_to_tools, 500_000),
        Door("exports", _page_case, _send_to_exports),
        Door("imports", _import_case, _send_to_imports),
        Door("rules", _rules_case, _send_to_rules, 100_000),
        Door("documents", _document_case, _send_to_documents),
        Door("models", _models_case, _send_to_models),
        Door("web", _web_case, _send_to_web),
    )
}


def case_of(door: Door, seed: int, most: int | None = None) -> Case:
    """The case of a seed, always the same."""
    return door.generate(random.Random(f"{door.name}/{seed}"), most or door.most)

"""Bodies of clients: of lanes, of all routes that take JSON, of our MCP server, rules, imports."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from routes.transcripts.formats import FORMATS
from tests.support.access.access_table import LOST
from tests.support.documented.routes import ROUTES
from tests.support.fuzz.blocks import (
    dumped,
    json_text,
    mutated,
    repeated,
    schema,
    size,
    text,
    value,
)
from tests.support.fuzz.judging import Case
from tests.support.fuzz.site import Site
from tests.support.fuzz.streams import JSON, LANES, LOOK, fine, native, streamed


def odd_field(rng: random.Random, example: Any, most: int) -> Any:
    """The example with a strange value somewhere."""
    if isinstance(example, dict) and example and rng.random() < 0.85:
        name = rng.choice(list(example))
        return example | {name: odd_field(rng, example[name], most)}
    if isinstance(example, list) and example and rng.random() < 0.7:
        if rng.random() < 0.3:
            return example * size(rng, most // (len(dumped(example)) + 1) + 2)
        return [odd_field(rng, example[0], most), *example[1:]]
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
                                 "response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
        "/v1/responses": {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text"}]},
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


def _long_history(rng: random.Random, most: int) -> Case:
    """Thousands of calls, results or replies, of a tool with thousands of parameters, that may lack what pairs them."""
    many = size(rng, most // 200)
    names = {f"p{number}": {"type": rng.choice(("string", "integer"))} for number in range(size(rng, most // 60))}
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    id = rng.choice(("c{}", "c"))
    calls = [dict(call, id=id.format(number)) for number in range(many)]
    turns: list[dict[str, Any]] = rng.choice(
        (
            [{"role": "assistant", "content": "y", "tool_calls": calls}],
            [{"role": "assistant", "content": "y", "tool_calls": [one]} for one in calls],
            [{"role": "assistant", "content": "y"}] * many,
            [{"role": rng.choice(("user", "system", "assistant")), "content": "x"} for _ in range(many)],
        )
    )
    shown = rng.choice(({"tool_call_id": "c"}, {}, {"name": "other"}, None))
    results = [{"role": "tool", "content": "z", **shown}] * many if shown is not None else []
    user = {"role": "user", "content": "x"}
    body = {
        "model": rng.choice(("openai/m", "native/m", "anthropic/m")),
        "stream": True,
        "messages": [user, *turns, *results, user],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"properties": names}}}],
    }
    return Case("lanes", dumped(body), {"lane": "/v1/chat/completions"})


def lane_case(rng: random.Random, most: int) -> Case:
    if rng.random() < 0.15:
        return _long_history(rng, most)
    lane = rng.choice(list(LANES))
    example = _lane_example(rng, lane)
    if "tools" in example and rng.random() < 0.3:
        body = dumped(example | {"tools": _with_schema(example["tools"], schema(rng, most))})
    else:
        body = dumped(odd_field(rng, example, most))
    return Case("lanes", spoilt(rng, body, most), {"lane": lane})


def _with_schema(tools: Any, made: Any) -> Any:
    """The client's tools, with this schema of their arguments."""
    replaced = json.loads(json.dumps(tools))
    for tool in replaced:
        inner = tool.get("function", tool)
        inner["input_schema" if "input_schema" in inner else "parameters"] = made
    return replaced


def spoilt(rng: random.Random, body: bytes, most: int) -> bytes:
    """Now and then bytes that are no such body."""
    match rng.randrange(12):
        case 0:
            return mutated(rng, body)
        case 1:
            return json_text(rng, size(rng, most)).encode("utf-8", "surrogatepass")
    return body


async def send_to_lane(site: Site, case: Case) -> str:
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


def route_case(rng: random.Random, most: int) -> Case:
    route = rng.choice(WITH_BODY)
    assert route.body
    most = rng.choice((200, 60_000, most))
    body = spoilt(rng, dumped(odd_field(rng, dict(route.body.example), most)), most)
    return Case("routes", body, {"method": route.method, "path": route.path})


async def send_to_route(site: Site, case: Case) -> str:
    path = re.sub(r"\{(\w+)(?::path)?\}", lambda found: LOST.get(found[1], "x"), case.how["path"])
    return (await fine(site, case.how["method"], path, content=case.body, headers=JSON))[1]


def gateway_case(rng: random.Random, most: int) -> Case:
    method = rng.choice(
        ("initialize", "tools/list", "tools/call", "resources/read", "server/discover", "tasks/get", "ping")
    )
    params = rng.choice((value(rng, most),
                         {"name": "ask_agent", "arguments": value(rng, most)}, {"cursor": text(rng, most)},
                         {"protocolVersion": text(rng, 999), "capabilities": value(rng, most)}))  # fmt: skip
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": rng.choice((1, text(rng, 300), None, [], 1.5)),
        "method": method,
        "params": params,
    }
    body = rng.choice((message, message, [message] * size(rng, 500), odd_field(rng, message, most)))
    return Case("gateway", spoilt(rng, dumped(body), most))


async def send_to_gateway(site: Site, case: Case) -> str:
    headers = JSON | {"accept": "application/json, text/event-stream"}
    return (await fine(site, "POST", "/mcp", content=case.body, headers=headers))[1]


def rules_case(rng: random.Random, most: int) -> Case:
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
    return Case("rules", spoilt(rng, dumped({"rules": rows}), most))


async def send_to_rules(site: Site, case: Case) -> str:
    """Try the rules on a call with a long command and on what came by other cases."""
    long = {"name": "write_file", "arguments": json.dumps({"path": "a/" * 400 + "b", "content": "a" * 9_000})}
    site.upstreams.answers = {
        "/v1/chat/completions": [native(long, {"name": "bash", "arguments": '{"command": "echo a b c"}'})]
    }
    _, wrong = await streamed(site, "/chat", LANES["/chat"][0]("native/m", "Hello") | {"approval": "deny"})
    site.upstreams.answers = {}
    return wrong or (await fine(site, "POST", "/rules/backtest", content=case.body, headers=JSON))[1]


def import_case(rng: random.Random, most: int) -> Case:
    kind = rng.choice(list(FORMATS))
    odd = value(rng, most)
    turn = {
        "role": rng.choice(("user", "assistant")),
        "content": rng.choice((odd, text(rng, most), [{"type": "text", "text": "x"}])),
    }
    row: Any = {
        "claude": {"type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "message": turn},
        "codex": {"type": "response_item", "timestamp": "2026-01-01T00:00:00Z", "payload": {"type": "message", **turn}},
        "responses": {"type": "message", **turn},
    }.get(kind, {"info": {"id": "s"}, "messages": [{"info": turn, "parts": [{"type": "text", "text": "x"}]}]})
    row = odd_field(rng, row, most) if rng.random() < 0.5 else row
    body = b"\n".join([dumped(row)] * (size(rng, 3_000) if len(dumped(row)) < 2_000 else 1))
    return Case("imports", spoilt(rng, body, most), {"format": kind})


async def send_to_imports(site: Site, case: Case) -> str:
    return (await fine(site, "POST", f"/sessions/import?format={case.how['format']}", content=case.body))[1]

"""What a hostile model's server answers, in each wire format and field, as HTTP."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from typing import Any

from tests.support.fuzz.blocks import dumped, json_text, mutated, size, value
from tests.support.fuzz.site import whole

EVENTS = "text/event-stream"
PIECES = (1, 3, 40, 4_000, 1_000_000)
# Where the text of a case stands in the answer.
FIELDS = ("content", "reasoning_content", "arguments", "name", "id", "whole", "usage", "finish_reason")
RAW = ("events", "json", "http", "gzip", "bomb", "refusal", "head")
# Of the tests' tool of a client, and of ours: what their arguments hold beside the text.
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def text_of(body: bytes) -> str:
    return body.decode("utf-8", "surrogatepass") if is_text(body) else body.decode("latin-1")


def is_text(body: bytes) -> bool:
    try:
        body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def answer(body: bytes, how: dict[str, Any]) -> bytes:
    """The whole answer over HTTP."""
    form, where, cut = how["format"], how["field"], how.get("cut", 4_000)
    if where in RAW:
        return _raw(body, where)
    text = text_of(body)
    pieces = [text[at : at + cut] for at in range(0, len(text), cut)][:20_000] or [""]
    events = (_anthropic if form == "anthropic" else _openai)(pieces, where)
    if where == "whole":
        return whole("application/json", events)
    return whole(EVENTS, events)


def _openai(pieces: list[str], where: str) -> bytes:
    if where == "whole":
        message = {"role": "assistant", "content": "".join(pieces)}
        return dumped({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    deltas: list[dict[str, Any]]
    if where in ("arguments", "name", "id"):
        named = where if where == "id" else "function"
        calls = [{"id": "c1", "function": {"name": "write_file", "arguments": "{"}}] if where == "arguments" else []
        calls += [{named: one if where == "id" else {where: one}} for one in pieces]
        deltas = [{"tool_calls": [{"index": 0, **call}]} for call in calls]
    elif where in ("usage", "finish_reason"):
        deltas = [{"content": "x"}]
    else:
        deltas = [{where: one} for one in pieces]
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
    last: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    if where == "usage":
        last["usage"] = _loaded("".join(pieces))
    if where == "finish_reason":
        last["choices"][0]["finish_reason"] = "".join(pieces)
    return b"".join(b"data: %s\n\n" % dumped(one) for one in [*chunks, last]) + b"data: [DONE]\n\n"


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _anthropic(pieces: list[str], where: str) -> bytes:
    blocks: dict[str, tuple[dict[str, Any], str, str]] = {
        "content": ({"type": "text", "text": ""}, "text_delta", "text"),
        "reasoning_content": ({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking"),
        "id": ({"type": "thinking", "thinking": ""}, "signature_delta", "signature"),
        "arguments": ({"type": "tool_use", "id": "c", "name": "write_file", "input": {}}, "input_json_delta",
                      "partial_json"),
        "name": ({"type": "tool_use", "id": "c", "name": "".join(pieces), "input": {}}, "input_json_delta",
                 "partial_json"),
    }  # fmt: skip
    if where == "whole":
        content = [{"type": "text", "text": "".join(pieces)}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        return dumped({"type": "message", "role": "assistant", "content": content, "usage": usage})
    begun, delta, named = blocks.get(where, blocks["content"])
    usage = _loaded("".join(pieces)) if where == "usage" else {}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": delta, named: one}} for one in pieces),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "".join(pieces) if where == "finish_reason" else "end_turn"},
        },
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %s\ndata: %s\n\n" % (one["type"].encode(), dumped(one)) for one in events)


def _raw(body: bytes, where: str) -> bytes:
    match where:
        case "events":
            return whole(EVENTS, body)
        case "json":
            return whole("application/json", body)
        case "gzip":
            return whole(EVENTS, gzip.compress(body, 1), "content-encoding: gzip")
        case "bomb":
            packing = zlib.compressobj(9, zlib.DEFLATED, 31)
            piece = body * (1_000_000 // max(len(body), 1) + 1)
            bomb = b"".join(packing.compress(piece) for _ in range(40)) + packing.flush()
            return whole(EVENTS, bomb, "content-encoding: gzip")
        case "refusal":
            return whole("application/json", body).replace(b"200 OK", b"400 No", 1)
        case "head":
            return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + body
        case _:
            return body


def raw_body(rng: random.Random, where: str, most: int) -> bytes:
    """Bytes for one of RAW."""
    length = size(rng, most)
    if where in ("json", "refusal"):
        return rng.choice((json_text(rng, length).encode("utf-8", "surrogatepass"), dumped(_odd(rng, length))))
    if where in ("http", "head"):
        pieces = (
            b"x: y\r\n",
            b"1\r\nx\r\n",
            b"HTTP/1.1 103 Hints\r\n\r\n",
            b"content-length: 9\r\n",
            b"\r\n",
            b"0\r\n\r\n",
            b"transfer-encoding: chunked\r\n\r\n" + b"1;a=b\r\nd\r\n" * 50,
            b"a" * 5_000,
            b"\0",
            b" ",
        )
        return b"".join(rng.choices(pieces, k=size(rng, 2_000)))  # fmt: skip
    lines = (
        lambda: b"data: " + dumped(_odd(rng, length // 4 + 1)) + b"\n\n",
        lambda: b"data: " + json_text(rng, length // 4 + 1).encode("utf-8", "surrogatepass") + b"\n\n",
        lambda: (
            rng.choice((b":\n", b"\n", b"data:\n", b"\r", b"id: x\n", b"event: error\n", b"\xef\xbb\xbf", b"data"))
            * (length // 6 + 1)
        ),
        lambda: b"data: " + b"x" * length,
        lambda: b"data: x\n" * (length // 8 + 1) + b"\n",
        lambda: _openai(["x"] * (length // 60 + 1), "content"),
        lambda: mutated(rng, _openai(["a word "] * 20, rng.choice(FIELDS[:5]))),
        lambda: mutated(rng, _anthropic(["a word "] * 20, rng.choice(FIELDS[:5]))),
    )
    return b"".join(rng.choice(lines)() for _ in range(rng.choice((1, 1, 2, 6))))


def _odd(rng: random.Random, length: int) -> Any:
    """A chunk with a strange value in one of its fields."""
    odd = value(rng, length)
    call = {"index": rng.choice((0, -1, 10**9, "x", None)), "id": "c", "function": {"name": "look", "arguments": "{}"}}
    many = [dict(call, index=number, id=f"c{number}") for number in range(size(rng, length // 60 + 2))]
    return rng.choice(
        (
            odd,
            {"choices": odd},
            {"choices": [odd]},
            {"choices": [{"delta": odd}]},
            {"choices": [{"index": 0, "delta": {"content": odd}}]},
            {"choices": [{"index": 0, "delta": {"tool_calls": odd}}]},
            {"choices": [{"index": 0, "delta": {"tool_calls": many}}]},
            {"choices": [{"index": 0, "delta": {"tool_calls": [dict(call, function=odd)]}}]},
            {"choices": [{"index": 0, "delta": {"reasoning_details": odd}}]},
            {"choices": [{"index": 0, "delta": {"content": "x", "logprobs": odd}, "finish_reason": odd}]},
            {"choices": [{"index": 0, "message": {"content": odd, "tool_calls": odd}, "finish_reason": "stop"}]},
            {"error": odd},
            {"error": {"message": odd, "code": odd}},
            {"usage": odd, "choices": []},
            {"type": "message_start", "message": odd},
            {"type": "content_block_start", "index": odd, "content_block": odd},
            {"type": "content_block_delta", "index": 0, "delta": odd},
            {"type": "message_delta", "delta": odd, "usage": odd},
            {"type": "error", "error": odd},
            {"type": "message", "content": odd, "usage": odd},
        )
    )

"""Replies made of the recorded streams of each family of servers, and how they stand in a later request.

What a stream says is read here without our own decoders, as the least that a client of chat completions has to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests import ROOT
from tests.support.models.messages_streams import end, event, says, start, stop

PROVIDERS = ROOT / "fixtures" / "providers"
KINDS = ("parallel", "reasoning", "between", "plain")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
BRIDGE = "I have read the results."
Chunk = dict[str, Any]


class Said(Struct):
    """What a reply of chat completions says: its text, its thoughts and where they came, and its calls in order."""

    text: str = ""
    thought: str = ""
    place: str = ""
    details: bool = False
    calls: list[list[str]] = field(default_factory=list)  # id, name, arguments


def families() -> list[str]:
    """Return the families whose servers take calls out of the text."""
    streams = {path.name: chunks_of(path / "parallel_calls.sse") for path in PROVIDERS.iterdir()}
    return sorted(name for name, chunks in streams.items() if any(delta_of(one).get("tool_calls") for one in chunks))


def reply(family: str, kind: str) -> bytes:
    """A stream in the family's own chunks; b"" if it has none of this kind. Calls have ids of their own."""
    text, calls = (chunks_of(PROVIDERS / family / name) for name in ("text.sse", "parallel_calls.sse"))
    thoughts = [one for one in chunks_of(PROVIDERS / family / "reasoning.sse") if delta_of(one).keys() & {*THOUGHTS}]
    thoughts = thoughts or [one for one in chunks_of(PROVIDERS / family / "reasoning.sse") if parts_of(one)]
    if family == "deepseek":
        whole = chunks_of(PROVIDERS / family / "reasoning_and_call.sse")
        thoughts = [one for one in whole if delta_of(one).get("reasoning_content")]
    words = [without_end(one) for one in text if isinstance(said := delta_of(one).get("content"), str) and said]
    made = [at for at, one in enumerate(calls) if delta_of(one).get("tool_calls")]
    begun = next((at for at in made[1:] if delta_of(calls[at])["tool_calls"][0].get("id")), made[-1] + 1)
    match kind:
        case "plain":
            return encoded(text)
        case "parallel":
            return encoded(named(calls, "1"))
        case "reasoning" if thoughts:
            return encoded([*map(without_end, thoughts), *named(calls, "2")])
        case "between":
            first, second = named(calls[made[0] : begun], "3"), named(calls[begun:], "3")
            return encoded([*words, *first, *(words if begun <= made[-1] else []), *second])
    return b""


def chunks_of(path: Path) -> list[Chunk]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def delta_of(chunk: Chunk) -> Chunk:
    found: Chunk = next((one.get("delta") or {} for one in chunk.get("choices") or []), {})
    return {name: value for name, value in found.items() if value}


def parts_of(chunk: Chunk) -> list[Any]:
    content = delta_of(chunk).get("content")
    return [one for one in content if one["type"] == "thinking"] if isinstance(content, list) else []


def without_end(chunk: Chunk) -> Chunk:
    return chunk | {"choices": [one | {"finish_reason": None} for one in chunk["choices"]]}


def named(chunks: Sequence[Chunk], mark: str) -> list[Chunk]:
    """The chunks, with ids of their calls and spaces in their arguments that no other reply has."""
    copies = json.loads(json.dumps(chunks))
    for call in (call for one in copies for call in delta_of(one).get("tool_calls") or []):
        if call.get("id"):
            call["id"] = f"{mark}{call['id'][1:]}"
        if (written := call["function"].get("arguments") or "").endswith("}"):
            call["function"]["arguments"] = f"{written[:-1]}{' ' * int(mark)}}}"
    return list(copies)


def encoded(chunks: Sequence[Chunk]) -> bytes:
    return "".join([*(f"data: {json.dumps(one)}\n\n" for one in chunks), "data: [DONE]\n\n"]).encode()


def said_in(stream: bytes) -> Said:
    said, by_index = Said(), dict[Any, list[str]]()
    for line in stream.decode().splitlines():
        found = delta_of(json.loads(line[6:])) if line.startswith("data: {") else {}
        content = found.get("content") or ""
        said.text += content if isinstance(content, str) else "".join(one.get("text", "") for one in content)
        name = next((name for name in THOUGHTS if name in found), "")
        said.place = said.place or name
        said.thought += found.get(name) or ""
        said.details |= "reasoning_details" in found
        for part in parts_of({"choices": [{"delta": found}]}):
            said.place = "content"
            said.thought += part["thinking"][0]["text"]
        for call in found.get("tool_calls") or []:
            key = call.get("index", call.get("id"))
            if key not in by_index:
                by_index[key] = ["", "", ""]
                said.calls.append(by_index[key])
            function = call["function"]
            for at, more in enumerate((call.get("id"), function.get("name"), function.get("arguments"))):
                by_index[key][at] += more or ""
    return said


def sent_back(messages: Sequence[Chunk]) -> list[Said]:
    """The replies in a request for chat completions."""
    return [_sent(one) for one in messages if one["role"] == "assistant" and one["content"] != BRIDGE]


def _sent(message: Chunk) -> Said:
    content, name = message["content"], next((name for name in THOUGHTS if name in message), "")
    said = Said("", message.get(name, ""), name, "reasoning_details" in message)
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if part["type"] == "thinking":
            said.place, said.thought = "content", said.thought + part["thinking"][0]["text"]
        else:
            said.text += part["text"]
    said.place = said.place if said.thought else ""
    calls = ((call["id"], call["function"]) for call in message.get("tool_calls", []))
    said.calls = [[id, function["name"], function["arguments"]] for id, function in calls]
    return said


def messages_reply(kind: str) -> bytes:
    """The same of the Messages API."""
    folder = PROVIDERS / "anthropic"
    match kind:
        case "plain":
            return (folder / "text.sse").read_bytes()
        case "parallel":
            return (folder / "parallel_tools.sse").read_bytes()
        case "reasoning":
            return (folder / "thinking_and_tool.sse").read_bytes()
    blocks = [
        *text_block(0, "One. "),
        *tool(1, "toolu_3a", '{"command":"ls", "n": 1.50}'),
        *text_block(2, "Two."),
        *tool(3, "toolu_3b", "{}"),
        *text_block(4, "Three."),
    ]
    return "".join([start(), *blocks, end("tool_use")]).encode()


def messages_text(text: str) -> bytes:
    return "".join([start(), *text_block(0, text), end("end_turn")]).encode()


def text_block(index: int, text: str) -> Iterator[str]:
    yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    yield says(text, index)
    yield stop(index)


def tool(index: int, id: str, arguments: str) -> Iterator[str]:
    block = {"type": "tool_use", "id": id, "name": "bash", "input": {}}
    yield event("content_block_start", index=index, content_block=block)
    yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": arguments})
    yield stop(index)


def blocks_in(stream: bytes) -> list[Chunk]:
    """The blocks of a reply that can go back: none is only white space."""
    blocks, texts = list[Chunk](), list[dict[str, str]]()
    for line in stream.decode().splitlines():
        match json.loads(line[6:]) if line.startswith("data: {") else {}:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append(dict(block))
                texts.append({})
            case {"type": "content_block_delta", "delta": {"type": _} as more}:
                for name, text in more.items():
                    texts[-1][name] = texts[-1].get(name, "") + text
    for block, more in zip(blocks, texts, strict=True):
        block |= {name: more[name] for name in ("text", "thinking", "signature") if name in more}
        if block["type"] == "tool_use":
            block["input"] = json.loads(more.get("partial_json") or "{}")
    return [one for one in blocks if one["type"] != "text" or one["text"].strip()]

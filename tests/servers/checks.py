"""What is tried at each server, through dragoman: a row each, with the answer of the server that is kept.

A check returns what was seen, in a few words, or raises AssertionError. Whether calls and thoughts come apart or in
the text is the server's affair: what a person gets must be the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tests.servers.forced_replies import RESULT
from tests.servers.recorder import Recorder
from tests.support.server.serving import Served

NOON = "It is noon."
THOUGHT = "I should look."
TOO_MANY_WORDS = "word " * 12_000  # more tokens than the window of 8192
LIMIT_S = 600
CANCEL_S = 10


@dataclass(frozen=True, slots=True)
class Tried:
    """One server under test: dragoman in front of it, the proxy between them, and the model's name."""

    served: Served
    recorder: Recorder
    model: str

    async def chat(self, case: str, **more: object) -> list[dict[str, Any]]:
        return await self.served.chat(f"CASE:{case}", **more)

    async def relay(self, content: str = "CASE:plain", **more: object) -> tuple[int, Any]:
        """Status and body of a chat completion."""
        body = {"model": self.model, "messages": [{"role": "user", "content": content}], **more}
        answer = await self.served.client.post("/v1/chat/completions", json=body, timeout=LIMIT_S)
        return answer.status_code, answer.json()


def said(events: list[dict[str, Any]]) -> str:
    """The final answer of a run that has one."""
    last = events[-1]
    assert last["type"] == "run.finished", f"{last.get('code')}: {last.get('message')}"
    return str(last["text"]).strip()


def text_of(events: list[dict[str, Any]], kind: str) -> str:
    return "".join(event["text"] for event in events if event["type"] == kind)


def function(name: str, argument: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


FUNCTIONS = [function("bash", "command"), function("read_file", "path")]


async def plain(tried: Tried) -> str:
    """An answer, and what was found out about the model."""
    events = await tried.chat("plain", tools=[])
    assert said(events) == NOON, said(events)
    used = next(event for event in events if event["type"] == "usage")
    [endpoint] = (await tried.served.client.get("/endpoints")).json()["endpoints"]
    [model] = [one for one in endpoint["models"] if one["name"] == tried.model]
    counting = next((one["value"] for one in model["abilities"] if one["name"] == "counting"), None)
    tokens = f"tokens {'counted' if used['measured'] else 'estimated'}"
    return f"window {model['window']}, {tokens}, counts prompts: {counting or 'no'}"


async def call_round(tried: Tried) -> str:
    events = await tried.chat("note", tools=["read_file"])
    [started] = [event for event in events if event["type"] == "tool.started"]
    assert RESULT in said(events), said(events)
    return str(started["dialect"])


async def parallel_calls(tried: Tried) -> str:
    status, body = await tried.relay("CASE:two", tools=FUNCTIONS)
    assert status == 200, body
    calls = [one["function"] for one in body["choices"][0]["message"]["tool_calls"]]
    seen = [(one["name"], json.loads(one["arguments"])) for one in calls]
    assert seen == [("bash", {"command": "ls"}), ("read_file", {"path": "a.txt"})], seen
    return "2 calls"


async def thought(tried: Tried) -> str:
    events = await tried.chat("thought", tools=[])
    assert said(events) == NOON, said(events)
    assert text_of(events, "reasoning.delta").strip() == THOUGHT, events
    return "apart"


async def thought_and_call(tried: Tried) -> str:
    events = await tried.chat("thoughtful", tools=["read_file"])
    assert text_of(events, "reasoning.delta").strip().startswith(THOUGHT), events
    [started] = [event for event in events if event["type"] == "tool.started"]
    assert RESULT in said(events), said(events)
    return str(started["dialect"])


async def too_long(tried: Tried) -> str:
    status, body = await tried.relay(TOO_MANY_WORDS)
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded"), body
    return "context_length_exceeded"


async def refused_value(tried: Tried) -> str:
    status, body = await tried.relay(reasoning_effort="silly", service_tier="x")
    assert status == 200, body
    assert body["choices"][0]["message"]["content"].strip() == NOON
    return "answered"


async def unknown_parameter(tried: Tried) -> str:
    status, body = await tried.relay(of_no_server=1)
    return "ignored" if status == 200 else f"{status}: {body['error']['message']}"


async def temperature_below_0(tried: Tried) -> str:
    status, body = await tried.relay(temperature=-3)
    return "answered" if status == 200 else f"{status}: {body['error']['message']}"


async def cancelled(tried: Tried) -> str:
    """A run that is cancelled ends at once, and so does the server's answer."""
    async with asyncio.timeout(LIMIT_S), aclosing(tried.served.turn(message="CASE:long", tools=[])) as turn:
        run = ""
        async for event in turn:
            run = run or event["run"]
            if event["type"] in ("text.delta", "reasoning.delta"):
                break
        began = asyncio.get_running_loop().time()
        answer = await tried.served.client.post(f"/runs/{run}/cancel")
        assert answer.is_success, answer.text
        rest = [event async for event in turn]
    took = asyncio.get_running_loop().time() - began
    assert rest[-1]["reason"] == "cancelled" and took < CANCEL_S, (rest[-1], took)
    assert not tried.recorder.chats[-1].ended
    assert said(await tried.chat("plain", tools=[])) == NOON  # the server is free again
    return f"after {took:.1f} s"


async def unknown_model(tried: Tried) -> str:
    """A server of one model may answer whatever it is called."""
    last = (await tried.chat("plain", tools=[]))[-1]
    assert last.get("code", "model_not_found") == "model_not_found", last
    return "model_not_found" if last["type"] == "run.failed" else "answered all the same"


@dataclass(frozen=True, slots=True)
class Check:
    """`flags` are settings of dragoman."""

    name: str
    run: Callable[[Tried], Awaitable[str]]
    flags: Mapping[str, object] = field(default_factory=dict)


CHECKS = (
    Check("plain", plain),
    Check("call round", call_round),
    Check("call round in text", call_round, {"tool_calls": "tagged"}),
    Check("parallel calls", parallel_calls),
    Check("thought", thought),
    Check("thought and call", thought_and_call),
    Check("prompt too long", too_long),
    Check("refused value", refused_value),
    Check("unknown parameter", unknown_parameter),
    Check("temperature below 0", temperature_below_0),
    Check("unknown model", unknown_model, {"model": "nope"}),
    Check("cancel", cancelled),
)

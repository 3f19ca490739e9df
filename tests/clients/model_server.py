"""A model's server that speaks chat completions, with models that write their calls in seven ways.

The last user message that names a scenario (`scenario one (job 7)`) decides its answer. What it was sent, and whose
connection was closed before the answer's end, is kept for the tests.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import time
from asyncio import StreamReader, StreamWriter
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.clients.scenarios import SCENARIOS, Read, Reply
from tests.support.models.upstream import Asked, Upstream, answer, upstream
from tests.support.parsing.forms import WRITERS
from tests.support.parsing.writers import Writer

KEY = "sk-of-the-model"
# The name of a model -> how it writes calls; None is natively.
WAYS: Mapping[str, Writer | None] = {
    "native": None,
    "hermes": WRITERS["hermes"],
    "xml": WRITERS["qwen3_coder"],
    "fence": WRITERS["fence_tool_call"],
    "dsml": WRITERS["dsml_v4"],
    "mistral": WRITERS["mistral_args"],
    "granite": WRITERS["granite3"],
}
NAMED = re.compile(r"scenario ([a-z-]+)(?: \(job ([\w.:-]+)\))?")
DELIMITED = re.compile(r"^(?:Untrusted result|Result) of \S+ \[(\w+)\]:\n(.*?)\n\[end \1\]", re.DOTALL | re.MULTILINE)
PIECE = 6  # characters of a delta
TICK_S = 0.2
TOGETHER = 20
BEGUN = "/begun/"
Delta = dict[str, Any]


@dataclass(slots=True)
class Model:
    """`bodies` are requests by their job; `gone` ends with the time at which a job's client left before the end.

    `begun` are jobs that have come, for which `GET /begun/JOB` waits. `together` lets twenty requests go on when all of
    them have come.
    """

    server: Upstream = field(default_factory=Upstream)
    bodies: defaultdict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    gone: defaultdict[str, asyncio.Future[float]] = field(default_factory=lambda: defaultdict(asyncio.Future))

    begun: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    together: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(TOGETHER))

    async def __call__(self, reader: StreamReader, writer: StreamWriter) -> None:
        asked = self.server.asked.pop()  # with its pictures it is large
        if asked.path.startswith(BEGUN):
            await self.begun[asked.path.removeprefix(BEGUN)].wait()
            await answer("{}")(reader, writer)
        elif asked.path.endswith("/models"):
            rows = [{"id": name, "object": "model", "created": 1, "owned_by": "tests"} for name in WAYS]
            await answer(json.dumps({"object": "list", "data": rows}))(reader, writer)
        elif not asked.path.endswith("/chat/completions"):
            await answer(error("not_found", "There is no such page."), 404)(reader, writer)
        else:
            await self._chat(asked, reader, writer)

    async def _chat(self, asked: Asked, reader: StreamReader, writer: StreamWriter) -> None:
        body = asked.json
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return await answer(error("invalid_api_key", "Incorrect API key provided."), 401)(reader, writer)
        if body["model"] not in WAYS:
            return await answer(error("model_not_found", "The model does not exist."), 404)(reader, writer)
        read = understood(body)
        job = read.job
        self.bodies[job].append(body)
        self.begun[job].set()
        scenario = SCENARIOS.get(read.scenario)
        reply = scenario(read) if scenario else Reply("A conversation")
        if reply.then == "together":
            await self.together.wait()
        if body.get("stream"):
            return await self._stream(reply, body, job, reader, writer)
        if reply.then == "go on":
            return await self._until_gone(job, reader, writer)
        failed = reply.then in ("fail", "break")
        text = error("server_error", "The model has failed.") if failed else json.dumps(whole(reply, body))
        return await answer(text, 500 if failed else 200)(reader, writer)

    async def _stream(
        self, reply: Reply, body: dict[str, Any], job: str, reader: StreamReader, writer: StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for delta in deltas(reply, body["model"]):
            send(writer, chunk(body, {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
            await writer.drain()
        if reply.then == "break":
            return writer.close()
        if reply.then == "go on":
            words = chunk(body, {"choices": [{"index": 0, "delta": {"content": "more "}}]})
            return await self._until_gone(job, reader, writer, words)
        if reply.then == "fail":
            send(writer, json.loads(error("server_error", "The model has failed.")))
        else:
            last = {"index": 0, "delta": {}, "finish_reason": finish(reply, body["model"])}
            send(writer, chunk(body, {"choices": [last]}))
            if (body.get("stream_options") or {}).get("include_usage"):
                send(writer, chunk(body, {"choices": [], "usage": usage(reply)}))
        send(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return None

    async def _until_gone(
        self, job: str, reader: StreamReader, writer: StreamWriter, words: dict[str, Any] | None = None
    ) -> None:
        """Words without end, until the client leaves."""
        leaving = asyncio.ensure_future(reader.read(1))
        while not leaving.done():
            if words:
                send(writer, words)
            await asyncio.wait({leaving}, timeout=TICK_S)
        leaving.exception()  # a connection that was reset is one that was left
        if not self.gone[job].done():
            self.gone[job].set_result(time.time())
        writer.close()


def understood(body: dict[str, Any]) -> Read:
    """A request as the model reads it."""
    messages = [(message["role"], message, text_of(message.get("content"))) for message in body["messages"]]
    at = max((at for at, (role, _, text) in enumerate(messages) if role == "user" and NAMED.search(text)), default=-1)
    found = NAMED.search(messages[at][2]) if at >= 0 else None
    offered = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in body.get("tools") or []}
    around = json.dumps([body.get("tools"), [text for role, _, text in messages if role == "system"]])
    return Read(
        found[1] if found else "",
        [one for role, _, text in messages[at + 1 :] if role in ("tool", "user") for one in results_in(text)],
        offered,
        lambda name: name in around,
        pictures_of(messages[at][1].get("content")) if found else [],
        body,
        [(role, text) for role, _, text in messages if role in ("user", "assistant")],
        (found[2] if found else "") or "",
    )


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content)
    return content or ""


def results_in(text: str) -> list[str]:
    """One, or as many as stand between delimiters."""
    return [found[2] for found in DELIMITED.finditer(text)] or [text]


def pictures_of(content: Any) -> list[bytes]:
    urls = [part["image_url"]["url"] for part in content if "image_url" in part] if isinstance(content, list) else []
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


def deltas(reply: Reply, model: str) -> Iterator[Delta]:
    """The reply in small pieces, as this model writes it."""
    writer = WAYS[model]
    text = reply.text % (writer or WRITERS["hermes"])(reply.example) if reply.example else reply.text
    yield {"role": "assistant", "content": ""}
    if writer is None:
        yield from ({"reasoning_content": piece} for piece in pieces(reply.thought))
        yield from ({"content": piece} for piece in pieces(text))
        for index, (name, arguments) in enumerate(reply.calls):
            call = {"index": index, "id": f"call_{secrets.token_hex(6)}", "type": "function"}
            yield {"tool_calls": [call | {"function": {"name": name, "arguments": ""}}]}
            written = json.dumps(arguments)
            for piece in pieces(written[: len(written) // 2] if reply.cut_call else written):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
        return
    calls = writer(reply.calls) if reply.calls else ""
    thought = f"<think>\n{reply.thought}\n</think>\n\n" if reply.thought else ""
    between = "\n\n" if text and calls else ""
    written = thought + text + between + (calls[: len(calls) // 2] if reply.cut_call else calls)
    yield from ({"content": piece} for piece in pieces(written))


def pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def finish(reply: Reply, model: str) -> str:
    """Where calls are text, a server does not know of them."""
    return "tool_calls" if reply.calls and WAYS[model] is None and not reply.cut_call else reply.finish


def usage(reply: Reply) -> dict[str, int]:
    return {**reply.usage, "total_tokens": sum(reply.usage.values())}


def whole(reply: Reply, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for delta in deltas(reply, body["model"]):
        for name in ("content", "reasoning_content"):
            message[name] = message.get(name, "") + delta.get(name, "")
        for part in delta.get("tool_calls", []):
            calls = message.setdefault("tool_calls", [])
            if "id" in part:
                calls.append({"id": part["id"], "type": "function", "function": part["function"]})
            else:
                calls[-1]["function"]["arguments"] += part["function"]["arguments"]
    message["content"] = message["content"] or None
    choice = {"index": 0, "message": message, "finish_reason": finish(reply, body["model"])}
    return chunk(body, {"object": "chat.completion", "choices": [choice], "usage": usage(reply)})


def chunk(body: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    return head | dict(fields)


def send(writer: StreamWriter, data: dict[str, Any] | str) -> None:
    block = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(block), block))


def error(code: str, message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}})


@asynccontextmanager
async def model_server() -> AsyncGenerator[Model, None]:
    model = Model()
    async with upstream(model, repeat=True) as server:
        model.server = server
        yield model

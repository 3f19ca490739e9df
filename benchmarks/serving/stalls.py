"""How long a stranger's text keeps others waiting: `GET /livez` from another process while the server reads it.

`python -m benchmarks.serving.stalls WORDS`: only the rows whose names have one of these words; `--checkout FOLDER`: of
another version of dragoman. Each row is the longest of the answers to /livez, one after another on one connection, from
the request that brings the text until that is answered, in milliseconds, and beside it the most CPU that the thread of
the loop had between two of the answers, which no busy machine changes: no callback had more. The first row is a server
that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.processes import child, dragoman

GOAL_MS = 100.0
CPU_GOAL_MS = 20.0
IDLE_S = 2.0
LIMIT_S = 120.0
PAUSE_S = 0.002
MEGABYTE = 1_000_000
JSON_HEADERS = {"content-type": "application/json"}
SHAPES = {
    "<tool": MEGABYTE,
    "<think>": MEGABYTE,
    "<|tool": 500_000,
    "</tool": 500_000,
    '<tool"': 500_000,
    "<": 500_000,
    "\n<tool": 500_000,
    '<invoke name="': 500_000,
    "word ": MEGABYTE,
}
DOORS = (
    *("/chat", "/schedules", "/triggers", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/ag-ui"),
    "/ui-message-stream",
)
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}},
}
# Native calls: the tool, its short arguments, and the long one.
NATIVE: dict[str, tuple[str, dict[str, str], str]] = {
    "arguments": ("look", {}, "command"),
    "document": ("create_document", {"title": "Harbour"}, "content"),
    "file": ("write_file", {"path": "harbour.txt"}, "content"),
}
# Calls in text: what stands before and behind the long part, which is read when the call ends.
WRITTEN = {
    "call in JSON": ('<tool_call>\n{"name": "look", "arguments": {"command": [', '"end"]}}\n</tool_call>'),
    "call in Python": ("[look(command=[", '"end"])]'),
}


@dataclass(frozen=True)
class Answer:
    """What the model's server sends: `text`, so often, in pieces of this size, in this field."""

    text: str
    times: int
    size: int = 4_000
    field: str = "content"

    @property
    def marker(self) -> str:
        return f"answer={json.dumps([self.text, self.times, self.size, self.field]).encode().hex()}."

    def body(self) -> tuple[str, bytes]:
        """The content type, and the body."""
        before, behind = WRITTEN.get(self.field, ("", ""))
        text = before + self.text * self.times + behind
        if self.field == "whole":
            message = {"role": "assistant", "content": text}
            whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            return "application/json", json.dumps(whole).encode()
        if self.field == "json":
            return "text/event-stream", b'data: {"choices":[],"x":[%s]}\n\ndata: [DONE]\n\n' % text.encode()
        deltas: list[dict[str, Any]]
        if self.field in NATIVE:
            written = json.dumps(NATIVE[self.field][1] | {NATIVE[self.field][2]: text})
            name = NATIVE[self.field][0]
            calls: list[dict[str, Any]] = [{"id": "c1", "function": {"name": name, "arguments": ""}}]
            calls += [{"function": {"arguments": piece}} for piece in pieces_of(written, self.size)]
            deltas = [{"tool_calls": [{"index": 0, **call}]} for call in calls]
        else:
            field = "content" if self.field in WRITTEN else self.field
            deltas = [{field: piece} for piece in pieces_of(text, self.size)]
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        return "text/event-stream", b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in chunks)


def pieces_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


# --- the model's server: `python -m benchmarks.serving.stalls --upstream` ---


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        asked = (await reader.readexactly(length)).decode()
        if '"role":"tool"' in asked:
            kind, body, status = *Answer("Done.", 1).body(), "200 OK"
        elif "answer=" in asked:
            marker = asked.rpartition("answer=")[2].partition(".")[0]
            text, times, size, field = json.loads(bytes.fromhex(marker))
            kind, body = Answer(text, times, size, field).body()
            status = "200 OK"
        else:
            kind, body, status = "application/json", b"{}", "404 Not Found"
        lines = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(lines.encode() + body)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


# --- the rows ---

Act = Callable[[int], None]


def post(path: str, body: bytes, *, method: str = "POST") -> Act:
    def act(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        connection.request(method, path, body, JSON_HEADERS)
        response = connection.getresponse()
        while response.read(1 << 16):
            pass
        connection.close()

    return act


def chat(answer: Answer) -> Act:
    return post("/chat", json.dumps({"message": answer.marker}).encode())


def relayed(answer: Answer) -> Act:
    messages = [{"role": "user", "content": answer.marker}]
    body = {"model": "bench", "messages": messages, "stream": True, "tools": [TOOL]}
    return post("/v1/chat/completions", json.dumps(body).encode())


def keys(first: str) -> bytes:
    return ("{" + first + ",".join(f'"k{number:06d}":1' for number in range(95_000)) + "}").encode()


def rows() -> dict[str, Act]:
    found: dict[str, Act] = {"idle": lambda _: time.sleep(IDLE_S)}
    for shape, size in SHAPES.items():
        found[f"chat, text {shape!r}"] = chat(Answer(shape, size // len(shape)))
        found[f"relay, text {shape!r}"] = relayed(Answer(shape, size // len(shape)))
    for name, asked in {"chat": chat, "relay": relayed}.items():
        found[f"{name}, one piece"] = asked(Answer("<tool", 200_000, MEGABYTE))
        found[f"{name}, pieces of 5"] = asked(Answer("<tool", 80_000, 5))
        found[f"{name}, not streamed"] = asked(Answer("<tool", 200_000, field="whole"))
        found[f"{name}, reasoning"] = asked(Answer("<tool", 200_000, field="reasoning_content"))
        found[f"{name}, arguments"] = asked(Answer("<tool", 200_000, field="arguments"))
        found[f"{name}, 4 MB"] = asked(Answer("<tool", 840_000))
        found[f"{name}, many values"] = asked(Answer("[],", 400_000, field="json"))
    for kind in WRITTEN:
        for text in ("1,", '{"a":1},', '"word",'):
            found[f"{kind}, {text}"] = chat(Answer(text, 300_000 // len(text), field=kind))
    for text in ("word ", "a\n", "<b>*", '\\"', "\u00e9"):
        found[f"document of 190 KB, {text!a}"] = chat(Answer(text, 190_000 // len(text), field="document"))
    found["document of 300 KB"] = chat(Answer("word ", 60_000, field="document"))
    found["file of 900 KB"] = chat(Answer("a\n", 450_000, field="file"))
    for path in DOORS:
        found[f"95,000 keys, {path}"] = post(path, keys('"message":"x",' if path == "/chat" else ""))
    return found


def loop_cpu_ms(server: psutil.Process) -> float:
    """The CPU that the main thread has had, which is that of the event loop; 0 where the system does not say."""
    path = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat")
    return int(path.read_text().split()[0]) / 1e6 if path.exists() else 0.0


def longest_ms(port: int, server: psutil.Process, act: Act) -> tuple[float, float, float]:
    """The longest wait for /livez while `act` goes on, the most CPU meanwhile, and how long it does; milliseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    connection.connect()
    working = threading.Thread(target=act, args=(port,))
    began, longest, most = time.perf_counter(), 0.0, 0.0
    working.start()
    before = loop_cpu_ms(server)
    while working.is_alive():
        asked = time.perf_counter()
        connection.request("GET", "/livez")
        connection.getresponse().read()
        longest = max(longest, time.perf_counter() - asked)
        most, before = max(most, (now := loop_cpu_ms(server)) - before), now
        time.sleep(PAUSE_S)
    connection.close()
    return longest * 1000, most, (time.perf_counter() - began) * 1000


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.stalls")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--checkout", type=lambda path: Path(path).absolute())
    wanted = parser.parse_args(arguments or [])
    chosen = {
        name: act for name, act in rows().items() if not wanted.words or any(word in name for word in wanted.words)
    }
    if not chosen:
        parser.error(f"no row has one of {wanted.words} in its name")
    worst, worst_cpu = 0.0, 0.0
    with child("-m", "benchmarks.serving.stalls", "--upstream") as (upstream, _):
        flags = ("--model-url", f"http://127.0.0.1:{upstream}/v1", "--model", "bench")
        with dragoman(*flags, checkout=wanted.checkout) as (port, server):
            chat(Answer("word ", 10))(port)
            for name, act in chosen.items():
                longest, cpu, took = longest_ms(port, server, act)
                worst, worst_cpu = max(worst, longest), max(worst_cpu, cpu)
                print(f"{name:36}{longest:9.1f} ms,{cpu:7.1f} ms of CPU, of{took:9.0f} ms", flush=True)
    for what, value, goal in (("the longest", worst, GOAL_MS), ("the most CPU", worst_cpu, CPU_GOAL_MS)):
        print(f"{what:36}{value:9.1f} ms, goal {goal:.0f}: {'reached' if value <= goal else 'missed'}")


if __name__ == "__main__":
    if "--upstream" in sys.argv:
        asyncio.run(serve())
    else:
        main(sys.argv[1:])

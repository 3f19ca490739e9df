"""How long a stranger's text keeps others waiting: `GET /livez` from another process while the server reads it.

`python -m benchmarks.serving.stalls WORDS`: only the rows whose names have one of these words; `--checkout FOLDER`: of
another version of dragoman. Each row is the longest of the answers to /livez, one after another on one connection, from
the request that brings the text until that is answered, in milliseconds; the first row is a server that does nothing
else.
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

from benchmarks.processes import child, dragoman

GOAL_MS = 100.0
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
        text = self.text * self.times
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
            deltas = [{self.field: piece} for piece in pieces_of(text, self.size)]
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
    for text in ("word ", "a\n", "<b>*", '\\"', "\u00e9"):
        found[f"document of 190 KB, {text!a}"] = chat(Answer(text, 190_000 // len(text), field="document"))
    found["document of 300 KB"] = chat(Answer("word ", 60_000, field="document"))
    found["file of 900 KB"] = chat(Answer("a\n", 450_000, field="file"))
    for path in DOORS:
        found[f"95,000 keys, {path}"] = post(path, keys('"message":"x",' if path == "/chat" else ""))
    return found


def longest_ms(port: int, act: Act) -> tuple[float, float]:
    """The longest wait for /livez while `act` goes on, and how long it does, in milliseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    connection.connect()
    working = threading.Thread(target=act, args=(port,))
    began, longest = time.perf_counter(), 0.0
    working.start()
    while working.is_alive():
        asked = time.perf_counter()
        connection.request("GET", "/livez")
        connection.getresponse().read()
        longest = max(longest, time.perf_counter() - asked)
        time.sleep(PAUSE_S)
    connection.close()
    return longest * 1000, (time.perf_counter() - began) * 1000


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.stalls")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--checkout", type=lambda path: Path(path).absolute())
    wanted = parser.parse_args(arguments or [])
    worst = 0.0
    with child("-m", "benchmarks.serving.stalls", "--upstream") as (upstream, _):
        flags = ("--model-url", f"http://127.0.0.1:{upstream}/v1", "--model", "bench")
        with dragoman(*flags, checkout=wanted.checkout) as (port, _):
            chat(Answer("word ", 10))(port)
            for name, act in rows().items():
                if wanted.words and not any(word in name for word in wanted.words):
                    continue
                longest, took = longest_ms(port, act)
                worst = max(worst, longest)
                print(f"{name:36}{longest:9.1f} ms of{took:9.0f} ms", flush=True)
    print(f"\nthe longest{worst:34.1f} ms, goal {GOAL_MS:.0f}: {'reached' if worst <= GOAL_MS else 'missed'}")


if __name__ == "__main__":
    if "--upstream" in sys.argv:
        asyncio.run(serve())
    else:
        main(sys.argv[1:])

"""A real server among others that answer as a case wants: a model's server, an MCP server, a web page."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests import ROOT
from tests.support.documented.routes import ROUTES
from tests.support.fuzz.probe import Seen
from tests.support.models.upstream import Asked, request
from tests.support.server.serving import NO_TLS

LIMIT_S = 90.0  # of one case on a busy machine
START_S = 60
MODEL_ANSWER = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DONE = 'data: {"choices":[{"index":0,"delta":{"content":"Done."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
DONE_BY_ANTHROPIC = "".join(
    f"event: {one['type']}\ndata: {json.dumps(one)}\n\n"
    for one in (
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )
)
LEFT_OUT = ("GET /events", "GET /mcp", "POST /pause")  # which do not end, or change later answers
TRACEBACK = "Traceback (most recent call last)"


def whole(kind: str, body: bytes, *headers: str) -> bytes:
    """An answer over HTTP with its length."""
    head = [f"HTTP/1.1 200 OK\r\ncontent-type: {kind}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@dataclass(slots=True)
class Upstreams:
    """One server on a real socket in place of all others; `answers` has those to the next requests of a path."""

    port: int = 0
    answers: dict[str, list[bytes]] = field(default_factory=dict)
    pieces: int = 0  # bytes of each write; 0 for all at once
    tools: bytes = b"[]"  # of the MCP server
    result: bytes = b"{}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError, ValueError):
            while received := await request(reader):
                answer = self._answer(received)
                step = self.pieces or len(answer) or 1
                for at in range(0, len(answer), step):
                    writer.write(answer[at : at + step])
                    await writer.drain()
                    if self.pieces:
                        await asyncio.sleep(0)
                if received.method != "POST" or not received.path.startswith("/mcp"):
                    break
        writer.close()

    def _answer(self, received: Asked) -> bytes:
        path = received.path.partition("?")[0]
        if prepared := self.answers.get(path):
            return prepared.pop(0)
        if path.startswith("/mcp"):
            return self._of_mcp(received)
        if path.endswith("/chat/completions"):
            return MODEL_ANSWER.encode() + DONE.encode()
        if path.endswith("/messages"):
            return MODEL_ANSWER.encode() + DONE_BY_ANTHROPIC.encode()
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"

    def _of_mcp(self, received: Asked) -> bytes:
        if received.method != "POST":
            return b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n"
        message = json.loads(received.body)
        number = json.dumps(message.get("id")).encode()
        match message["method"]:
            case "initialize":
                served = {"capabilities": {"tools": {}, "resources": {}}, "serverInfo": {"name": "f", "version": "1"}}
                result = json.dumps({"protocolVersion": "2025-06-18", **served}).encode()
            case "tools/list":
                result = b'{"tools":%s}' % self.tools
            case "tools/call" | "resources/read" | "resources/list" | "prompts/list":
                result = self.result
            case "server/discover":
                return b"HTTP/1.1 400 No\r\ncontent-length: 0\r\n\r\n"
            case _:
                return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        body = b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (number, result)
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


@dataclass(slots=True)
class Site:
    """All of it while it runs."""

    folder: Path
    upstreams: Upstreams
    client: httpx2.AsyncClient
    process: Process
    probe: Process
    log: Path
    read: int = 0  # of the log

    @property
    def lives(self) -> bool:
        return self.process.returncode is None

    @property
    def workspace(self) -> Path:
        return self.folder / "work"

    async def seen(self) -> Seen:
        """What the probe saw since the last call."""
        assert self.probe.stdin and self.probe.stdout
        self.probe.stdin.write(b"\n")
        async with asyncio.timeout(LIMIT_S):
            return Seen(**json.loads(await self.probe.stdout.readline()))

    def news(self) -> str:
        """What the server wrote to its log since it was read last."""
        with self.log.open(errors="replace") as log:
            log.seek(self.read)
            written = log.read()
            self.read = log.tell()
        return written

    def memory(self) -> tuple[int, int]:
        """Resident bytes, now and at their most since `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        now, peak = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        return now, peak

    def forget_peak(self) -> None:
        with suppress(OSError):  # a kernel may not let it be forgotten: then it only grows
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def settings(port: int) -> str:
    return f"""
model = "openai/m"
generated_titles = "never"
loop_watchdog = false
private_hosts = ["127.0.0.1"]

[endpoints.openai]
url = "http://127.0.0.1:{port}/v1"
format = "openai"
model = "m"
tool_calls = "fenced"

[endpoints.native]
url = "http://127.0.0.1:{port}/v1"
format = "openai"
model = "m"
tool_calls = "native"

[endpoints.anthropic]
url = "http://127.0.0.1:{port}/a/v1"
format = "anthropic"
model = "m"

[[tools]]
match = "mcp__*"
risk = "read"
untrusted = false
"""


@asynccontextmanager
async def upstreams() -> AsyncGenerator[Upstreams, None]:
    made = Upstreams()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=1 << 26)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


@asynccontextmanager
async def site() -> AsyncGenerator[Site, None]:
    """A server of its own, watched from outside."""
    with _folder() as folder:
        async with _site(folder) as made:
            yield made


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder. Cases make folders in it that are too deep for Python to remove."""
    folder = tempfile.mkdtemp(prefix="fuzz-")
    try:
        yield Path(folder)
    finally:
        subprocess.run(["rm", "-rf", folder], check=False)


@asynccontextmanager
async def _site(folder: Path) -> AsyncGenerator[Site, None]:
    (folder / "work").mkdir(parents=True, exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    log = folder / "log"
    async with upstreams() as others:
        (folder / "dragoman.toml").write_text(settings(others.port))
        flags = ("--config", "dragoman.toml", "--data-dir", "data", "--workspace", "work", "--port", "0")
        places = [str(folder / one) if one in ("dragoman.toml", "data", "work") else one for one in flags]
        command = ("-m", "tests.support.fuzz.watched", "serve", *places, "--log-level", "warning")
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, cwd=ROOT, env=environ, stdout=PIPE, stderr=errors
            )
        try:
            port = await _port(process, log)
            watching = ("-m", "tests.support.fuzz.probe", str(port), str(process.pid))
            probe = await asyncio.create_subprocess_exec(sys.executable, *watching, cwd=ROOT, stdin=PIPE, stdout=PIPE)
            url = f"http://127.0.0.1:{port}"
            async with httpx2.AsyncClient(base_url=url, timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as client:
                try:
                    made = Site(folder, others, client, process, probe, log)
                    await _warm(made)
                    yield made
                finally:
                    await _end(probe)
        finally:
            await _end(process)


async def _port(process: Process, log: Path) -> int:
    assert process.stdout
    async with asyncio.timeout(START_S):
        while line := await process.stdout.readline():
            if found := re.search(rb"http://localhost:(\d+)", line):
                asyncio.get_running_loop().create_task(process.stdout.read())  # a full pipe would stop it
                return int(found[1])
    raise RuntimeError(f"The server did not start: see {log}")


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def _warm(made: Site) -> None:
    """Imports and patterns of the first run are not what a case costs."""
    for route in ROUTES:
        if "{" not in route.path and route.name not in LEFT_OUT:
            await made.client.request(route.method, route.path, content=b"[")
    for endpoint in ("openai", "native", "anthropic"):
        answer = await made.client.post("/chat", json={"message": "Hello", "model": endpoint})
        answer.raise_for_status()
    began = time.monotonic()
    while (await made.seen()).cpu_ms > 20 and time.monotonic() - began < START_S / 4:
        await made.client.get("/readyz")


def events(text: str) -> Iterator[tuple[str, str]]:
    """Type and data of each server-sent event."""
    for block in text.split("\n\n"):
        kind, data = "", ""
        for line in block.split("\n"):
            name, _, rest = line.partition(": ")
            kind = rest if name == "event" else kind
            data = rest if name == "data" else data
        if data:
            yield kind, data

"""Memory of what is big, and of what waits: growth of a server's resident set, and its peak, by row.

`python -m benchmarks.serving.held_memory WORDS`: only the rows whose names have one of these words; `--checkout
FOLDER`: of another version of dragoman. Each row is a server of its own, warmed up. Peaks are the kernel's (VmHWM, set
back before each step), so that nothing between two looks is missed; both are above what the server had before. The
readers are sockets of this process that read what comes: 10,000 of them need as many open files here and there
(`ulimit -n`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from benchmarks.processes import child, dragoman
from benchmarks.serving.stalls import Answer

MB = 1 << 20
TURNS, APPROVALS, READERS = 2_000, 1_000, 10_000
AT_ONCE = 50
ANSWER = Answer("word ", 840_000)
TURN = Answer("A sentence with some words. ", 10)
FILE = Answer("a\n", 20, field="file")
ROOM = ("--max-connections", "12000", "--max-connections-per-address", "12000", "--max-streams", "12000")
SETTLED_S = 3.0


class Server:
    """A server that is measured."""

    def __init__(self, port: int, process: psutil.Process) -> None:
        self.port = port
        self.process = process
        self.writers: dict[asyncio.StreamReader, asyncio.StreamWriter] = {}  # of what is open

    @property
    def resident(self) -> int:
        return int(self.process.memory_info().rss)

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @property
    def peak(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    async def open(self, method: str, path: str, body: object = None, headers: str = "") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost:{self.port}\r\ncontent-type: application/json\r\n{headers}"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        self.writers[reader] = writer
        return reader

    async def answer(self, method: str, path: str, body: object = None, headers: str = "") -> str:
        reader = await self.open(method, path, body, f"connection: close\r\n{headers}")
        received = bytearray()
        while block := await reader.read(1 << 16):
            received += block
        self.writers.pop(reader).close()
        return received.decode()

    async def chat(self, answer: Answer, **fields: object) -> str:
        return await self.answer("POST", "/chat", {"message": answer.marker, **fields})

    async def peak_of(self, name: str, work: Awaitable[str], of: int = MB) -> str:
        before = self.resident
        self.forget_peak()
        text = await work
        peak, kept = (self.peak - before) / MB, (self.resident - before) / MB
        print(f"  {name:34} peak {peak:7.1f} MB, {peak * MB / of:5.1f} times its size, then {kept:7.1f} MB")
        return text


async def conversation(server: Server) -> None:
    session = None
    for _ in range(TURNS):
        text = await server.chat(TURN, **({"session": session} if session else {}))
        session = text.partition("x-session-id: ")[2].partition("\r\n")[0]
    size = len(await server.answer("GET", f"/sessions/{session}"))
    print(f"  {TURNS:,} turns, {size / MB:.1f} MB as JSON")
    await server.peak_of("GET /sessions/{id}", server.answer("GET", f"/sessions/{session}"), size)
    await server.peak_of("a follow-up", server.chat(TURN, session=session), size)


async def long_answer(server: Server) -> None:
    size = len(ANSWER.text) * ANSWER.times
    text = await server.peak_of(f"an answer of {size / MB:.1f} MB", server.chat(ANSWER), size)
    session = text.partition("x-session-id: ")[2].partition("\r\n")[0]
    await server.peak_of("GET /sessions/{id}", server.answer("GET", f"/sessions/{session}"), size)
    await server.peak_of("a follow-up", server.chat(TURN, session=session), size)


async def many(server: Server, name: str, count: int, begin: Callable[[], Awaitable[object]]) -> None:
    before, files, started = server.resident, server.process.num_fds(), time.perf_counter()
    for _ in range(0, count, AT_ONCE):
        await asyncio.gather(*(begin() for _ in range(AT_ONCE)))
    await asyncio.sleep(SETTLED_S)
    grown, files = server.resident - before, server.process.num_fds() - files
    seconds = time.perf_counter() - started - SETTLED_S
    print(
        f"  {count:,} {name}: {grown / count / 1024:.1f} KB each, {files / count:.2f} files; opened in {seconds:.0f} s"
    )


async def approvals(server: Server) -> None:
    async def begin() -> None:
        text = await server.answer("POST", "/chat", body, "prefer: respond-async\r\n")
        assert " 202 " in text, text[:500]

    body = {"message": FILE.marker, "approval": "ask"}
    await many(server, "runs that wait for an approval", APPROVALS, begin)
    waiting = json.loads((await server.answer("GET", "/approvals")).partition("\r\n\r\n")[2])
    print(f"  {len(waiting.get('approvals', waiting)):,} of them are listed")


async def readers(server: Server) -> None:
    async def begin(path: str) -> None:
        reader = await server.open("GET", path)
        assert b" 200 " in await reader.readline()
        await reader.readuntil(b"\n\n")

    await many(server, "readers of GET /events", READERS, lambda: begin("/events"))


async def run_readers(server: Server) -> None:
    async def begin() -> None:
        reader = await server.open("GET", f"/runs/{run}/events")
        assert b" 200 " in await reader.readline()
        await reader.readuntil(b"approval.required")

    body = {"message": FILE.marker, "approval": "ask"}
    text = await server.answer("POST", "/chat", body, "prefer: respond-async\r\n")
    run = text.partition("x-run-id: ")[2].partition("\r\n")[0]
    await many(server, "readers of GET /runs/{id}/events", READERS, begin)


ROWS: dict[str, Callable[[Server], Awaitable[None]]] = {
    "answer": long_answer,
    "approvals": approvals,
    "readers of the feed": readers,
    "readers of a run": run_readers,
    "conversation": conversation,
}


async def measure(row: Callable[[Server], Awaitable[None]], server: Server) -> None:
    for _ in range(5):
        await server.chat(TURN)
    await row(server)
    for writer in server.writers.values():
        writer.transport.abort()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.held_memory")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--checkout", type=lambda path: Path(path).absolute())
    wanted = parser.parse_args(arguments)
    with child("-m", "benchmarks.serving.stalls", "--upstream") as (upstream, _):
        for name, row in ROWS.items():
            if wanted.words and not any(word in name for word in wanted.words):
                continue
            print(name, flush=True)
            flags = ("--model-url", f"http://127.0.0.1:{upstream}/v1", "--model", "bench", *ROOM)
            with dragoman(*flags, checkout=wanted.checkout) as (port, process):
                asyncio.run(measure(row, Server(port, process)))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

"""A receiver of webhooks and push messages on this machine: it keeps each request, and answers as it was set up."""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count

LIMIT_S = 60.0
HANG = -1  # as a status: never an answer
HUGE = -2  # an answer without an end


@dataclass(slots=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """`statuses` are those of the next answers; behind them all are `usual`."""

    port: int = 0
    usual: int = 200
    statuses: list[int] = field(default_factory=list)
    headers: str = ""
    body: str = ""  # of the answers
    requests: list[Received] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def got(self, most: int) -> list[Received]:
        """The requests, once there are so many."""
        async with asyncio.timeout(LIMIT_S), self.news:
            await self.news.wait_for(lambda: len(self.requests) >= most)
        return self.requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            async with self.news:
                self.requests.append(Received(first.split()[1], headers, body))
                self.news.notify_all()
            await self._answer(writer, self.statuses.pop(0) if self.statuses else self.usual)
        except (OSError, EOFError):
            pass  # the sender has left
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, status: int) -> None:
        if status == HANG:
            await asyncio.Event().wait()
        length = "transfer-encoding: chunked" if status == HUGE else f"content-length: {len(self.body)}"
        writer.write(f"HTTP/1.1 {max(status, 200)} X\r\n{length}\r\n{self.headers}connection: close\r\n\r\n".encode())
        writer.write(b"" if status == HUGE else self.body.encode())
        while status == HUGE:
            writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
            await writer.drain()
        await writer.drain()


@asynccontextmanager
async def receiver(usual: int = 200, *statuses: int, headers: str = "") -> AsyncGenerator[Receiver, None]:
    made = Receiver(usual=usual, statuses=list(statuses), headers=headers)
    tasks = set[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(made.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def verified(request: Received, secret: str) -> bool:
    """Check a signature as a receiver does, by the text of the specification."""
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    key = b64decode(secret.split("whsec_")[1])
    expected = b64encode(hmac.new(key, signed, sha256).digest()).decode()
    return any(hmac.compare_digest(one, f"v1,{expected}") for one in request.headers["webhook-signature"].split())


@dataclass(slots=True)
class ManualClock:
    """A clock that only moves when it is moved, and the times at which sleepers are due."""

    at: float = 1_800_000_000.0
    sleepers: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)
    asleep: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.at + seconds, future))
        self.asleep.set()
        with suppress(asyncio.CancelledError):
            await future

    async def next_sleep(self) -> float:
        """Wait until a task sleeps, and return for how long; the clock then is at its end."""
        async with asyncio.timeout(LIMIT_S):
            await self.asleep.wait()
        due = min(at for at, _ in self.sleepers)
        slept = due - self.at
        self.move(slept)
        return slept

    def move(self, seconds: float) -> None:
        self.at += seconds
        self.asleep.clear()
        left = [(at, future) for at, future in self.sleepers if at > self.at]
        for at, future in self.sleepers:
            if at <= self.at and not future.done():
                future.set_result(None)
        self.sleepers = left


async def until(look: Callable[[], object]) -> None:
    """Wait until it is true, in bounded time."""
    async with asyncio.timeout(LIMIT_S):
        for _ in count():
            if look():
                return
            await asyncio.sleep(0)

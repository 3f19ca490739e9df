"""Readers of a server's streams: so many at once, and what arrived how late.

A token's text is the time it was sent, so the reader knows how long each one took. Streams start one after another,
spread over a second so that their tokens come evenly: all at once, the first tokens would measure a queue.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import cast

import psutil

from benchmarks.upstream import now_us, order

START_PERIODS = 31  # of tokens, over which the starts are spread: a prime, so that no two streams have the same phase
GRACE_S = 3.0  # after the last token was due: a server that is later than that is cut off
LOOK_S = 0.2
END = b"run.finished"  # the terminal event repeats the whole text
LAST_CHUNK = b"\r\n0\r\n\r\n"
IN_FRAMES = re.compile(rb'[" ](\d{6,})(?=[" ])')
DIGITS = 6  # at least, of a time in microseconds: other numbers of an answer are shorter, or end with no space


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The path that a server answers on, and the JSON that it wants around the user's message.

    `end` stands behind the last token; what follows may repeat the text.
    """

    path: str
    body: str
    end: bytes = END
    holds_space: bool = False  # white space at the end of a text is sent in front of the next one

    def request(self, port: int, message: str) -> bytes:
        body = self.body.replace("MESSAGE", message).encode()
        return (
            f"POST {self.path} HTTP/1.1\r\nhost: localhost:{port}\r\ncontent-type: application/json\r\n"
            f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode() + body


@dataclass(frozen=True, slots=True)
class Load:
    """`streams` readers, each of `turns` answers one after another."""

    streams: int
    tokens: int
    rate: int  # tokens a second and stream; 0 is as fast as possible
    turns: int = 1
    limit_s: float = 20.0  # without a rate

    def start_s(self, stream: int) -> float:
        return stream * START_PERIODS / (self.rate * self.streams) if self.rate else 0.0

    @property
    def full_s(self) -> tuple[float, float]:
        """From when to when all streams are due to be open."""
        return self.start_s(self.streams), (self.tokens - 1) / self.rate if self.rate else 0.0

    @property
    def end_s(self) -> float:
        return self.start_s(self.streams) + self.tokens / self.rate + GRACE_S if self.rate else self.limit_s


@dataclass(slots=True)
class Received:
    """What the readers of one load got, with times in milliseconds."""

    full_us: tuple[int, int] = (0, 0)  # while all streams are due to be open
    in_full: int = 0  # tokens that came in this time
    tokens: int = 0
    answers: int = 0
    waits_ms: list[float] = field(default_factory=list)
    firsts_ms: list[float] = field(default_factory=list)  # from the request to its first token
    rss: list[int] = field(default_factory=list)  # of the server, the first before the load


class Reader(asyncio.Protocol):
    """One request on a connection of its own, and its answer, read to its end."""

    def __init__(self, request: bytes, received: Received, end: bytes = END, *, holds_space: bool = False) -> None:
        self.over = asyncio.get_running_loop().create_future()
        self._request = request
        self._received = received
        self._end = end
        self._times, self._between = (times_in_frames, b"\n") if holds_space else (times, b" ")
        self._rest = self._tail = b""
        self._is_finished = self._has_text = False
        self._requested_us = now_us()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of its class
        self._requested_us = now_us()
        connected.write(self._request)

    def data_received(self, block: bytes) -> None:
        if not self._is_finished:
            self._count(block, now_us())
        self._tail = (self._tail + block)[-len(LAST_CHUNK) :]

    def connection_lost(self, exc: Exception | None) -> None:
        self._received.answers += self._tail == LAST_CHUNK
        if not self.over.done():
            self.over.set_result(None)

    def cut_off(self) -> None:
        """Take what is missing for late: a first token that did not come counts as one that comes now."""
        if not self._has_text:
            self._received.firsts_ms.append((now_us() - self._requested_us) / 1000)
        if self._transport:
            self._transport.abort()

    def _count(self, block: bytes, now: int) -> None:
        text, _, self._rest = (self._rest + block).rpartition(self._between)
        text, finished, _ = text.partition(self._end)
        self._is_finished = bool(finished)
        received, sent = self._received, self._times(text)
        if not sent:
            return
        received.tokens += len(sent)
        received.waits_ms += [(now - one) / 1000 for one in sent]
        if received.full_us[0] <= now < received.full_us[1]:
            received.in_full += len(sent)
        if not self._has_text:
            self._has_text = True
            received.firsts_ms.append((now - self._requested_us) / 1000)


def times(text: bytes) -> list[int]:
    """The texts of tokens: split, since to search costs five times as much where much else stands between them."""
    lasts = (piece.rpartition(b'"')[2] for piece in text.split(b" "))
    return [int(last) for last in lasts if len(last) >= DIGITS and last.isdigit()]


def times_in_frames(text: bytes) -> list[int]:
    """The same where spaces do not end the texts of tokens."""
    return [int(one) for one in IN_FRAMES.findall(text)]


async def read_all(port: int, load: Load, endpoint: Endpoint, process: psutil.Process) -> Received:
    """Read all streams of the load, until they have ended or are too late."""
    request = endpoint.request(port, order(load.tokens, load.rate))
    opens, closes = (now_us() + round(at * 1e6) for at in load.full_s)
    received, readers = Received((opens, closes), rss=[process.memory_info().rss]), dict[int, Reader]()
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def turn(number: int) -> None:
        reader = Reader(request, received, endpoint.end, holds_space=endpoint.holds_space)
        readers[number] = reader  # before it connects: one that could not in time is as late as the others
        await loop.create_connection(lambda: reader, "127.0.0.1", port)
        await reader.over

    async def one(number: int) -> None:
        await asyncio.sleep(started + load.start_s(number) - loop.time())
        for _ in range(load.turns):
            await turn(number)

    async def look() -> None:
        while True:
            received.rss.append(process.memory_info().rss)
            await asyncio.sleep(LOOK_S)

    looking = asyncio.create_task(look())
    try:
        async with asyncio.timeout(load.end_s), asyncio.TaskGroup() as streams:
            for number in range(load.streams):
                streams.create_task(one(number))
    except TimeoutError:  # what is missing by now must not disturb the next measurement
        for reader in readers.values():
            reader.cut_off()
    looking.cancel()
    return received

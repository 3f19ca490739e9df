"""One client and its run, from the request that begins it to its end, over all that breaks off between."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from contextlib import suppress

import httpx2
from msgspec import Struct, field

from tests.support.fire.lanes import LANES, Lane, Received, Request, taken
from tests.support.fire.model import TOKEN
from tests.support.replicas.servers import AGAIN_S, passed

NOTHING_S = 90.0  # without an event: then the run hangs
IDLE_S = 30.0  # without a byte: then a client takes the connection for lost; servers send a comment every 15 s
STOPPED = "server was stopped"  # the error of a stream whose run may go on elsewhere
MOST_RETURNS = 30  # after such an error
GAP_S = 0.5  # what is shorter is no silence


class Gap(Struct, frozen=True):
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Watch(Struct):
    """What came of one run."""

    kind: str
    lane: str
    received: Received
    tokens: int
    end: str = ""  # whole, error, cut (the connection broke off), silent (it ended without an end), hang
    why: str = ""
    new: bool = False  # begun when every server was of this tree
    at: float = field(default_factory=time.monotonic)  # when it was to begin
    returns: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        return [int(one) for one in TOKEN.findall(self.received.text)]

    @property
    def doubled(self) -> int:
        return len(self.numbers) - len(set(self.numbers)) + self.received.doubled

    @property
    def lost(self) -> int:
        """Numbers that never came: of all where the stream calls itself whole, else of those before the last."""
        until = self.tokens if self.end == "whole" else max(self.numbers, default=0)
        return len(set(range(1, until + 1)) - set(self.numbers)) + self.received.skipped

    @property
    def is_wrong(self) -> bool:
        """True for what must not be; what the last release does cannot be changed any more.

        It answers those who return on these lanes from the beginning, as a new message.
        """
        again = not self.new and self.returns > 1 and self.lane in ("ag-ui", "ui")
        unordered = not again and (self.doubled or self.numbers != sorted(self.numbers))
        ends = ["whole"] if self.lane == "native" else ["whole", "error", "cut"] + ["silent"] * (not self.new)
        return bool(self.lost or unordered or self.end not in ends)

    @property
    def silence_s(self) -> float:
        return max((gap.seconds for gap in self.gaps), default=0.0)


class Client:
    """Follows runs through the balancer; `watches` are all of them."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.watches = list[Watch]()

    async def follow(self, watch: Watch) -> Watch:
        """Begin the run, and return to it as its lane can, until it has ended."""
        self.watches.append(watch)
        lane, received, since = LANES[watch.lane], watch.received, time.monotonic()
        at = watch.at
        while not watch.end:
            begun, sooner = received.events > 0, received.events
            request = lane.again(received) if begun else lane.again(received) or lane.begin(received)
            if request is None:
                watch.end = watch.end or "cut"
                break
            ended, at = await self._read(watch, lane, request, at)
            watch.returns += 1
            if (
                received.end == "error"
                and STOPPED in watch.why
                and lane.again(received)
                and watch.returns < MOST_RETURNS
            ):
                received.end = watch.why = ""
                await passed(AGAIN_S)
            elif received.end:
                watch.end = received.end
            elif ended and received.events > sooner and lane.again(received) is None:
                watch.end = "silent"
            elif received.events > sooner:
                since = time.monotonic()
            elif time.monotonic() > since + NOTHING_S:
                watch.end = "hang"
            else:
                await passed(AGAIN_S)
        return watch

    async def _read(self, watch: Watch, lane: Lane, request: Request, at: float) -> tuple[bool, float]:
        """Read one answer; whether it ended as an answer does, and the time of the last event."""
        try:
            begins = self.client.stream(request.method, request.path, json=request.body, headers=request.headers)
            async with begins as response:
                if response.status_code != 200:
                    await response.aread()
                    with suppress(ValueError, KeyError, TypeError):
                        error = response.json()["error"]
                        watch.why = error.get("message") or str(error)
                    watch.refusals[f"{response.status_code} {watch.why[:60]}"] += 1
                    if response.status_code in (400, 404, 422):  # the last release has no such route
                        watch.received.ends("error")
                    return False, at
                if watch.lane == "native":
                    watch.received.run = response.headers["x-run-id"]
                async for frame in httpx2.EventSource(response):
                    if not frame.data:
                        continue
                    at = self._noted(watch, at)
                    try:
                        taken(lane, watch.received, frame.data, frame.id)
                    except (KeyError, StopIteration) as error:
                        watch.why = f"{error!r} in {frame.data[:200]}"
                        watch.received.skipped += 1
                    if watch.received.end == "error" and not watch.why:
                        watch.why = frame.data[-300:]
                    if watch.received.waits:
                        asyncio.create_task(self._approve(watch, watch.received.waits.pop()))  # noqa: RUF006
            return True, at
        except httpx2.TransportError as error:
            watch.refusals[type(error).__name__] += 1
            return False, at

    def _noted(self, watch: Watch, at: float) -> float:
        now = time.monotonic()
        if now > at + GAP_S:
            watch.gaps.append(Gap(at, now))
        return now

    async def _approve(self, watch: Watch, call: str) -> None:
        """Decide by any replica, until one has taken it."""
        path = f"/runs/{watch.received.run}/approvals/{call}"
        for _ in itertools.count():
            with suppress(httpx2.TransportError):
                answer = await self.client.post(path, json={"decision": "approve"})
                if answer.status_code in (200, 404, 409):
                    return
            await passed(AGAIN_S)
            if watch.end:
                return

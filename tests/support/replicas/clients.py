"""Clients of several servers that return after a fault, and what must hold for each of them.

async with calling() as model, three_replicas(folder, url, model.base_url) as replicas:
    async with clients(replicas, 8) as load:  # each begins runs until the block ends, and sees its last one to the end
        await load.more_events(20)  # ... and a fault
    load.check(folder)
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct, field

from app.core.events import TERMINAL
from app.runs.recovery.left_off import RESUMED
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, Upstream, stream, upstream
from tests.support.replicas.servers import AGAIN_S, Replicas, passed
from tests.support.server.serving import events_of

Event = dict[str, Any]
EFFECTS = "ran.txt"
LIMIT_S = 60.0  # without a new event: then the servers are gone for good


@asynccontextmanager
async def calling(calls: int = 2, pause_s: float = 0.02) -> AsyncGenerator[Upstream, None]:
    """A model that asks for a call with an effect of its own each time, until it has so many results, then answers."""
    numbers, holder = itertools.count(1), list[Upstream]()

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        asked = holder[0].asked[-1].json["messages"]
        results = sum("RAN" in str(one["content"]) for one in asked if one["role"] != "assistant")
        words = "I am done with all of it now."
        if results < calls:
            words = f"Now I call it.\n```bash\necho {next(numbers)} >> {EFFECTS}; echo RA''N\n```\n"
        parts = [*map(says, re.findall(r"\S+\s*", words)), chunk(finish="stop"), DONE]
        await slowly(parts, pause_s)(reader, writer)

    async with upstream(act, repeat=True, chats=True) as model:
        holder.append(model)
        yield model


def slowly(parts: Iterable[str], pause_s: float) -> Act:
    """Answer with a pause before each part, as a model does."""

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        for part in parts:
            await passed(pause_s)
            writer.write(b"%x\r\n%s\r\n" % (len(part), part.encode()))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    return stream(then=act)


class Run(Struct):
    """One run as its client sees it."""

    id: str = ""
    seen: list[Event] = field(default_factory=list)
    at: list[float] = field(default_factory=list)  # monotonic time of each event
    returns: int = 0  # to the run, or to the request that begins it
    refused: list[tuple[int, str]] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return bool(self.seen) and self.seen[-1]["type"] in TERMINAL

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.seen if event["type"] == kind]

    def codes(self) -> list[str]:
        return [event["code"] for event in self.of("notice")]

    @property
    def silence_s(self) -> float:
        """The longest time between two events."""
        return max((later - sooner for sooner, later in itertools.pairwise(self.at)), default=0.0)

    def check(self) -> None:
        assert [event["seq"] for event in self.seen] == list(range(1, len(self.seen) + 1)), "each once"
        assert [event["type"] in TERMINAL for event in self.seen] == [False] * (len(self.seen) - 1) + [True]
        started = [event["call"] for event in self.of("tool.started")]
        assert len(set(started)) == len(started)


class Load:
    """Clients of a balancer; `runs` are all that they have begun."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.runs = list[Run]()
        self._client = client
        self._news = asyncio.Event()
        self._stopping = False

    @property
    def seen(self) -> int:
        return sum(len(run.seen) for run in self.runs)

    async def more_events(self, number: int) -> None:
        """Wait until the clients have seen so many more."""
        seen = self.seen
        while self.seen < seen + number:
            self._news.clear()
            await self._news.wait()

    async def follow(self, client: httpx2.AsyncClient | None = None, **body: object) -> Run:
        """Begin a run, and return to it with the number of the last event until it has ended."""
        self.runs.append(run := Run())
        await self.see_to_its_end(run, client, **body)
        return run

    async def see_to_its_end(self, run: Run, client: httpx2.AsyncClient | None = None, **body: object) -> None:
        client, key = client or self._client, {"idempotency-key": secrets.token_hex(8)}
        since = time.monotonic()
        while not run.has_ended:
            if run.id:
                after = {"last-event-id": str(len(run.seen))}
                begins = client.stream("GET", f"/runs/{run.id}/events", headers=after)
            else:
                begins = client.stream("POST", "/chat", json={"message": "Go"} | body, headers=key)
            sooner = len(run.seen)
            with suppress(httpx2.TransportError):
                async with begins as response:
                    await self._read(response, run)
            run.returns += 1
            if len(run.seen) > sooner:
                since = time.monotonic()
            else:
                assert time.monotonic() < since + LIMIT_S, f"no event in {LIMIT_S:g} s after {run.refused[-3:]}"
                await passed(AGAIN_S)

    async def _read(self, response: httpx2.Response, run: Run) -> None:
        if response.status_code != 200:
            await response.aread()
            run.refused.append((response.status_code, response.json()["error"]["code"]))
            return
        run.id = run.id or response.headers["x-run-id"]
        async with aclosing(events_of(response)) as events:
            async for event in events:
                run.seen.append(event)
                run.at.append(time.monotonic())
                self._news.set()

    async def follow_forever(self) -> None:
        while not self._stopping:
            await self.follow()

    def stop(self) -> None:
        """Begin no more runs."""
        self._stopping = True

    def check(self, folder: Path) -> None:
        """Each client has seen each event once and one end, and no call has had its effect twice."""
        for run in self.runs:
            run.check()
        path = folder / "work" / EFFECTS
        effects = path.read_text().split() if path.exists() else []
        assert len(set(effects)) == len(effects), "an effect twice"
        asked = [event["arguments"]["command"] for run in self.runs for event in run.of("tool.started")]
        assert set(effects) <= {command.split()[1] for command in asked}, "an effect without a call that was logged"
        finished = [event for run in self.runs for event in run.of("tool.finished")]
        assert sum(event["ok"] for event in finished) <= len(effects), "a result without its effect"

    @property
    def refusals(self) -> list[tuple[int, str]]:
        return [one for run in self.runs for one in run.refused]

    @property
    def ends(self) -> set[str]:
        return {run.seen[-1].get("reason") or run.seen[-1]["code"] for run in self.runs}

    @property
    def takeovers(self) -> int:
        return sum(code == RESUMED for run in self.runs for code in run.codes())

    def figures(self) -> str:
        longest = max((run.silence_s for run in self.runs), default=0.0)
        returns = sum(run.returns - 1 for run in self.runs)
        words = f"{len(self.runs)} runs, {self.takeovers} takeovers, {returns} returns"
        return f"{words}, {len(self.refusals)} refusals, {longest:.2f} s of silence at most"


@asynccontextmanager
async def clients(replicas: Replicas, count: int) -> AsyncGenerator[Load, None]:
    """So many clients, each of which begins a run when the one before has ended; at the end each run has."""
    load = Load(replicas.client)
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(load.follow_forever())
        try:
            yield load
        finally:
            load.stop()
    print(load.figures())  # `pytest -rP` shows it

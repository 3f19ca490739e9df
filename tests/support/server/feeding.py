"""GET /events as a test reads it: frame by frame, until what it waits for has come."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.server.serving import Served

TERMINAL = ("run.finished", "run.failed")


@dataclass(frozen=True, slots=True)
class Told:
    """One event; `id` is empty where it has none."""

    id: str
    type: str
    data: dict[str, Any]


@dataclass(slots=True)
class Feed:
    """What was told so far, and the state as it is put together from its pieces."""

    events: AsyncGenerator[Told, None]
    told: list[Told] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def cursor(self) -> str:
        return next((one.id for one in reversed(self.told) if one.id), "")

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.told if one.id]

    async def until(self, fits: str | Callable[[Told], bool]) -> Told:
        """The next event of this type, or that fits. What comes before it is in `told`."""
        async for one in self.events:  # closed by `feeding`
            self.told.append(one)
            if one.type == "state":
                self._take(one.data)
            if one.type == fits if isinstance(fits, str) else fits(one):
                return one
        raise AssertionError(f"the stream ended before {fits}")

    async def until_state(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not (self.state and fits(self.state)):
            await self.until("state")
        return self.state

    async def until_end(self, run: str | None = None) -> Told:
        return await self.until(lambda one: one.type in TERMINAL and run in (None, one.id.partition(":")[0]))

    async def rest(self) -> list[Told]:
        """What comes until the server ends the stream."""
        return [one async for one in self.events]  # closed by `feeding`

    def _take(self, news: dict[str, Any]) -> None:
        whole = dict(news)
        for name, keys in (("approvals", ("run", "call")), ("jobs", ("id",))):
            known = {tuple(row[key] for key in keys): row for row in self.state.get(name, [])}
            rows = [row if len(row) > len(keys) else known[tuple(row.values())] for row in news.get(name, [])]
            whole |= {name: rows} if name in news else {}
        self.state |= whole


@asynccontextmanager
async def feeding(
    served: Served, session: str | Sequence[str] | None = None, after: str = "", **headers: str
) -> AsyncGenerator[Feed, None]:
    sent = headers | ({"last-event-id": after} if after else {})
    where = {"session": session} if session else {}
    async with served.client.stream("GET", "/events", params=where, headers=sent) as response:
        assert response.status_code == 200, await response.aread()
        async with aclosing(_told(response.aiter_bytes())) as events:
            yield Feed(events)


async def _told(blocks: Any) -> AsyncGenerator[Told, None]:
    rest = b""
    async for block in blocks:  # `feeding` closes the response
        *frames, rest = (rest + block).split(b"\n\n")
        for frame in frames:
            lines = [line.partition(": ") for line in frame.decode("ascii").split("\n")]
            fields = {name: value for name, _, value in lines}
            if "data" in fields:
                data = json.loads(fields["data"])
                assert data["type"] == fields["event"]
                yield Told(fields.get("id", ""), fields["event"], data)


async def begin(served: Served, message: str, session: str | None = None, **more: Any) -> dict[str, Any]:
    """A run that nobody waits for: what 202 says of it."""
    body = {"message": message} | ({"session": session, "when_busy": "queue"} if session else {}) | more
    answer = await served.client.post("/chat", json=body, headers={"prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    began: dict[str, Any] = answer.json()
    return began

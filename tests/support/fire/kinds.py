"""The kinds of runs, the lanes that each is watched over, and what must have come of all of them in the end."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from tests.support.fire.lanes import LANES, Received
from tests.support.fire.model import EDITED_END, EFFECTS, edited_by, mark_of
from tests.support.fire.servers import Stage
from tests.support.fire.watching import NOTHING_S, Client, Watch
from tests.support.mcp.tasks import requested
from tests.support.replicas.servers import AGAIN_S, passed

ALL = tuple(LANES)
TOKENS = 40
DUE_S = 2.0  # from now on a schedule begins
STARTED = "SELECT count(*) FROM occurrences WHERE origin = $1 AND outcome = 'started'"
UNFINISHED = "SELECT count(*) FROM runs WHERE ended IS NULL"
ENDS = """
    SELECT r.id, r.state, count(e.seq) FROM runs r
    LEFT JOIN events e ON e.run = r.number AND e.type IN ('run.finished', 'run.failed')
    GROUP BY r.id, r.state HAVING count(e.seq) <> 1
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """`plan` is the model's; `both`: the last release can do it, too."""

    plan: str
    lanes: Sequence[str] = ALL
    approval: str = ""
    both: bool = True


KINDS = {
    "text": Kind("text"),
    "tools": Kind("tools"),
    "jobs": Kind("jobs"),
    "approvals": Kind("bash", ("native",), approval="ask"),
    "helpers": Kind("helpers"),
    "schedules": Kind("text", ("native",)),
    "mcp": Kind("mcp"),
    "tasks": Kind("tasks", both=False),
}


def turns() -> Iterator[tuple[str, str]]:
    """Kinds and lanes, each kind as often as every other, and its lanes in turn."""
    lanes = {name: itertools.cycle(kind.lanes) for name, kind in KINDS.items()}
    for turn in itertools.count():
        for name, kind in KINDS.items():
            if turn % len(ALL) == 0 and len(kind.lanes) > 1:
                next(lanes[name])  # lest a kind meets the same faults with the same lane
            yield name, next(lanes[name])


class Load:
    """So many clients at a time."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.client = Client(stage.client)
        self.is_new = asyncio.Event()  # every server is of this tree
        self.is_over = asyncio.Event()
        self.schedules = list[str]()
        self._folder = folder
        self._turns = turns()

    @property
    def watches(self) -> list[Watch]:
        return self.client.watches

    def counts(self) -> Counter[str]:
        return Counter(one.kind for one in self.watches)

    async def run(self) -> None:
        while not self.is_over.is_set():
            name, lane = next(self._turns)
            if KINDS[name].both or self.is_new.is_set():
                await self.follow(name, lane)

    async def follow(self, name: str, lane: str) -> None:
        kind, identity = KINDS[name], f"{name}-{secrets.token_hex(4)}"
        if name == "tools":
            (self._folder / "work" / edited_by(identity)).write_text(EDITED_END)
        received = Received(identity, mark_of(identity, kind.plan, TOKENS), kind.approval)
        watch = Watch(name, lane, received, TOKENS, new=self.is_new.is_set())
        if name == "schedules":
            received.run = await self._scheduled(watch)
        await self.client.follow(watch)

    async def _scheduled(self, watch: Watch) -> str:
        """The run of a schedule whose time comes in a moment."""
        client, until = self.client.client, time.monotonic() + NOTHING_S
        made: dict[str, Any] = {}
        while time.monotonic() < until:
            due = (datetime.now(UTC) + timedelta(seconds=DUE_S)).isoformat(timespec="milliseconds")
            body = {"name": watch.received.id, "message": watch.received.message, "once": due, "missed": "run"}
            with suppress(httpx2.TransportError, ValueError):
                if not made:
                    answer = await client.post("/schedules", json=body)
                    watch.at = time.monotonic() + DUE_S
                    if answer.status_code < 300:
                        made = answer.json()
                        self.schedules.append(made["id"])
                    else:
                        watch.refusals[f"{answer.status_code} schedule: {answer.text[:80]}"] += 1
                else:
                    row = (await client.get(f"/schedules/{made['id']}")).json()
                    if begun := [one["run"] for one in row.get("last", ()) if one.get("run")]:
                        return str(begun[0])
            await passed(AGAIN_S)
        watch.end, watch.why = "hang", "its schedule began no run"
        return ""


async def faults_of_effects(folder: Path, mcp: httpx2.AsyncClient) -> list[str]:
    """Calls that were made more than once."""
    made = [(folder / "work" / EFFECTS).read_text().split()] if (folder / "work" / EFFECTS).exists() else []
    made += [path.read_text().split() for path in (folder / "work").glob(edited_by("*"))]
    calls = await requested(mcp, "tools/call")
    made.append([str(one["params"]["arguments"]["number"]) for one in calls])
    return [f"call {one} was made {times} times" for each in made for one, times in twice(each)]


def twice(words: Sequence[str]) -> list[tuple[str, int]]:
    return [(word, times) for word, times in Counter(words).items() if times > 1 and word.isdecimal()]

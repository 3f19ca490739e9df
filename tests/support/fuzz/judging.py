"""Cases, and what becomes of them: one terminal event, a server that lives, its loop free, its memory bounded."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.support.fuzz.site import TRACEBACK, Site

LIMIT_MS = 20.0  # of CPU between two looks at the loop
TRIES = 3  # the least counts: two callbacks in a row are not one long one
LIMIT_S = 80.0
SLACK = 48 << 20  # bytes that a server may grow by whatever it is sent
TIMES = 10  # and so many times what it is sent


@dataclass(frozen=True, slots=True)
class Case:
    """What is sent, kept as a file: a line of JSON, and the bytes."""

    door: str
    body: bytes
    how: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        path.write_bytes(json.dumps({"door": self.door, "how": self.how}).encode() + b"\n" + self.body)

    @classmethod
    def read(cls, path: Path) -> Case:
        head, _, body = path.read_bytes().partition(b"\n")
        return cls(body=body, **json.loads(head))


Generate = Callable[[random.Random, int], Case]
Send = Callable[[Site, Case], Awaitable[str]]
"""Send a case; what is wrong with the answer, or nothing."""


@dataclass(frozen=True, slots=True)
class Door:
    """A way by which untrusted bytes come in."""

    name: str
    generate: Generate
    send: Send
    most: int = 1_000_000  # bytes of a case, about


@dataclass(slots=True)
class Verdict:
    """What came of one case."""

    wrong: str = ""
    cpu_ms: float = 0.0
    wait_ms: float = 0.0
    grown: int = 0
    grew: bool = False
    log: str = ""

    @property
    def where(self) -> str:
        """Where the loop was held, as the watched server reports."""
        held = [line for line in self.log.splitlines() if line.startswith("HELD")]
        return max(held, key=lambda line: int(line.split()[1]), default="")

    @property
    def cause(self) -> str:
        """What several cases may have in common: the innermost function of ours, or what is wrong without numbers."""
        found = re.search(r"((?:app|routes|tools|parsing)/\S+):\S+ (\w+)", self.where)
        return re.sub(r"\d+|'.*", "", self.wrong) or (f"{found[1]} {found[2]}" if found else "")

    @property
    def is_bad(self) -> bool:
        return bool(self.wrong) or self.grew or self.cpu_ms > LIMIT_MS


async def judged(site: Site, door: Door, case: Case, limit_ms: float = LIMIT_MS) -> Verdict:
    """Send it, again where the loop was held."""
    verdict = await _once(site, door, case)
    for _ in range(TRIES - 1):
        if verdict.wrong or (verdict.cpu_ms <= limit_ms and not verdict.grew):
            break
        again = await _once(site, door, case)
        again.cpu_ms, again.grew = min(verdict.cpu_ms, again.cpu_ms), verdict.grew and again.grew
        again.grown = min(verdict.grown, again.grown)
        again.log += verdict.log
        verdict = again
    if verdict.grew:
        verdict.wrong = verdict.wrong or f"{verdict.grown >> 20} MB for {len(case.body) >> 10} KB"
    return verdict


async def _once(site: Site, door: Door, case: Case) -> Verdict:
    await site.seen()
    site.news()
    before, _ = site.memory()
    site.forget_peak()
    verdict = Verdict()
    try:
        async with asyncio.timeout(LIMIT_S):
            verdict.wrong = await door.send(site, case)
            seen = await site.seen()
            verdict.cpu_ms, verdict.wait_ms = seen.cpu_ms, seen.wait_ms
    except TimeoutError:
        verdict.wrong = f"no end in {LIMIT_S:.0f} s"
    except (httpx2.HTTPError, ValueError, OSError) as error:
        verdict.wrong = f"{type(error).__name__}: {error}"
    verdict.log = site.news()
    if not site.lives:
        verdict.wrong = f"the server ended with {site.process.returncode}"
    elif TRACEBACK in verdict.log:
        verdict.wrong = verdict.wrong or "traceback: " + last_line(verdict.log)
    elif site.lives:
        verdict.grown = max(0, site.memory()[1] - before)
        verdict.grew = verdict.grown > SLACK + TIMES * len(case.body)
    return verdict


def last_line(log: str) -> str:
    """The exception of the first traceback."""
    rest = log.partition(TRACEBACK)[2].splitlines()[1:]
    return next((line for line in rest if line and not line[0].isspace()), "")


async def minimised(site: Site, door: Door, case: Case, verdict: Verdict, tries: int = 12) -> Case:
    """Halve the bytes as long as what is wrong stays, roughly."""
    for _ in range(tries):
        half = len(case.body) // 2
        for part in (case.body[:half], case.body[half:], case.body[: half // 2] + case.body[-(half // 2) :]):
            smaller = Case(case.door, part, case.how)
            again = await _once(site, door, smaller)
            if bool(again.wrong) == bool(verdict.wrong) and again.is_bad:
                case = smaller
                break
        else:
            break
    return case

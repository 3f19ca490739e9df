"""Hostile bytes at each door of a real server: it lives, each stream has one end, and its loop is not held.

Some seeds of each door, and what has been found; `make nightly` looks for more, as `python -m tests.tasks.fuzz` does.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from app.core.provider import ProviderFailed
from app.models.wire.anthropic.answer import MessagesAnswer
from app.models.wire.openai.answer import ChatAnswer
from tests.support.fuzz.answers import raw_body
from tests.support.fuzz.blocks import dumped
from tests.support.fuzz.doors import DOORS, case_of
from tests.support.fuzz.judging import Case, judged
from tests.support.fuzz.site import site
from tests.support.nightly import at_night, only_at_night
from tests.tasks.fuzz import hunt

pytestmark = pytest.mark.anyio

SEEDS = 3
MOST = 30_000  # bytes of a case
HELD_MS = 250.0  # of CPU on a machine on which `work` takes WORK_MS; what has been found took more
WORK_MS = 10.0
AT_NIGHT_S = 120.0


def work() -> float:
    """CPU time of something that is always the same, in milliseconds."""
    began = time.thread_time()
    sum(number * number % 7 for number in range(130_000))
    return 1000 * (time.thread_time() - began)


def relayed(model: str, turns: list[dict[str, Any]], properties: int = 0) -> Case:
    names = {f"p{number}": {"type": "string"} for number in range(properties)}
    tool = {"name": "look", "parameters": {"type": "object", "properties": names}}
    user = {"role": "user", "content": "x"}
    body = {"model": model, "messages": [user, *turns, user], "tools": [{"type": "function", "function": tool}]}
    return Case("lanes", dumped(body | {"stream": True}), {"lane": "/v1/chat/completions"})


def called(number: int) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def reply(calls: int) -> dict[str, Any]:
    return {"role": "assistant", "content": "y", "tool_calls": [called(number) for number in range(calls)]}


# With the CPU of one callback that each has taken.
FOUND: dict[str, Callable[[], Case]] = {
    "a tool of many parameters, called often: 18 s": lambda: relayed("openai/m", [reply(1_000)], 4_000),
    "results without ids: 1 s": lambda: relayed(
        "native/m", [reply(4_000), *[{"role": "tool", "content": "z", "name": "other"}] * 4_000]
    ),
    "a list that holds no tools: 1 s": lambda: Case("mcp", b"[" + b"[]," * 500_000 + b"[]]", {"raw": "tools"}),
}


async def test_doors() -> None:
    cases = {f"{name}/{seed}": case_of(door, seed, MOST) for name, door in DOORS.items() for seed in range(SEEDS)}
    cases |= {name: make() for name, make in FOUND.items()}
    wrong = dict[str, str]()
    async with site() as made:
        for name, case in cases.items():
            limit_ms = HELD_MS * max(1.0, work() / WORK_MS)
            verdict = await judged(made, DOORS[case.door], case, limit_ms)
            if verdict.wrong or verdict.cpu_ms > limit_ms:
                wrong[name] = f"{verdict.wrong} {verdict.cpu_ms:.0f} ms {verdict.where}"
            if not made.lives:
                break
    assert wrong == {}


@pytest.mark.parametrize("read", [ChatAnswer, MessagesAnswer])
def test_any_answer_is_read_or_a_failure_of_the_model(read: type[ChatAnswer] | type[MessagesAnswer]) -> None:
    """In this process, where there is time for more seeds."""
    for seed in range(at_night(20_000, 300)):
        with suppress(ProviderFailed):
            deque(read("http://model/v1").feed(raw_body(random.Random(seed), "events", 2_000)), 0)


@only_at_night
@pytest.mark.timeout(AT_NIGHT_S * 2)
@pytest.mark.parametrize("door", DOORS)
async def test_doors_at_night(door: str) -> None:
    assert await hunt(DOORS[door], AT_NIGHT_S, int(time.time()))

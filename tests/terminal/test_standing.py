"""Standing of a conversation: what a server that says too little, or nonsense, makes of greeting and status line."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from app.core.events import RunStarted, Usage
from routes.terminal.api import Api
from routes.terminal.event_client import Choices
from routes.terminal.standing import Standing

OPTIONS = {"options": [{"option": "model", "value": "org/m"}, {"option": "approval", "value": "ask"}], "role": "user"}
ENDPOINTS = {"endpoints": [{"name": "e", "models": [{"name": "org/m", "window": 1000}, {"name": "n"}]}]}


def standing(options: Any, endpoints: Any, choices: Choices | None = None) -> Standing:
    def answer(request: httpx2.Request) -> httpx2.Response:
        found = options if request.url.path == "/options" else endpoints
        return httpx2.Response(404 if found is None else 200, json=found)

    async def look() -> Standing:
        made = Standing(choices or Choices())
        async with httpx2.AsyncClient(base_url="http://server", transport=httpx2.MockTransport(answer)) as client:
            await made.look(Api(client))
        return made

    return asyncio.run(look())


def test_context_and_cost_follow_the_runs() -> None:
    made = standing(OPTIONS, ENDPOINTS)
    assert made.facts() == ["m", "", "", "", "ask"]
    for total in (0.5, 0.25):
        made.follow(RunStarted("r", "s", "e/org/m", [], {}))
        made.follow(Usage(200, 50, 200, 50, measured=True, total_cost=total))
    assert made.facts() == ["m", "", "Context: 25 %", "cost 0.75", "ask"]
    made.follow(RunStarted("r", "s", "e/n", [], {}))
    assert made.facts()[2] == "", "a window that is not known"


def test_the_modes_go_round() -> None:
    made = standing(OPTIONS, ENDPOINTS)
    seen = []
    for _ in range(5):
        made.next_mode()
        seen.append((made.mode, made.choices.mode, made.choices.approval))
    plan = ("plan", "plan", None)
    assert seen == [plan, ("deny", None, "deny"), ("sandboxed", None, "sandboxed"), ("ask", None, "ask"), plan]
    made = standing(OPTIONS | {"role": "admin"}, ENDPOINTS, Choices(approval="deny"))
    made.next_mode()
    assert made.mode == "auto"


@pytest.mark.parametrize(
    ("options", "endpoints"),
    [
        (None, None),
        ([], 3),
        ({"options": 3}, {}),
        ({"options": [{}]}, {"endpoints": {}}),
        (OPTIONS, {"endpoints": [{"models": [{"name": 3}]}]}),
        (OPTIONS, {"endpoints": [{"models": [{"name": "m", "window": "x"}]}]}),
        (OPTIONS | {"workspace": "/a\x1b[2Jb\nc", "sandbox": None}, ENDPOINTS),
    ],
)
def test_an_answer_that_is_none_is_done_without(options: Any, endpoints: Any) -> None:
    made = standing(options, endpoints)
    made.follow(RunStarted("r", "s", "e/m", [], {}))
    made.follow(Usage(1, 1, 1, 1, measured=False))
    made.next_mode()
    facts = "".join(made.facts())
    assert "\x1b" not in facts and "\n" not in facts and made.mode

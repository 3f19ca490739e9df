"""Principals with a budget, and what a server says of it."""

from __future__ import annotations

import time
from typing import Any

from app.storage.changes import Change
from app.storage.principals import Budget, Principal
from tests.support.server.serving import Served
from tools.base.rights import Role


def with_budget(**budget: float) -> Principal:
    return Principal("ann", Role.ADMIN, budget=Budget(**budget))  # type: ignore[arg-type]


def keep_nothing(_: Change) -> None:
    """Keeps no change."""


MONTH, DAY = "tokens_per_month", "tool_seconds_per_day"


async def used_of_budget(served: Served, budget: str = MONTH) -> dict[str, Any]:
    answer = await served.client.get("/usage")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()["usage"][budget]
    return found


async def refused_by_budget(served: Served, **body: object) -> tuple[dict[str, Any], int]:
    """The error of a POST /chat that a budget refuses, and its Retry-After."""
    before = time.time()
    answer = await served.client.post("/chat", json={"message": "x"} | body)
    error: dict[str, Any] = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "budget")
    wait_s = int(answer.headers["retry-after"])
    assert error["reset"] - time.time() < wait_s < error["reset"] - before + 2  # rounded up
    return error, wait_s

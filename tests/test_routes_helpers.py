"""Helpers: runs that a call of another run begins, with at most its rights, its limits and its life."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import ModelRequest, Piece
from app.models.scripted import Reply, Scripted
from tests.guards import of_kind
from tests.serving import serving

pytestmark = pytest.mark.anyio
LIMIT_S = 60
TOKEN = "a-token-of-some-length"


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def delegates(*tasks: str, **more: object) -> str:
    return "\n".join(call("delegate", task=task, **more) for task in tasks)


class ByTask(Scripted):
    """A model whose replies are those of the conversation's first message, in their order."""

    def __init__(self, replies: Mapping[str, Sequence[Reply]]) -> None:
        super().__init__([])
        self._by_task = {task: list(those) for task, those in replies.items()}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        task = next(one.text for one in request.messages if one.role == "user")
        key = next(key for key in self._by_task if key in task)
        self._replies[len(self.requests) :] = [self._by_task[key].pop(0)]
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                yield piece


def helpers_in(folder: Path, replies: Mapping[str, Sequence[Reply]], **flags: object) -> Any:
    return serving(folder, ByTask(replies), headers=None, helpers=True, **flags)


def result_of(events: Sequence[dict[str, Any]], name: str = "delegate") -> dict[str, Any]:
    return next(event for event in events if event["type"] == "tool.finished" and event["name"] == name)


async def test_a_helper_does_its_task_in_a_session_of_its_own(tmp_path: Path) -> None:
    replies = {"Ask": [delegates("Look it up"), "It is 42."], "Look it up": [call("list_files"), "Found: 42."]}
    async with asyncio.timeout(LIMIT_S), helpers_in(tmp_path, replies) as served:
        events = await served.chat("Ask")
        assert events[-1]["reason"] == "answered" and events[-1]["text"] == "It is 42."
        (started,), (finished,) = of_kind(events, "helper.started"), of_kind(events, "helper.finished")
        assert finished | {"reason": "answered", "rounds": 2, "calls": 1} == finished
        assert "delegate" not in started["tools"] and "bash" in started["tools"]
        text = result_of(events)["text"]
        assert "Found: 42." in text and text.startswith("Words of the helper ["), "its words are data"
        below = await served.events(started["helper"])
        assert below[-1]["text"] == "Found: 42."
        session = events[0]["session"]
        listed = (await served.client.get("/sessions")).json()["sessions"]
        assert [row["id"] for row in listed] == [session], "helpers are not among the person's conversations"
        below = (await served.client.get("/sessions", params={"parent": session})).json()["sessions"]
        assert [row["id"] for row in below] == [started["helper_session"]]
        shown = (await served.client.get(f"/sessions/{session}")).json()
        assert [row["run"] for row in shown["helpers"]] == [started["helper"]]
        found = (await served.client.get("/sessions", params={"q": "Look"})).json()["sessions"]
        assert not [row for row in found if row["id"] != session]
        assert (await served.client.delete(f"/sessions/{session}")).status_code == 204
        assert (await served.client.get(f"/sessions/{started['helper_session']}")).status_code == 404


async def test_without_the_setting_nothing_is_offered(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([delegates("x"), "No."])) as served:
        events = await served.chat("Ask")
        assert "delegate" not in events[0]["tools"] and of_kind(events, "tool.rejected")
        assert not of_kind(events, "helper.started")

"""Runs that begin helpers, and a model with replies for each of their tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from app.core.provider import ModelRequest, Piece
from app.models.scripted import Reply, Scripted
from tests.support.models.replies import tool_call
from tests.support.server.serving import serving

LIMIT_S = 60


def delegates(*tasks: str, **more: object) -> str:
    return "\n".join(tool_call("delegate", task=task, **more) for task in tasks)


class ByTask(Scripted):
    """A model whose replies are those of the conversation's first message, in their order."""

    def __init__(self, replies: Mapping[str, Sequence[Reply]]) -> None:
        super().__init__([])
        self._by_task = {task: list(those) for task, those in replies.items()}

    def add(self, task: str, *replies: Reply) -> None:
        self._by_task[task] = list(replies)

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

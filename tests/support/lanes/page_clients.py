"""Clients of AG-UI and of the AI SDK that keep their messages, at a real server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from app.core.provider import Finished
from app.models.scripted import Line, Scripted
from parsing import Call
from tests.support.lanes.logs import data_of
from tests.support.server.serving import Served, serving

RESUME = "/ui-message-stream/c1/stream"
WEATHER = {"name": "weather", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
HANDED: list[Line] = ["I look.", Call(0, "weather", {"city": "Bonn"}, "native"), Finished("tool_calls")]
WRITE = "```write_file\nnote.txt\nfirst\n```\n"


class Page:
    """A client that keeps its messages, and sends all of them with each request."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.messages: list[dict[str, Any]] = []

    async def stream(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        response = await self.served.client.post(path, json=body)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return data_of(response.text.replace("data: [DONE]\n\n", ""))


AnyPage = TypeVar("AnyPage", bound=Page)


class AGUI(Page):
    async def send(self, text: str = "", **more: Any) -> list[dict[str, Any]]:
        if text:
            self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "content": text})
        body = {"threadId": "t1", "runId": "r1", "messages": self.messages, "state": {}, "context": []} | more
        events = await self.stream("/ag-ui", body)
        calls = [
            {"id": one["toolCallId"], "type": "function", "function": {"name": one["toolCallName"], "arguments": "{}"}}
            for one in events
            if one["type"] == "TOOL_CALL_START"
        ]
        text = "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT")
        self.messages.append({"id": f"a{len(self.messages)}", "role": "assistant", "content": text, "toolCalls": calls})
        return events

    def answer(self, call: str, content: str) -> None:
        self.messages.append({"id": f"t-{call}", "role": "tool", "toolCallId": call, "content": content})


class UI(Page):
    async def send(self, text: str = "", **more: Any) -> list[dict[str, Any]]:
        if text:
            parts = [{"type": "text", "text": text}]
            self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "parts": parts})
        body = {"id": "c1", "messages": self.messages, "trigger": "submit-message"} | more
        return await self.stream("/ui-message-stream", body)

    def keep(self, message: str, *parts: dict[str, Any]) -> None:
        """Have the answer, or that which has gone on, in the conversation."""
        self.messages = [one for one in self.messages if one["id"] != message]
        self.messages.append({"id": message, "role": "assistant", "parts": [{"type": "step-start"}, *parts]})


@asynccontextmanager
async def page(
    kind: Callable[[Served], AnyPage], folder: Path, model: Scripted, **flags: Any
) -> AsyncGenerator[AnyPage, None]:
    async with serving(folder, model, **flags) as served:
        yield kind(served)

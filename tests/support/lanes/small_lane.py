"""A small lane of the tests' own, served by a whole server: its frames are easy to read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from app.core.messages import AskedCall, Message
from app.core.provider import Provider
from app.runs.run_options import ClientTool
from app.storage.runs import EventRow
from routes.lanes.answer import Answer
from routes.lanes.attendance import Attendance
from routes.lanes.content import content_of
from routes.lanes.lane import Lane, LaneRequest, Turn, Verdict
from routes.lanes.reading import Node
from routes.protocol.errors import Refused
from routes.server import create_server
from routes.services import open_services
from tests.support.server.serving import HURRIED, NO_TLS, Served, chosen, listening, put_empty_database, settings_in

PATH = "/plain"


def read_plain(body: Mapping[str, Any]) -> LaneRequest:
    node = Node(body)
    found = LaneRequest(model=node.text("model"), messages=[])
    for one in node.children("messages"):
        content = content_of(one, "content")
        calls = tuple(AskedCall(call["id"], call["name"], {}, "native") for call in one.fields.get("calls", ()))
        found.messages.append(
            Message(
                one.required_text("role"),  # type: ignore[arg-type]
                content.text,
                calls=calls,
                call=one.text("call"),
                attachments=content.attachments,
            )
        )
        found.files += content.files
    found.tools = [ClientTool(name=name) for name in body.get("tools", ())]
    found.verdicts = [Verdict(call, approved) for call, approved in body.get("verdicts", {}).items()]
    found.parameters = body.get("parameters", {})
    found.previous, found.thread = node.text("previous"), node.text("thread")
    found.stream, found.store = node.flag("stream"), node.flag("store")
    found.background, found.asks = node.flag("background"), node.flag("asks")
    return found


class PlainEncoder:
    """`data:` and the event's JSON."""

    def __init__(self, turn: Turn) -> None:
        self.asks = turn.request.asks
        self.after = turn.after
        self.over = False

    def frames(self, row: EventRow) -> str:
        if row.seq <= self.after:
            return ""
        self.over = self.asks and row.type == "approval.required"
        return f"data: {row.data}\n\n"


def plain_whole(answer: Answer, turn: Turn) -> dict[str, Any]:
    handed = [{"id": call.call, "name": call.name} for call in answer.handed]
    return {"run": turn.run, "model": turn.model, "text": answer.text, "calls": handed, "reason": answer.reason}


def plain_error(refused: Refused) -> tuple[int, dict[str, Any]]:
    return refused.status, {"plain": {"code": refused.code, "message": refused.message}}


PLAIN = Lane("plain", PATH, read_plain, PlainEncoder, plain_whole, plain_error, headers={"X-Lane": "plain"})


@dataclass(slots=True)
class Plain(Served):
    attendance: Attendance


@asynccontextmanager
async def serving_plain(
    folder: Path, provider: Provider | None, lane: Lane = PLAIN, **flags: object
) -> AsyncGenerator[Plain, None]:
    """A server that has the lane, too."""
    choose = partial(chosen, provider) if provider else None
    async with asyncio.timeout(60), open_services(put_empty_database(settings_in(folder, **flags)), choose) as services:
        services.models.backoff = HURRIED
        server = create_server(services, [lane])
        async with listening(server) as port:
            url = f"http://localhost:{port}"
            async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=NO_TLS) as client:
                try:
                    yield Plain(client, services, server.state.attendance)
                finally:
                    await services.runs.close()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text} | more


async def whole(served: Served, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The answer of a request that is not streamed."""
    response = await served.client.post(PATH, json={"messages": messages} | more)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer | {"session": response.headers["x-session-id"]}


async def streamed(served: Served, *messages: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    async with served.client.stream("POST", PATH, json={"messages": messages, "stream": True} | more) as response:
        assert response.status_code == 200, await response.aread()
        async with aclosing(data_of(response)) as events:
            return [event async for event in events]


async def data_of(response: httpx2.Response) -> AsyncGenerator[dict[str, Any], None]:
    async for message in httpx2.EventSource(response):
        yield json.loads(message.data)


async def holds(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (what is waited for has no event)
        await asyncio.sleep(0)

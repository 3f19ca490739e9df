"""Relayed runs, and a tool of the client for them."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

from app.core.messages import Message
from app.runs.run_options import ClientTool, RunOptions
from app.storage.principals import LOCAL_USER
from app.transcript.run_request import RunRequest
from tests.support.server.serving import Served

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


async def relayed(
    served: Served,
    messages: list[Message],
    *tools: dict[str, Any],
    time_limit_s: float = 30,
    **parameters: Any,
) -> list[Any]:
    options = RunOptions(client_tools=[ClientTool(**tool) for tool in tools])
    agent = served.services.factory.relay(LOCAL_USER, options, parameters)
    row = await served.services.runs.start(
        agent,
        LOCAL_USER,
        RunRequest("", history=messages, unlisted=True, time_limit_s=time_limit_s, policy=options.policy()),
    )
    async with aclosing(served.services.runs.watch(row.id, 0)) as pages:
        events = [json.loads(one.data) async for page in pages for one in page]
    await served.services.runs.ended(row.id)
    assert await served.services.store.run(row.id) is None
    assert await served.services.store.session(row.session) is None
    return events

"""Histories of sessions as their server has kept them, and how runs ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.core.messages import Message
from app.models.scripted import Scripted
from tests.support.server.events import Event
from tests.support.server.serving import Served, answer_in

LIMIT_S = 60


async def messages_of(served: Served, events: Sequence[Event]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (await shown_session(served, events[0]["session"]))["messages"]
    return messages


async def whole_history(served: Served, events: Sequence[Event]) -> list[dict[str, Any]]:
    """The messages of a session, in which each call has its result."""
    messages = await messages_of(served, events)
    called = [call["id"] for message in messages for call in message.get("calls", [])]
    assert [message["call"] for message in messages if message["role"] == "tool"] == called
    return messages


async def kept_messages(served: Served, session: str) -> list[Message]:
    return await served.services.store.messages(session)


async def shown_session(served: Served, session: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await served.client.get(f"/sessions/{session}")).json()
    return answer


def ending_of(events: Sequence[Event]) -> tuple[str, str]:
    assert [event["type"] for event in events].count("run.finished") == 1
    return events[-1]["reason"], answer_in(events[-1]["text"])


def last_message(provider: Scripted, request: int) -> str:
    """The last words of a request."""
    return provider.requests[request].messages[-1].text

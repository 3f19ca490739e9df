"""Compaction: a conversation becomes one opaque item, a summary that clients send back in its place.

A request for it is `POST /v1/responses/compact`, or one whose input ends with a `compaction_trigger`. Its run relays
the conversation, which the model's server may have in its cache, with the question by which the agent summarises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.context.compaction.summarise import BEHIND, MOST_TOKENS, READ
from app.context.compaction.summary import goal_text
from app.context.compaction.trim import trim
from app.context.overflow import ContextOverflow
from app.context.view import RelayView, View
from app.core.messages import Message, in_words
from routes.lanes.answer import Answer
from routes.lanes.lane import LaneRequest, Turn
from routes.lanes.responses.ids import MESSAGE
from routes.lanes.responses.response import COMPACTION, ResponseHead, usage_fields
from routes.protocol.errors import Refused


async def with_question(request: LaneRequest, messages: Sequence[Message], view: View | RelayView) -> list[Message]:
    """Return what the model is asked: the messages, as far as its window reaches, and the question. Raises Refused."""
    window, words = await view.window(), [message for message in messages if message.role != "system"]
    most, own = min(MOST_TOKENS, window // 8), [message for message in words if not message.untrusted]
    request.echo[COMPACTION] = {"goal": goal_text(own, len(own), window // 2), "upto": len(words)}
    request.messages = [*messages]  # with those of the responses that it goes on from
    await view.counter.prepare(messages)
    opening = next((at for at, one in enumerate(messages) if one.role != "system"), 0)
    try:
        fitting = trim(messages, int(READ * (window - most)), view.counter.measure, opening=opening).messages
    except ContextOverflow as overflow:
        raise Refused(400, "context_overflow", str(overflow)) from None
    return [*fitting, Message("user", BEHIND.format(words=most // 2))]


def whole_compaction(answer: Answer, turn: Turn) -> dict[str, Any]:
    """The answer of `POST /v1/responses/compact`: the messages of the user, and the item. Raises Refused."""
    head = ResponseHead.of(turn)
    outcome, items = head.compacted(answer)
    if not items:
        raise Refused(502, "summary_failed", outcome.error["message"] if outcome.error else outcome.status)
    sent = (one for one in turn.request.messages if one.role == "user" and not one.untrusted)
    users = [
        {"id": head.item(MESSAGE, at), "type": "message", "status": "completed", "role": "user"}
        | {"content": [{"type": "input_text", "text": in_words(one)}]}
        for at, one in enumerate(sent, 1)
    ]
    fields = {"id": head.id, "object": "response.compaction", "created_at": turn.created, "model": turn.model}
    return fields | {"output": [*users, *items], "usage": usage_fields(answer.used)}

"""The answer as one JSON object, for clients that do not stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from routes.lanes.answer import Answer, HandedCall, Item, OwnCall, Words
from routes.lanes.anthropic_messages.blocks import (
    DRAGOMAN,
    Block,
    message_id,
    own_tool_result,
    own_tool_use,
    signature_of,
    stop_reason,
    tool_use,
    usage_of,
)
from routes.lanes.event_text import WHITE, parted_end
from routes.lanes.lane import Turn


def whole_message(answer: Answer, turn: Turn) -> dict[str, Any]:
    content = list[Block]()
    for item in _joined(answer.items):
        content += _blocks(item, turn, first=not content)
    return {
        "id": message_id(turn),
        "type": "message",
        "role": "assistant",
        "model": turn.model,
        "content": content,
        "stop_reason": stop_reason(answer.reason, cut=answer.cut, declined=answer.declined),
        "stop_sequence": None,
        "usage": usage_of(answer.usage, answer.used.cached),
    }


def _joined(items: Iterable[Item]) -> list[Item]:
    """The items, words of one kind that only white space of the other parts as one: a stream has opened no block."""
    found = list[Item]()
    for item in items:
        if isinstance(item, Words):
            if not item.text.strip(WHITE):
                continue
            last = found[-1] if found else None
            if isinstance(last, Words) and (last.thought, last.round) == (item.thought, item.round):
                found[-1] = Words([*last.pieces, *item.pieces], item.thought, item.round)
                continue
        found.append(item)
    return found


def _blocks(item: Item, turn: Turn, *, first: bool) -> Iterator[Block]:
    """The blocks of an item, with white space as a stream has it: in front of the first block only."""
    match item:
        case Words() if item.text.strip(WHITE):
            text, _ = parted_end(item.text if first else item.text.lstrip(WHITE))
            if item.thought:
                yield {"type": "thinking", "thinking": text, "signature": signature_of(turn)}
            else:
                yield {"type": "text", "text": text}
        case HandedCall():
            yield tool_use(item)
        case OwnCall() if DRAGOMAN in turn.request.echo:
            yield own_tool_use(item)
            if item.result is not None:
                yield own_tool_result(item.call, item.result, ok=item.ok)

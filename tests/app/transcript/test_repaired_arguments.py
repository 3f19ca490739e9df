"""An argument is read alike in native calls and in text, once, before anything looks at it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from app.core.events import Notice
from app.core.provider import Piece, TextChunk
from app.transcript.reply import REPAIRED, Reply
from parsing import Call, CallOpened

TOOLS: dict[str, dict[str, Any]] = {
    "wait": {"type": "object", "properties": {"days": {"type": "integer"}, "name": {"type": "string"}}},
    "sort": {"type": "object", "properties": {"items": {"type": "array"}}},
}


def replied(*pieces: Piece) -> tuple[Reply, list[Notice]]:
    ids = itertools.count()
    reply = Reply(TOOLS, fences=lambda: False, new_id=lambda: f"c{next(ids)}")
    events = [event for piece in pieces for event in reply.add(piece)] + [*reply.end()]
    return reply, [event for event in events if isinstance(event, Notice)]


def native(arguments: dict[str, Any]) -> tuple[Piece, ...]:
    return CallOpened(0, "wait"), Call(0, "wait", arguments, "native")


def in_text(body: str) -> Piece:
    return TextChunk(f'<tool_call>{{"name": "wait", "arguments": {body}}}</tool_call>')


@pytest.mark.parametrize("pieces", [native({"days": "2", "name": "2"}), (in_text('{"days": "2", "name": "2"}'),)])
def test_text_for_a_number_is_the_number_and_the_repair_is_told(pieces: tuple[Piece, ...]) -> None:
    reply, notices = replied(*pieces)
    assert [call.arguments for call in reply.calls] == [{"days": 2, "name": "2"}]
    [notice] = notices
    assert notice.code == REPAIRED
    assert notice.message == 'A call of wait was repaired: "days" was text and is read as the integer 2.'


@pytest.mark.parametrize("arguments", [{"days": 2}, {"days": "two"}, {"other": "2"}])
def test_what_fits_or_cannot_be_read_stays(arguments: dict[str, Any]) -> None:
    reply, notices = replied(*native(arguments))
    assert [call.arguments for call in reply.calls] == [arguments]
    assert notices == []


def test_a_call_made_twice_is_one_however_its_arguments_are_typed() -> None:
    reply, _ = replied(in_text('{"days": 2}'), *native({"days": "2"}))
    assert [(call.arguments, call.dialect) for call in reply.calls] == [({"days": 2}, "native")]


@pytest.mark.parametrize("text", ["[" * 65 + "]" * 65, '"' + "[" * 900 + "]" * 900 + '"'])
def test_text_that_is_read_as_too_deep_a_value_is_refused(text: str) -> None:
    reply, notices = replied(Call(0, "sort", {"items": text}, "native"))
    assert [call.arguments for call in reply.calls] == [{}] and notices == []
    assert ["64 levels" in reason for reason in reply.refused.values()] == [True]

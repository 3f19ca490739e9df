"""Answers in a format that the model's server does not keep to: the JSON is what a client gets."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from app.core.provider import Finished, Piece, TextChunk, TokenUsage
from app.models.wire.kept_format import TextFormat, in_format
from parsing import CallOpened, Thought

pytestmark = pytest.mark.anyio

OBJECT = {"type": "json_object"}
TOOLS = {"bash": {"type": "object", "properties": {"command": {"type": "string"}}}}
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
JSON = '{"a": 1}'


async def sent(*pieces: Piece) -> AsyncGenerator[Piece, None]:
    for piece in pieces:
        yield piece


async def kept(*pieces: Piece, suffix: str = "", **options: Any) -> list[Piece]:
    wanted = TextFormat(OBJECT, TOOLS, suffix, **options)
    async with aclosing(in_format(sent(*pieces), wanted)) as found:
        return [piece async for piece in found]


@pytest.mark.parametrize(
    ("wrote", "shown"),
    [
        (JSON, [TextChunk(JSON)]),
        (f"Sure:\n```json\n{JSON}\n```", [TextChunk(JSON)]),
        ("{'a': 1,}", [TextChunk(JSON)]),
        (f"<think>Is it {{}}?</think>\n{JSON}", [Thought("Is it {}?"), TextChunk(JSON)]),
        ("I cannot.", [TextChunk("I cannot.")]),
        (f"I look: {CALL}", [TextChunk(f"I look: {CALL}")]),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_the_json_of_a_text_is_shown_alone(wrote: str, shown: list[Piece], size: int) -> None:
    chunks = [TextChunk(wrote[at : at + size]) for at in range(0, len(wrote), size)]
    pieces = await kept(*chunks, TokenUsage(1, 2), Finished("stop"))
    assert pieces[0] == TokenUsage(1, 2) and pieces[-1] == Finished("stop")
    words = [piece.text.strip() for piece in pieces[1:-1] if isinstance(piece, TextChunk | Thought)]
    assert words == [piece.text for piece in shown if isinstance(piece, TextChunk | Thought)]
    assert [type(piece) for piece in pieces[1:-1]] == [type(piece) for piece in shown]


async def test_thoughts_that_the_prompt_begins_are_none_of_the_text() -> None:
    pieces = await kept(TextChunk(f"Hm, {{}}.</think>{JSON}"), Finished("stop"), suffix="<think>\n")
    assert pieces[-2:] == [TextChunk(JSON), Finished("stop")]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_answer_that_was_cut_is_not_made_whole(reason: str) -> None:
    assert await kept(TextChunk('{"a":'), Finished(reason)) == [TextChunk('{"a":'), Finished(reason)]


async def test_other_pieces_pass_at_once() -> None:
    pieces: list[Piece] = [Thought("Hm."), CallOpened(0, "bash"), Finished("tool_calls")]
    assert await kept(*pieces) == pieces


async def test_text_that_begins_as_json_is_passed_on_at_once_where_the_server_was_asked() -> None:
    pieces: list[Piece] = [TextChunk("\n"), TextChunk('{"a'), TextChunk('": 1}'), Finished("stop")]
    assert await kept(*pieces, prompted=False) == [TextChunk('\n{"a'), TextChunk('": 1}'), Finished("stop")]


@pytest.mark.parametrize(
    ("wrote", "shown", "ignored"),
    [
        (f"Sure: {JSON}", JSON, True),
        (f"```json\n{JSON}\n```", JSON, True),
        (f"<think>Hm.</think>\n{JSON}", JSON, False),
        ("I cannot.", "I cannot.", False),
    ],
)
async def test_a_server_that_ignores_the_format_is_found_out(wrote: str, shown: str, ignored: bool) -> None:
    seen: list[None] = []
    pieces = await kept(TextChunk(wrote), Finished("stop"), prompted=False, ignored=lambda: seen.append(None))
    assert [piece.text.strip() for piece in pieces if isinstance(piece, TextChunk)] == [shown]
    assert bool(seen) is ignored

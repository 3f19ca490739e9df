"""Answers in a format that the model's server does not keep to: the JSON is what a client gets."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from threading import get_ident
from typing import Any, ClassVar

import pytest

from app.core.provider import Finished, Piece, TextChunk, TextPiece, TokenUsage
from app.models.wire.kept_format import TextFormat, TextRecord, in_format
from parsing import CallOpened, Thought

pytestmark = pytest.mark.anyio

OBJECT = {"type": "json_object"}
TOOLS = {"bash": {"type": "object", "properties": {"command": {"type": "string"}}}}
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
JSON = '{"a": 1}'


async def sent(*pieces: Piece) -> AsyncGenerator[Piece, None]:
    for piece in pieces:
        yield piece


async def kept(*pieces: Piece, suffix: str = "") -> list[Piece]:
    wanted = TextFormat(OBJECT, TOOLS, suffix)
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


@pytest.mark.parametrize(
    ("wrote", "ignored"),
    [
        (JSON, False),
        (f"\n{JSON}\n", False),
        (f"<think>Hm.</think>\n{JSON}", False),
        (f"Sure: {JSON}", True),
        (f"```json\n{JSON}\n```", True),
        ("{'a': 1}", True),
        ("I cannot.", False),  # a refusal, or nothing that the prompt would help
        (CALL, False),
    ],
)
async def test_a_server_that_ignores_the_format_is_found_out(wrote: str, ignored: bool) -> None:
    assert await TextFormat(OBJECT, TOOLS).is_ignored(wrote) is ignored


class Noted(dict[str, Any]):
    """A schema that notes the threads that read it."""

    threads: ClassVar = set[int]()

    def get(self, *arguments: Any) -> Any:
        self.threads.add(get_ident())
        return super().get(*arguments)


async def test_json_is_looked_for_beside_the_loop() -> None:
    """In a long text that takes half a second and more."""
    wanted = TextFormat({"type": "json_schema", "json_schema": Noted(schema={"type": "object"})}, TOOLS)
    async with aclosing(in_format(sent(TextChunk(JSON), Finished("stop")), wanted)) as found:
        assert [piece async for piece in found] == [TextChunk(JSON), Finished("stop")]
    assert not await wanted.is_ignored(JSON)
    assert Noted.threads and get_ident() not in Noted.threads


def test_text_is_recorded_as_it_is_taken() -> None:
    record, seen = TextRecord(), list[TextPiece]()

    def takes_two(piece: TextPiece) -> bool:
        seen.append(piece)
        return len(seen) < 3

    take = record.taking(takes_two)
    assert take is not None
    pieces: list[TextPiece] = [TextChunk("a"), Thought("b"), TextChunk("c")]
    assert [take(piece) for piece in pieces] == [True, True, False]
    record.add(TextChunk("c"))  # which came as a piece
    assert record.text == "ac"
    assert record.taking(None) is None

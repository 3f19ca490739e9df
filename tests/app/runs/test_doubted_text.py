"""Text that a relay holds back behind a call in it: all of it comes, in its order, and costs what it is long."""

from __future__ import annotations

import json
import tracemalloc
from itertools import count

from app.core.events import AgentEvent, TextDelta, TextReclassified, ToolRejected
from app.core.provider import Finished, Piece, TextChunk
from app.models.wire.native_calls import NATIVE
from app.runs.relay.doubted_text import DoubtedText
from app.transcript.reply import LONGEST_BLOCK, Reply, TextCalls
from app.transcript.reply_calls import TWICE
from parsing import Call, Parser
from parsing.sink import RAW_LIMIT, Excerpts

READ = {"read_file": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
NATIVELY = Call(0, "read_file", {"path": "a.txt"}, NATIVE)


def hermes(*paths: str) -> str:
    calls = [{"name": "read_file", "arguments": {"path": path}} for path in paths]
    return f"<tool_call>{json.dumps(calls if len(calls) > 1 else calls[0])}</tool_call>"


def replied(*said: str | Piece) -> tuple[Reply, DoubtedText, list[AgentEvent]]:
    ids = count()
    reply = Reply(READ, fences=bool, new_id=lambda: f"c{next(ids)}", text_calls=lambda _: TextCalls.DOUBTED)
    text, events = DoubtedText(reply), list[AgentEvent]()
    for piece in said:
        events += text.passed(reply.add(TextChunk(piece) if isinstance(piece, str) else piece))
    reply.add(Finished("stop"))
    return reply, text, [*events, *text.passed(reply.end())]


def test_a_call_that_was_made_twice_and_then_only_thought_of_is_rejected_once() -> None:
    reply, text, events = replied(NATIVELY, "I read it: ", hermes("a.txt"), " so.", "</think>", "It is read.")
    events += text.released(reply.found_calls.leave_in_text(()))
    assert [event.reason for event in events if isinstance(event, ToolRejected)] == [TWICE]
    [moved] = [event.characters for event in events if isinstance(event, TextReclassified)]
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown[moved:] == reply.shown == "It is read."


def test_the_excerpt_of_a_block_is_one_text_for_all_of_its_calls() -> None:
    reply, _, _ = replied(hermes(*(f"{number}{'x' * RAW_LIMIT}" for number in range(3))))
    first, *others = [call.raw for call in reply.calls]
    assert len(first) == RAW_LIMIT and len(others) == 2 and all(other is first for other in others)


def test_marks_behind_a_call_are_not_copied_for_each_other() -> None:
    parser, marks = Parser(READ, excerpt=LONGEST_BLOCK), ["</tool_call>"] * 3
    for piece in (hermes("a.txt"), *marks):
        parser.feed(piece)
    parser.close()
    assert parser.closers == {0: ["</tool_call>", *marks]}


def test_a_block_of_small_pieces_is_not_kept_in_pieces() -> None:
    """They take twenty times the memory of their characters."""
    excerpts, value = Excerpts(LONGEST_BLOCK), "abc" * 100_000
    excerpts.open(0, "<tool_call>")
    tracemalloc.start()
    try:
        for at in range(0, len(value), 3):
            excerpts.keep(value[at : at + 3])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    excerpts.close(1)
    assert excerpts.by_index == {0: f"<tool_call>{value}"} and kept < 10 * len(value)

"""Answers of the Messages API as nobody should send them: each has one outcome, and memory is bounded."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.provider import (
    REPLY_CHANGED,
    Finished,
    MetadataChunk,
    ProviderFailed,
    ProviderNotice,
    TextChunk,
    TokenUsage,
)
from app.models.http.answer_stream import TooManyCalls
from app.models.http.sse import MAX_EVENT_BYTES, EventTooLarge
from app.models.wire.anthropic.answer import MessagesAnswer
from app.models.wire.anthropic.reply import MAX_BLOCKS, ReplyBlocks
from app.models.wire.native_calls import MAX_CALLS
from app.models.wire.opaque_metadata import LOST, MOST
from parsing import BadCall, Call, CallOpened, Thought
from tests.support.models.messages_streams import URL, delta, end, event, fails, outcome, start, stop

CALLS, STOP = Finished("tool_calls"), Finished("stop")

ODD: list[tuple[str, str, list[Any]]] = [
    ("nothing", "", [fails("model_cut", True)]),
    ("blank lines only", "\n\n\n", [fails("model_cut", True)]),
    ("a page", "<html>Login</html>", [fails("model_garbled", False)]),
    ("another JSON", '{"choices":[]}', [fails("model_garbled", False)]),
    ("half a JSON", '{"type":"mess', [fails("model_garbled", False)]),
    ("words", "Hello", [fails("model_garbled", False)]),
    ("an event that is no JSON", "event: message_start\ndata: {oops\n\n", [fails("model_garbled", True)]),
    ("an event that is a list", "data: []\n\n", [fails("model_garbled", True)]),
    ("a mark and blank lines first", "\ufeff\n\n" + start() + end("end_turn"), [TokenUsage(3, 2), STOP]),
    (
        "another format",
        'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n',
        [fails("model_garbled", True)],
    ),
    ("an error without a type", 'data: {"error":{"message":"no"}}\n\n', [fails("model_failed", True, 500)]),
    ("an error in words", "event: error\ndata: upstream went away\n\n", [fails("model_failed", True, 500)]),
    ("an error after the reason", start() + end("end_turn", whole=False) + event("error"), [TokenUsage(3, 2), STOP]),
    ("words after the end", start() + end("end_turn") + delta(0, "text", "Hi"), [TokenUsage(3, 2), STOP]),
    ("a reason that is not known", start() + end("tired"), [TokenUsage(3, 2), Finished("tired")]),
    (
        "a delta without its block",
        start() + delta(0, "text", "Hi") + end("end_turn"),
        [TextChunk("Hi"), TokenUsage(3, 2), STOP],
    ),
    (
        "arguments without their block",
        start()
        + event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "{}"})
        + end("end_turn"),
        [TokenUsage(3, 2), STOP],
    ),
    (
        "an index that is used twice",
        start()
        + 2 * (event("content_block_start", index=0, content_block={"type": "tool_use", "name": "a"}) + stop(0))
        + end("tool_use"),
        [
            CallOpened(0, "a"),
            Call(0, "a", {}, "native"),
            CallOpened(1, "a"),
            Call(1, "a", {}, "native"),
            TokenUsage(3, 2),
            CALLS,
        ],
    ),
    (
        "a call without a name",
        start()
        + event("content_block_start", index=0, content_block={"type": "tool_use", "id": "t"})
        + end("tool_use"),
        [BadCall(0, "", "A tool call came without a name. Call again, with the tool's name."), TokenUsage(3, 2), CALLS],
    ),
    (
        "blocks that are none",
        start() + event("content_block_start", index=0, content_block=7) + end("end_turn"),
        [TokenUsage(3, 2), STOP],
    ),
    ("counts that cannot be", start(input=-1) + end("end_turn", out="many"), [TokenUsage(0, 1), STOP]),
]


@pytest.mark.parametrize(("body", "expected"), [row[1:] for row in ODD], ids=[row[0] for row in ODD])
def test_odd_answers(body: str, expected: list[Any]) -> None:
    assert outcome([body.encode()]) == expected


def test_too_many_calls_and_too_long_events_are_refused() -> None:
    many = "".join(
        event("content_block_start", index=n, content_block={"type": "tool_use", "name": "a"})
        for n in range(MAX_CALLS + 1)
    )
    whole = json.dumps({"content": [{"type": "tool_use", "name": "a"}] * (MAX_CALLS + 1)})
    for body in (start() + many, whole):
        assert outcome([body.encode()]) == [fails("model_garbled", True)]
    block = b"x" * (1 << 20)
    for beginning in (b"data: ", b"{"):
        answer = MessagesAnswer(URL)
        with pytest.raises(ProviderFailed, match="longer than"):
            for part in [beginning, *[block] * 20]:
                list(answer.feed(part))


def test_thoughts_that_are_too_long_are_told_but_not_kept() -> None:
    long = "x" * (MOST // 2)
    stream = start() + event("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
    stream += 3 * delta(0, "thinking", long) + stop(0) + delta(1, "text", "Hi") + end("end_turn")
    assert outcome([stream.encode()]) == [
        Thought(3 * long),
        TextChunk("Hi"),
        TokenUsage(3, 2),
        ProviderNotice(REPLY_CHANGED, LOST),
        STOP,
    ]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
KINDS = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "ping",
        "error",
    ]
)
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "text_delta", "input_json_delta"])},
    optional=dict.fromkeys(("text", "thinking", "signature", "data", "id", "name", "input", "partial_json"), JUNK),
)
EVENTS = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "index": st.integers(-1, 2) | JUNK,
        "content_block": BLOCKS | JUNK,
        "delta": BLOCKS
        | JUNK
        | st.fixed_dictionaries({"stop_reason": st.sampled_from(["end_turn", "refusal"]) | JUNK}),
        "message": JUNK,
        "usage": JUNK,
        "error": JUNK,
    },
)


@given(st.lists(EVENTS, max_size=8))
@settings(max_examples=200, deadline=None)
def test_whatever_the_events_hold_there_is_one_outcome(events: list[dict[str, Any]]) -> None:
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in events)
    pieces = outcome([body.encode()])
    assert [piece for piece in pieces if isinstance(piece, Finished | tuple)] == pieces[-1:]
    with suppress(ValueError):
        json.dumps([piece.sealed.fields for piece in pieces if isinstance(piece, MetadataChunk)], allow_nan=False)


def test_blocks_without_end_are_refused() -> None:
    blocks = ReplyBlocks()
    for _ in range(MAX_BLOCKS):
        list(blocks.start(0, {"type": "text"}))
    with pytest.raises(TooManyCalls):
        list(blocks.start(0, {"type": "text"}))


def test_arguments_that_wait_for_the_end_of_their_blocks_are_bounded_together() -> None:
    blocks, big = ReplyBlocks(), {"a": "x" * (MAX_EVENT_BYTES // 4)}
    with pytest.raises(EventTooLarge):
        for index in range(4):
            list(blocks.start(index, {"type": "tool_use", "name": "bash", "input": big}))

"""What is known of a chunk without decoding it is what decoding would have said."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.provider import Piece, TextChunk
from app.models.http.answer_stream import joined
from app.models.wire.openai.answer import ChatAnswer
from app.models.wire.openai.chunk_fast_path import TRIES, ChunkFastPath
from parsing import Thought

TEXT = st.text(alphabet=st.sampled_from('abc "\\{}[]:,n\n\u2028é'), min_size=0, max_size=6)
DELTAS = st.dictionaries(
    st.sampled_from(["content", "reasoning", "reasoning_content", "role", "refusal", "content2"]), TEXT, max_size=3
)


def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish_reason", None)}
    return {"id": "c", "model": 'the "content": "a" model', "choices": [choice], **more}


def learned(one: dict[str, Any], **form: Any) -> ChunkFastPath:
    alike = ChunkFastPath()
    alike.learn(json.dumps(one, **form), one)
    return alike


@pytest.mark.parametrize("form", [{}, {"separators": (",", ":")}])
@pytest.mark.parametrize(
    ("field", "kind"),
    [("content", TextChunk), ("reasoning_content", Thought), ("reasoning", Thought), ("thinking", Thought)],
)
def test_a_chunk_like_the_last_one_need_not_be_decoded(field: str, kind: type, form: dict[str, Any]) -> None:
    one = {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", field: "one"}}]}
    other = {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", field: "other"}}]}
    assert learned(one, **form).read(json.dumps(other, **form)) == kind("other")


@pytest.mark.parametrize(
    "text", ['a "quote"', "a \\ backslash", "a\nline", "an \u2028 escape", "half \ud83d", '", "x": "', "\\"]
)
def test_of_a_text_with_escapes_only_the_text_is_decoded(text: str) -> None:
    alike, data = learned(chunk({"content": "one"})), json.dumps(chunk({"content": text}))
    assert alike.read(data) == TextChunk(text)
    assert alike.read_block(f"data: {data}\n\n".encode() * 3) == TextChunk(text * 3)


@pytest.mark.parametrize("inside", ["", 'a", "x": "b', "a\\", 'a\\\\", "x": "b', "\\x", "\\u12"])
def test_what_is_no_text_alone_is_left_to_json(inside: str) -> None:
    alike, data = learned(chunk({"content": "one"})), json.dumps(chunk({"content": "one"})).replace("one", inside)
    assert alike.read(data) is None
    assert alike.read_block(f"data: {data}\n\n".encode() * 2) is None


@pytest.mark.parametrize(
    "other",
    [
        chunk({"content": "x"}, finish_reason="stop"),
        chunk({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": 1}),
        chunk({"content": "x"}, error={"message": "no"}),
        chunk({"content": "x", "reasoning": "y"}),
        chunk({"content": "x", "tool_calls": [{"index": 0}]}),
        chunk({"content": "x", "extra_content": {"signed": 1}}),
        chunk({"content": [{"type": "text", "text": "x"}]}),
        {"choices": [{"index": 1, "delta": {"content": "x"}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}}, {"index": 1, "delta": {"content": "x"}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "message": {"content": "x"}}]},
    ],
)
def test_a_chunk_that_says_more_than_a_text_teaches_nothing(other: dict[str, Any]) -> None:
    assert learned(other).read(json.dumps(other)) is None


def test_a_server_whose_chunks_are_never_alike_is_not_learned_from_for_ever() -> None:
    alike = ChunkFastPath()
    for number in range(TRIES + 1):
        alike.learn(json.dumps(one := chunk({"content": "x"}, number=number)), one)
    assert alike.read(json.dumps(chunk({"content": "x"}, number=TRIES - 1))) == TextChunk("x")
    assert alike.read(json.dumps(chunk({"content": "x"}, number=TRIES))) is None


def pieces_of(texts: list[str]) -> list[Piece]:
    answer = ChatAnswer("http://here")
    return [piece for text in texts for piece in answer.feed(f"data: {text}\n\n".encode("utf-8", "replace"))]


@given(st.lists(DELTAS, max_size=8), st.booleans(), st.booleans())
def test_a_stream_says_what_its_chunks_say_one_by_one(
    deltas: list[dict[str, str]], escaped: bool, narrow: bool
) -> None:
    form: dict[str, Any] = {"ensure_ascii": escaped} | ({"separators": (",", ":")} if narrow else {})
    texts = [json.dumps(chunk(delta), **form) for delta in deltas]
    assert pieces_of(texts) == [piece for text in texts for piece in pieces_of([text])]


@given(st.lists(DELTAS, min_size=1, max_size=8), st.data())
def test_however_many_chunks_a_read_brings_it_says_the_same(deltas: list[dict[str, str]], data: st.DataObject) -> None:
    stream = b"".join(f"data: {json.dumps(chunk(one), ensure_ascii=False)}\n\n".encode() for one in deltas)
    answer, at, found = ChatAnswer("http://here"), 0, list[Piece]()
    while at < len(stream):  # whole events, or cut anywhere
        ends = [end.end() for end in re.finditer(b"\n\n", stream) if end.end() > at]
        until = data.draw(st.sampled_from(ends) | st.integers(at + 1, len(stream)))
        found += answer.feed(stream[at:until])
        at = until
    one_by_one = [piece for one in deltas for piece in pieces_of([json.dumps(chunk(one), ensure_ascii=False)])]
    assert list(joined(found)) == list(joined(one_by_one))


@pytest.mark.parametrize("more", [b"\xff", b"\r", b"\n", b'", "x": "', b"\n\ndata: "])
def test_bytes_that_are_no_plain_string_are_left_to_the_reader_of_events(more: bytes) -> None:
    alike, one = learned(chunk({"content": "one"})), f"data: {json.dumps(chunk({'content': 'one'}))}\n\n".encode()
    assert alike.read_block(one + one) == TextChunk("oneone")
    assert alike.read_block(one.replace(b"one", b"o" + more + b"e")) is None

"""What goes back to a model besides its words: thoughts where they are needed, and what its server has sealed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.messages import AskedCall, Message, OpaqueMetadata, dump, load, shown
from app.core.provider import Piece
from app.models.wire.opaque_metadata import MOST, MetadataCollector, origin_of
from app.models.wire.openai.answer import ChatAnswer
from app.models.wire.openai.history import wire_messages
from app.models.wire.openai.reasoning_replay import ReplayPolicy, replay_rule
from app.redaction.redactor import Redactor
from app.transcript.reply import Reply
from tests import ROOT
from tests.support.models.chatting import DONE, chat_with, chunk, says
from tests.support.models.upstream import Act, Upstream, answer, stream, upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

URL = "http://model.example/v1/chat/completions"
FIXTURES = ROOT / "fixtures" / "providers" / "odd"
KEY = "sk-9f8e7d6c5b4a-secret"
FENCE = "```bash\nls\n```"


def called(id: str, thought: str = "", dialect: str = "native", sealed: OpaqueMetadata | None = None) -> list[Message]:
    call = AskedCall(id, "bash", {"command": id}, dialect, sealed)
    text = FENCE if dialect != "native" else ""
    return [
        Message("assistant", text, (call,), reasoning=thought),
        Message("tool", "a.txt", call=id, name="bash"),
    ]


HISTORY = [
    Message("system", "Be brief."),
    Message("user", "First."),
    *called("c1", "t1"),
    Message("assistant", "Done.", reasoning="t2"),
    Message("user", "Second."),
    *called("c2", "t3"),
    *called("c3", "t4"),
]


def echoed(model: str, history: Sequence[Message] = HISTORY, *, native: bool = True) -> list[str]:
    sent = wire_messages(history, native=native, replay=ReplayPolicy("", replay_rule(model)))
    return [message["reasoning_content"] for message in sent if "reasoning_content" in message]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("deepseek-v3.2", ["t3", "t4"]),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", ["t3", "t4"]),
        ("deepseek-v4-pro", ["t1", "t3", "t4"]),
        ("deepseek-reasoner", ["t1", "t3", "t4"]),
        ("kimi-k2-thinking", ["t1", "t3", "t4"]),
        ("moonshotai/Kimi-K2.5", ["t1", "t3", "t4"]),
        ("kimi-k2.7-code", ["t1", "t2", "t3", "t4"]),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", []),
        ("gpt-5", []),
        ("qwen3-32b", []),
        ("gemini-3-pro", []),
        ("auto", []),
    ],
)
def test_thoughts_go_back_only_to_models_that_need_them(model: str, expected: list[str]) -> None:
    assert echoed(model) == expected
    assert echoed(model, native=False) == []


def test_thoughts_about_calls_in_text_stay_here() -> None:
    history = [Message("user", "Go."), *called("c1", "t1", "fence")]
    assert echoed("deepseek-v4-pro", history) == []


def test_a_word_in_between_does_not_end_the_turn() -> None:
    assert echoed("deepseek-v3.2", [*HISTORY, Message("user", "Hurry."), Message("user", "Two rounds left.")]) == [
        "t3",
        "t4",
    ]
    assert echoed("deepseek-v3.2", [*HISTORY, Message("assistant", "So."), Message("user", "Third.")]) == []


@pytest.mark.parametrize(("model", "blank"), [("deepseek-v4-flash", ""), ("kimi-k2.5", " ")])
def test_a_call_without_a_thought_says_so_to_those_who_insist(model: str, blank: str) -> None:
    history = [Message("user", "Go."), *called("c1", "t1"), *called("c2")]
    assert echoed(model, history) == ["t1", blank]
    assert echoed(model, [Message("user", "Go."), *called("c2")]) == []  # it does not think at all


def test_a_thought_that_json_readers_refuse_is_mended() -> None:
    assert echoed("kimi", [Message("user", "Go."), *called("c1", "\ud83d")]) == ["\ufffd"]


def test_what_others_have_sealed_stays_here() -> None:
    ours, theirs = origin_of("m", "http://a.example/v1"), origin_of("m", "http://b.example/v1")
    assert ours != theirs
    assert ours != origin_of("n", "http://a.example/v1")
    sealed = OpaqueMetadata(ours, {"extra_content": 1})
    history = [Message("user", "Go."), *called("c1", sealed=sealed)]
    history[1] = replace(history[1], sealed=OpaqueMetadata(ours, {"reasoning_details": [1]}))
    for origin, native, sent in ((ours, True, True), (theirs, True, False), (ours, False, False)):
        wired = json.dumps(wire_messages(history, native=native, replay=ReplayPolicy(origin)))
        assert ("extra_content" in wired) is ("reasoning_details" in wired) is sent


def test_thoughts_that_are_sealed_do_not_go_twice() -> None:
    history = [Message("user", "Go."), *called("c1", "t1")]
    history[1] = replace(history[1], sealed=OpaqueMetadata("o", {"reasoning_details": [1]}))
    (wired,) = [
        m
        for m in wire_messages(history, native=True, replay=ReplayPolicy("o", replay_rule("kimi")))
        if "tool_calls" in m
    ]
    assert wired["reasoning_details"] == [1]
    assert "reasoning_content" not in wired


def test_a_message_of_an_older_server_is_read() -> None:
    old = '{"role": "assistant", "text": "", "calls": [{"id": "c", "name": "bash", "arguments": {}, "dialect": "x"}]}'
    assert load(old).calls == (AskedCall("c", "bash", {}, "x"),)
    assert json.loads(dump(load(old))) == json.loads(old)


def test_a_seal_is_kept_whole_or_not_at_all() -> None:
    whole, broken = OpaqueMetadata("o", {"signature": "x" * 40}), OpaqueMetadata("o", {"signature": f"x{KEY}x"})
    calls = [call for seal in (whole, broken) for call in called("c", sealed=seal)[0].calls]
    told = Redactor([KEY]).redact_value(Message("assistant", KEY, tuple(calls), sealed=broken))
    assert [call.sealed for call in told.calls] == [whole, None]
    assert told.sealed is None
    assert KEY not in dump(told)


def test_a_seal_that_is_too_long_is_left_out() -> None:
    seals = MetadataCollector("o")
    seals.see_call(0, {"id": "x", "signature": "s" * (MOST // 2)})
    seals.see_call(1, {"id": "y", "signature": "s" * MOST})
    for piece in range(100):
        seals.see_reply({"reasoning_details": [{"type": "reasoning.text", "text": "t" * (MOST // 90), "index": piece}]})
    assert [len(one.sealed.fields["signature"]) for one in seals.of_call(0)] == [MOST // 2]
    assert not [*seals.of_call(1), *seals.of_reply(calls=True)]


@pytest.mark.parametrize("odd", [float("nan"), None, "", [], {}])
def test_what_cannot_go_back_is_not_kept(odd: object) -> None:
    seals = MetadataCollector("o")
    seals.see_call(0, {"id": "x", "signature": odd})
    seals.see_reply({"extra_content": odd, "reasoning_details": odd})
    seals.see_reply({"reasoning_details": ["x", None, odd]})
    assert not [*seals.of_call(0), *seals.of_reply(calls=True)]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
own = st.dictionaries(st.sampled_from(["extra_content", "thought_signature", "x"]), values, max_size=3)


def read(fragments: Sequence[dict[str, Any]], size: int) -> Message:
    """What a reply of these call fragments becomes, after the store."""
    ids = (f"c{number}" for number in range(1000))
    reply = Reply({}, fences=lambda: True, new_id=lambda: next(ids))
    body = "".join([*(chunk({"tool_calls": [one]}) for one in fragments), chunk(finish="tool_calls"), DONE]).encode()
    reader = ChatAnswer(URL, "o")
    pieces: list[Piece] = []
    for at in range(0, len(body), size):
        pieces += reader.feed(body[at : at + size])
    pieces += reader.close()
    for piece in pieces:
        assert all("sealed" not in repr(event) for event in reply.add(piece))
    return load(dump(reply.message()))


@settings(max_examples=60, deadline=None)
@given(st.lists(own, min_size=1, max_size=4), st.integers(1, 200))
def test_what_a_server_adds_to_a_call_goes_back_with_that_call(fields: list[dict[str, Any]], size: int) -> None:
    function = {"name": "bash", "arguments": "{}"}
    fragments = [{"index": n, "id": f"x{n}", "function": function} | own for n, own in enumerate(fields)]
    message = read(fragments, size)
    (wired,) = [m for m in wire_messages([message], native=True, replay=ReplayPolicy("o")) if m["role"] == "assistant"]
    added = [
        {name: value for name, value in call.items() if name not in ("id", "type", "function")}
        for call in wired["tool_calls"]
    ]
    assert added == [{name: value for name, value in own.items() if value not in (None, "", [], {})} for own in fields]
    assert "sealed" not in json.dumps(shown(message))


def test_a_signature_behind_the_call_or_of_a_broken_one_belongs_to_it() -> None:
    begun = {"index": 0, "id": "x", "function": {"name": "bash", "arguments": "{}"}}
    broken = {"index": 1, "id": "y", "function": {"name": "bash", "arguments": "{"}, "signature": "two"}
    message = read([begun, broken, {"index": 0, "signature": "one"}], 10**6)
    assert [call.sealed and call.sealed.fields for call in message.calls] == [
        {"signature": "one"},
        {"signature": "two"},
    ]


def test_a_seal_too_deep_for_the_store_is_left_out() -> None:
    deep: object = "x"
    for _ in range(100):
        deep = [deep]
    function = {"name": "bash", "arguments": "{}"}
    (call,) = read([{"index": 0, "id": "x", "function": function, "signature": deep}], 10**6).calls
    assert call.sealed is None


@asynccontextmanager
async def model_of(*acts: Act) -> AsyncGenerator[Upstream, None]:
    """A server that says these replies, and knows nothing else."""
    left, server = list(acts), list[Upstream]()

    async def say(reader: Any, writer: Any) -> None:
        chat = server[0].asked[-1].path.endswith("/chat/completions")
        await (left.pop(0) if chat else answer("{}", 404))(reader, writer)

    async with upstream(say, repeat=True) as opened:
        server.append(opened)
        yield opened


def asked_of(server: Upstream) -> list[dict[str, Any]]:
    return [asked.json for asked in server.asked if asked.path.endswith("/chat/completions")]


SIGNATURE = {"extra_content": {"google": {"thought_signature": "CrICAdHtim827fQ+/9=="}}}


LOOKED = {"reasoning_content": "I should look."}


@pytest.mark.parametrize(
    ("model", "fixture", "messages", "calls"),
    [
        ("gemini-3-pro", "call_signed.sse", [{}, {}], [SIGNATURE, {}]),
        ("deepseek-v4-pro", "reasoning_and_call.sse", [LOOKED, LOOKED], [{}]),
        ("gpt-5", "reasoning_and_call.sse", [LOOKED, {}], [{}]),
    ],
)
async def test_a_conversation_keeps_them_across_rounds_and_turns(
    tmp_path: Path, model: str, fixture: str, messages: list[dict[str, Any]], calls: list[dict[str, Any]]
) -> None:
    end = stream(says("Done."), chunk(finish="stop"), DONE)
    async with (
        model_of(stream((FIXTURES / fixture).read_bytes()), end, end) as server,
        chat_with(server, model=model) as chat,
        serving(tmp_path, chat, window=32_768) as served,
    ):
        events = await served.chat("List the files.")
        session = events[0]["session"]
        await served.chat("Thanks.", session=session)
        listed = (await served.client.get(f"/sessions/{session}")).json()
    later = asked_of(server)[1:]
    assert len(later) == 2
    for body, message in zip(later, messages, strict=True):  # the next round, and the next turn
        (wired,) = [one for one in body["messages"] if "tool_calls" in one]
        assert {
            name: value for name, value in wired.items() if name not in ("role", "content", "tool_calls")
        } == message
        assert [
            {name: value for name, value in call.items() if name not in ("id", "type", "function")}
            for call in wired["tool_calls"]
        ] == calls
    told = json.dumps([events, listed["messages"]])
    assert "thought_signature" not in told
    assert "sealed" not in told


async def test_a_provider_counts_the_thoughts_that_it_sends() -> None:
    message = called("c1", "t1")[0]
    async with upstream() as server:
        for model, counted in (("kimi-k2.5", "t1"), ("gpt-5", "")):
            async with chat_with(server, model=model) as chat:
                assert chat.added(message) == counted

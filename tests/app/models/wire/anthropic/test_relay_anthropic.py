"""A relayed request in the Messages API: the client's words alone, and its parameters translated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.clock import Clock
from app.core.messages import AskedCall, Message
from app.core.provider import Finished, ModelRequest, TextChunk
from app.models.wire.anthropic.parameters import message_fields
from app.models.wire.client_history import settled
from app.models.wire.openai.history import INTERRUPTED
from app.models.wire.structured_output import instruction
from tests.support.models.chatting import BASH, HELLO, failure_of, pieces_of
from tests.support.models.histories import MESSAGES, TAUGHT
from tests.support.models.messages_rules import broken_rules
from tests.support.models.messages_streams import HI, WHOLE, claude_at, end, error_answer, says, start
from tests.support.models.messages_wire import LS, READ, SYSTEM, USER, answer, body_of, said, turn, use, written
from tests.support.models.upstream import stream, upstream

pytestmark = pytest.mark.anyio

RESULT = Message("tool", "a.txt", call="c1", name="bash", untrusted=True)
LATE = Message("system", "It is late.")
OBJECT = {"type": "json_object"}
NAMED = {"type": "function", "function": {"name": "bash"}}
ADAPTIVE = {"type": "adaptive"}


def relayed(history: list[Message], *, native: bool = True) -> Any:
    return written(settled(history), native=native, verbatim=True)


def test_a_history_is_sent_without_words_of_ours() -> None:
    one = relayed([SYSTEM, USER, Message("assistant", "I look.", (LS, READ)), RESULT, LATE])
    assert one.system == [said("Be brief.")]
    assert one.messages == [
        turn("user", said("List the files.")),
        turn("assistant", said("I look."), use(LS), use(READ)),
        turn("user", answer("c1", "a.txt"), answer("c2", INTERRUPTED), said("It is late.")),
    ]
    assert broken_rules(body_of(one)) == []


def test_an_empty_result_has_no_content() -> None:
    one = relayed([USER, Message("assistant", "", (LS,)), replace(RESULT, text=" ")])
    assert one.messages[-1] == turn("user", {"type": "tool_result", "tool_use_id": "c1"})


def test_without_tools_calls_and_results_are_text() -> None:
    one = relayed([USER, Message("assistant", "", (LS,)), RESULT], native=False)
    call = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
    assert one.messages[1:] == [turn("assistant", said(call)), turn("user", said("Result of bash:\na.txt"))]


@given(st.lists(MESSAGES, max_size=12), st.booleans())
def test_any_history_keeps_the_rules(history: list[Message], native: bool) -> None:
    assert broken_rules(body_of(relayed([TAUGHT, *history], native=native))) == []


@pytest.mark.parametrize(
    ("sent", "fields"),
    [
        ({}, {}),
        ({"top_p": 0.5, "top_k": 4}, {"top_p": 0.5, "top_k": 4}),
        ({"top_p": 0.5, "temperature": 1}, {}),
        ({"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"stop": ["END", "\n", 7]}, {"stop_sequences": ["END"]}),
        ({"stop": "\n"}, {}),
        ({"seed": 1, "logprobs": True, "user": "u", "frequency_penalty": 1, "response_format": OBJECT}, {}),
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"tool_choice": {"type": "none"}}),
        ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ({"tool_choice": NAMED}, {"tool_choice": {"type": "tool", "name": "bash"}}),
        ({"parallel_tool_calls": False}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        ({"parallel_tool_calls": True}, {}),
        ({"reasoning_effort": "high"}, {}),
        ({"thinking": ADAPTIVE}, {"thinking": ADAPTIVE}),
        (
            {"thinking": ADAPTIVE, "reasoning_effort": "high"},
            {"thinking": ADAPTIVE, "output_config": {"effort": "high"}},
        ),
        ({"thinking": ADAPTIVE, "reasoning_effort": "minimal"}, {"thinking": ADAPTIVE}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"}},
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"}},
        ),
    ],
)
def test_parameters_are_translated_or_left_out(sent: dict[str, Any], fields: dict[str, Any]) -> None:
    assert message_fields(sent, tools=True) == fields
    assert message_fields(sent, tools=False) == {name: fields[name] for name in fields if name != "tool_choice"}


def request(**parameters: Any) -> ModelRequest:
    opening = [TAUGHT]
    return ModelRequest([HELLO], [BASH], opening=lambda: opening, verbatim=True, parameters=parameters)


async def test_a_relayed_request_has_the_client_s_words_alone() -> None:
    given_ = {"max_tokens": 50_000, "temperature": 1.5, "stop": ["END"], "tool_choice": "required", "seed": 7}
    async with upstream(WHOLE) as server, claude_at(server, clock=Clock("UTC")) as chat:
        assert await pieces_of(chat, request(**given_)) == HI
    body = server.asked[0].json
    assert "system" not in body and body["messages"][0]["content"][0]["text"] == "Hello"
    assert {name: body[name] for name in body.keys() - {"messages", "tools"}} == {
        "model": "claude-m",
        "max_tokens": 50_000,
        "stream": True,
        "temperature": 1.0,
        "stop_sequences": ["END"],
        "tool_choice": {"type": "any"},
    }
    assert broken_rules(body) == []


async def test_a_longer_answer_than_the_model_gives_is_shortened() -> None:
    refused = error_answer("invalid_request_error", "max_tokens: 99999 > 8192, which is the maximum", 400)
    async with upstream(refused, WHOLE, WHOLE) as server, claude_at(server) as chat:
        for _ in range(2):
            await pieces_of(chat, request(max_tokens=99_999))
    assert [asked.json["max_tokens"] for asked in server.asked] == [99_999, 8192, 8192]


async def test_tools_are_taught_only_where_they_are_refused() -> None:
    refused = error_answer("invalid_request_error", "tools are not supported", 400)
    async with upstream(refused, WHOLE) as server, claude_at(server, model="other") as chat:
        await pieces_of(chat, replace(request(tool_choice="required"), messages=[SYSTEM, HELLO]))
    first, second = (asked.json for asked in server.asked)
    assert [one["text"] for one in first["system"]] == ["Be brief."]
    assert [one["text"] for one in second["system"]] == ["Be brief.", TAUGHT.text]
    assert not {"tools", "tool_choice"} & second.keys()


async def test_a_format_is_asked_for_in_the_prompt() -> None:
    async with upstream(WHOLE) as server, claude_at(server) as chat:
        await pieces_of(chat, request(response_format=OBJECT))
    body = server.asked[0].json
    assert [one["text"] for one in body["system"]] == [instruction(OBJECT)] and "response_format" not in body


async def test_the_json_of_an_answer_is_what_remains() -> None:
    wrote = stream(start(), says("Here it is: {'a': "), says("1}"), end("end_turn"))
    async with upstream(wrote) as server, claude_at(server) as chat:
        pieces = await pieces_of(chat, request(response_format=OBJECT))
    assert [piece for piece in pieces if isinstance(piece, TextChunk)] == [TextChunk('{"a": 1}')]
    assert isinstance(pieces[-1], Finished)


async def test_thinking_that_is_refused_is_left_out_of_this_request() -> None:
    refused = error_answer("invalid_request_error", "Expected `thinking`, but found `tool_use`.", 400)
    history = [USER, Message("assistant", "", (AskedCall("c1", "bash", {}, "native"),)), RESULT]
    async with upstream(refused, WHOLE) as server, claude_at(server) as chat:
        asked = request(thinking=ADAPTIVE, reasoning_effort="high", top_k=4)
        await pieces_of(chat, replace(asked, messages=history))
    first, second = (one.json for one in server.asked)
    assert first["thinking"] == ADAPTIVE and not {"thinking", "output_config"} & second.keys()
    assert second["top_k"] == 4


async def test_a_refusal_reaches_the_client_in_the_server_s_words() -> None:
    refused = error_answer("invalid_request_error", "top_k: must be at least 0", 400)
    async with upstream(refused) as server, claude_at(server) as chat:
        _, failure = await failure_of(chat, request(top_k=-1))
    assert "top_k: must be at least 0" in failure.message
    assert json.loads(server.asked[0].body)["top_k"] == -1

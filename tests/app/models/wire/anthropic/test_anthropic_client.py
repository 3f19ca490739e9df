"""The client of the Messages API, against a real socket: what it asks, how thoughts come back, what it learns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from app.core.attachments import Attachment
from app.core.clock import Clock
from app.core.messages import Message, dump, load
from app.core.provider import CallForm, Finished, MetadataChunk, ModelRequest, Piece, ProviderNotice
from app.models.capabilities.abilities import AbilityOverrides
from app.models.wire.anthropic.provider import ANSWER, SHORT_ANSWER
from app.models.wire.hosted_provider import RequestDefaults
from app.transcript.reply import Reply
from parsing import Call, Thought
from tests import ROOT
from tests.support.models.chatting import ASKED, BASH, HELLO, WITH_TOOLS, failure_of, pieces_of
from tests.support.models.messages_rules import broken_rules
from tests.support.models.messages_streams import HI, KEY, WHOLE, claude_at, error_answer, event, says, start
from tests.support.models.upstream import Act, answer, hang_up, left, stream, upstream

pytestmark = pytest.mark.anyio
FIXTURES = ROOT / "fixtures" / "providers" / "anthropic"


def recorded(name: str) -> Act:
    return stream((FIXTURES / name).read_bytes())


async def test_the_request_says_all_it_should() -> None:
    request = ModelRequest(
        [replace(HELLO, at=0.0)],
        [BASH],
        max_tokens=9,
        temperature=1.5,
        opening=lambda: [Message("system", "Be brief.")],
    )
    async with upstream(WHOLE) as server, claude_at(server, clock=Clock("UTC")) as chat:
        assert await pieces_of(chat, request) == HI
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/messages")
    assert asked.headers["x-api-key"] == KEY and "authorization" not in asked.headers
    assert asked.headers["anthropic-version"] == "2023-06-01"
    kept = {"cache_control": {"type": "ephemeral"}}
    assert asked.json == {
        "model": "claude-m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief."} | kept],
        "tools": [{"name": "bash", "description": "Runs a command.", "input_schema": {"type": "object"}} | kept],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello\n\n[1970-01-01 00:00 UTC]"} | kept]}],
        "stream": True,
        "temperature": 1.0,
    }
    assert broken_rules(asked.json) == []


async def test_what_is_not_set_is_left_out_and_what_is_asked_once_is_not_kept() -> None:
    async with upstream(WHOLE) as server, claude_at(server) as chat:
        await pieces_of(chat)
    text = [{"type": "text", "text": "Hello"}]
    assert server.asked[0].json == {
        "model": "claude-m",
        "max_tokens": ANSWER,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
    }


async def test_of_a_conversation_the_last_two_turns_are_kept() -> None:
    history = [Message("user" if turn % 2 == 0 else "assistant", f"{turn}") for turn in range(7)]
    async with upstream(WHOLE) as server, claude_at(server) as chat:
        await pieces_of(chat, ModelRequest(history))
    sent = [message["content"][-1] for message in server.asked[0].json["messages"]]
    assert [block["text"] for block in sent if "cache_control" in block] == ["4", "6"]


@pytest.mark.parametrize(
    ("model", "wanted", "default", "sent"),
    [
        ("claude-m", None, None, ANSWER),
        ("claude-m", 10**6, None, ANSWER),
        ("claude-m", 100, 50, 50),
        ("qwen", None, None, SHORT_ANSWER),
    ],
)
async def test_the_limit_of_an_answer_is_always_sent(
    model: str, wanted: int | None, default: int | None, sent: int
) -> None:
    async with upstream(WHOLE) as server, claude_at(server, model, defaults=RequestDefaults(default)) as chat:
        await pieces_of(chat, replace(ASKED, max_tokens=wanted))
    assert server.asked[0].json["max_tokens"] == sent


async def test_a_key_of_the_request_s_own() -> None:
    acts = [WHOLE, error_answer("authentication_error", f"not with {KEY}2", 401)]
    async with upstream(*acts) as server, claude_at(server) as chat:
        await pieces_of(chat, replace(ASKED, key=f"{KEY}2"))
        _, failure = await failure_of(chat, replace(ASKED, key=f"{KEY}2"))
    assert [asked.headers["x-api-key"] for asked in server.asked] == [f"{KEY}2"] * 2
    assert (failure.code, failure.status) == ("model_auth", 401) and KEY not in failure.message


def calling(pieces: Sequence[Piece]) -> Message:
    """The reply as it comes out of the store, under our own ids."""
    ids = iter(f"c{number}" for number in range(9))
    reply = Reply({"bash": {}}, fences=lambda: False, new_id=lambda: next(ids))
    for piece in pieces:
        list(reply.add(piece))
    list(reply.end())
    return load(dump(reply.message()))


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("tool_use.sse", ["text", "tool_use"]),
        ("thinking_and_tool.sse", ["thinking", "text", "tool_use"]),
        ("thinking_omitted.sse", ["thinking", "tool_use"]),
        ("thinking_redacted.sse", ["thinking", "redacted_thinking", "tool_use"]),
        ("thinking_between.sse", ["thinking", "text", "thinking", "tool_use"]),
    ],
)
async def test_a_reply_with_its_thoughts_comes_back_with_the_result(name: str, types: list[str]) -> None:
    async with upstream(recorded(name), WHOLE, WHOLE) as server, claude_at(server) as chat:
        reply = calling(await pieces_of(chat, WITH_TOOLS))
        result = Message("tool", "a.txt", call="c0", name="bash")
        history = [HELLO, reply, result]
        await pieces_of(chat, ModelRequest(history, [BASH]))
        await pieces_of(chat, ModelRequest([replace(HELLO, text="Something else"), reply, result], [BASH]))
    whole, without = (asked.json for asked in server.asked[1:])
    assert broken_rules(whole) == broken_rules(without) == []
    blocks = whole["messages"][1]["content"]
    assert [block["type"] for block in blocks] == types
    streamed = [line[6:] for line in (FIXTURES / name).read_text("utf-8").splitlines() if line.startswith("data: ")]
    id = next(block["id"] for block in blocks if block["type"] == "tool_use")
    assert whole["messages"][2]["content"][0]["tool_use_id"] == id
    for block in blocks:
        if block["type"] == "thinking":
            assert any(json.dumps(block["signature"]) in line for line in streamed)
            assert any(f'"id":"{id}"' in line for line in streamed)  # as it came, with all that belongs to it
        if block["type"] == "redacted_thinking":
            assert any(json.dumps(block["data"]) in line for line in streamed)
    left = [block["type"] for block in without["messages"][1]["content"]]
    assert left == [kind for kind in types if "thinking" not in kind]


async def test_thoughts_that_are_refused_are_left_out_once() -> None:
    refused = error_answer(
        "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block", 400
    )
    async with upstream(recorded("thinking_and_tool.sse"), refused, WHOLE) as server, claude_at(server) as chat:
        reply = calling(await pieces_of(chat, WITH_TOOLS))
        history = [HELLO, reply, Message("tool", "a.txt", call="c0", name="bash")]
        assert await pieces_of(chat, ModelRequest(history, [BASH])) == HI
    types = [[block["type"] for block in asked.json["messages"][1]["content"]] for asked in server.asked[1:]]
    assert types == [["thinking", "text", "tool_use"], ["text", "tool_use"]]
    assert broken_rules(server.asked[2].json) == []


async def test_a_temperature_that_is_refused_is_left_out_from_then_on() -> None:
    refused = error_answer("invalid_request_error", "`temperature` is deprecated for this model.", 400)
    hot = replace(ASKED, temperature=0.5)
    async with upstream(refused, WHOLE, WHOLE) as server, claude_at(server) as chat:
        told, *pieces = await pieces_of(chat, hot)
        assert isinstance(told, ProviderNotice) and told.code == "parameter" and pieces == HI
        assert await pieces_of(chat, hot) == HI
    assert ["temperature" in asked.json for asked in server.asked] == [True, False, False]


@pytest.mark.parametrize(
    ("act", "code", "retryable", "status"),
    [
        (error_answer("invalid_request_error", "no", 400), "model_rejected", False, 400),
        (
            error_answer("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", 400),
            "model_context",
            False,
            400,
        ),
        (error_answer("not_found_error", "model: claude-m", 404), "model_not_found", False, 404),
        (error_answer("request_too_large", "too large", 413), "model_context", False, 413),
        (error_answer("rate_limit_error", "slow down", 429, retry_after="7"), "model_busy", True, 429),
        (error_answer("api_error", "oops", 500), "model_failed", True, 500),
        (error_answer("overloaded_error", "Overloaded", 529), "model_down", True, 529),
        (stream(start(), says("Hi"), then=hang_up), "model_cut", True, None),
        (answer("<html>Login</html>", kind="text/html"), "model_garbled", False, None),
    ],
)
async def test_failures(act: Act, code: str, retryable: bool, status: int | None) -> None:
    async with upstream(act) as server, claude_at(server) as chat:
        _, failure = await failure_of(chat, WITH_TOOLS)
    assert (failure.code, failure.retryable, failure.status) == (code, retryable, status)
    assert len(server.asked) == 1  # a model that is known to take tools is not asked without them
    assert failure.window == (200000 if "too long" in failure.message else None)
    assert failure.retry_after_s == (7 if status == 429 else None)


async def test_another_model_that_refuses_tools_is_taught_them() -> None:
    refused = error_answer("invalid_request_error", "tools are not supported", 400)
    async with upstream(refused, WHOLE) as server, claude_at(server, "tiny") as chat:
        assert await pieces_of(chat, WITH_TOOLS) == HI
        assert (chat.native_tools, chat.call_form) == (False, CallForm.TAGGED)
    assert ["tools" in asked.json for asked in server.asked] == [True, False]


async def test_who_wants_fences_gets_them() -> None:
    async with upstream(WHOLE) as server, claude_at(server, overrides=AbilityOverrides("fenced")) as chat:
        assert (chat.native_tools, chat.call_form) == (False, CallForm.FENCED)
        await pieces_of(chat, WITH_TOOLS)
    assert "tools" not in server.asked[0].json


async def test_pictures_are_read_and_sent_and_thoughts_behind_them_go_back() -> None:
    picture = Attachment("11" * 32, "image/png", 3, "cat.png")

    async def read(sha256: str) -> bytes:
        assert sha256 == picture.sha256
        return b"PNG"

    asked = replace(HELLO, attachments=(picture,))
    async with upstream(recorded("thinking_and_tool.sse"), WHOLE) as server, claude_at(server) as chat:
        reply = calling(await pieces_of(chat, ModelRequest([asked], [BASH], read=read)))
        await pieces_of(chat, ModelRequest([asked, reply], [BASH], read=read))
    first, second = (request.json for request in server.asked)
    picture_sent, words = first["messages"][0]["content"]
    assert picture_sent["source"] == {"type": "base64", "media_type": "image/png", "data": "UE5H"}
    assert words["text"] == "Hello" and second["messages"][0]["content"][0] == picture_sent
    assert second["messages"][1]["content"][0]["type"] == "thinking"
    assert broken_rules(first) == broken_rules(second) == []


async def test_thoughts_count_where_they_go_back() -> None:
    async with upstream(recorded("thinking_and_tool.sse")) as server, claude_at(server) as chat:
        pieces = await pieces_of(chat, WITH_TOOLS)
        assert Thought("I should look first.") in pieces
        assert any(isinstance(piece, Call) for piece in pieces)
        reply = calling(pieces)
        assert chat.added(reply) == "I should look first."
        assert chat.added(replace(reply, sealed=None)) == ""


async def test_a_stream_that_begins_with_an_error_fails_before_the_first_token() -> None:
    overloaded = stream(event("error", error={"type": "overloaded_error", "message": "Overloaded"}))
    async with upstream(overloaded) as server, claude_at(server) as chat:
        seen, failure = await failure_of(chat)
    assert (seen, failure.code, failure.retryable, failure.status) == ([], "model_down", True, 529)


async def test_who_leaves_at_the_first_notice_leaves_the_server_as_well() -> None:
    gone, refused = (
        asyncio.Event(),
        error_answer("invalid_request_error", "`temperature` is deprecated for this model.", 400),
    )
    async with upstream(refused, stream(start(), then=left(gone))) as server, claude_at(server) as chat:
        async with aclosing(chat.stream(replace(ASKED, temperature=0.5))) as pieces:
            assert isinstance(await anext(pieces), ProviderNotice)
        await gone.wait()


@pytest.mark.parametrize("share", range(0, 95, 9))
async def test_a_connection_that_is_lost_half_way_gives_no_half_call(share: int) -> None:
    body = (FIXTURES / "thinking_and_tool.sse").read_bytes()
    async with upstream(stream(body[: len(body) * share // 100], then=hang_up)) as server, claude_at(server) as chat:
        seen, failure = await failure_of(chat, WITH_TOOLS)
    assert (failure.code, failure.retryable) == ("model_cut", True)
    assert not [piece for piece in seen if isinstance(piece, Call | Finished | MetadataChunk)]

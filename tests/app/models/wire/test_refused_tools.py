"""Native tools, refused tools and unnamed models: what the client learns about a server while it talks to it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.core.provider import CallForm, TextChunk
from app.models.capabilities.abilities import SHOWN_S, AbilityCache
from parsing import Call
from tests.support.models.answers import FIXTURES
from tests.support.models.chatting import (
    DONE,
    REFUSED_TOOLS,
    WHOLE,
    WITH_TOOLS,
    chat_with,
    chunk,
    failure_of,
    pieces_of,
)
from tests.support.models.upstream import Upstream, answer, stream, upstream

pytestmark = pytest.mark.anyio


CALL = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
REFUSALS = (400, 404, 422, 500, 501)
NATIVE = stream(chunk({"tool_calls": [CALL]}), chunk(finish="tool_calls"), DONE)


async def test_a_native_call_comes_through() -> None:
    async with upstream(NATIVE) as server, chat_with(server) as chat:
        assert (chat.native_tools, chat.call_form) == (True, CallForm.TAGGED)  # nobody knows yet
        pieces = await pieces_of(chat, WITH_TOOLS)
        assert (chat.native_tools, chat.call_form) == (True, CallForm.NATIVE)
    assert Call(0, "bash", {"command": "ls"}, "native") in pieces


def offered(server: Upstream) -> Sequence[bool]:
    """Which of the requests offered tools."""
    return ["tools" in asked.json for asked in server.asked]


VLLM = (FIXTURES / "vllm/refused_tools.json").read_text()


@pytest.mark.parametrize(("status", "said"), [*((status, REFUSED_TOOLS) for status in REFUSALS), (400, VLLM)])
async def test_a_server_that_refuses_tools_is_asked_without_and_remembered(status: int, said: str) -> None:
    acts = [answer(said, status), WHOLE, WHOLE]
    async with upstream(*acts) as server, chat_with(server) as chat:
        assert TextChunk("Hi") in await pieces_of(chat, WITH_TOOLS)
        assert (chat.native_tools, chat.call_form) == (False, CallForm.TAGGED)
        await pieces_of(chat, WITH_TOOLS)
    assert offered(server) == [True, False, False]


async def test_a_bad_request_with_and_without_tools_says_nothing_of_tools() -> None:
    async with upstream(answer("no", 400), answer("still no", 400)) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat, WITH_TOOLS)
        assert (chat.native_tools, chat.call_form) == (True, CallForm.TAGGED)
    assert "still no" in failure.message
    assert offered(server) == [True, False]


async def test_a_bad_request_does_not_make_forget_that_the_model_calls_natively() -> None:
    """What it is told of tools would change, and its server's cache be worth nothing."""
    async with upstream(NATIVE, answer("no", 400), answer("still no", 400)) as server, chat_with(server) as chat:
        await pieces_of(chat, WITH_TOOLS)
        await failure_of(chat, WITH_TOOLS)
        assert (chat.native_tools, chat.call_form) == (True, CallForm.NATIVE)


async def test_a_model_that_goes_on_calling_natively_is_known_to_do_so() -> None:
    now = 0.0
    abilities = AbilityCache(clock=lambda: now)
    async with upstream(NATIVE, NATIVE) as server, chat_with(server, abilities=abilities) as chat:
        for now in (0.0, SHOWN_S - 1):  # noqa: B007 (the clock)
            await pieces_of(chat, WITH_TOOLS)
        now = SHOWN_S + 1
        assert (chat.native_tools, chat.call_form) == (True, CallForm.NATIVE)


async def test_a_prompt_that_is_too_long_is_not_blamed_on_the_tools() -> None:
    act = answer('{"error":{"code":400,"message":"exceeds the available context size"}}', 400)
    async with upstream(act) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat, WITH_TOOLS)
        assert chat.native_tools
    assert (failure.code, offered(server)) == ("model_context", [True])


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ('{"error":{"message":"Invalid value","param":"messages.[3].role"}}', "model_rejected"),
        ('{"detail":[{"type":"x","loc":["body","messages",3,"content"],"msg":"no"}]}', "model_rejected"),
        ('{"error":{"message":"Failed to call a function.","code":"tool_use_failed"}}', "model_failed"),
    ],
    ids=["another field", "another place", "a call that the server cannot read"],
)
async def test_what_a_refusal_says_of_other_things_is_not_blamed_on_the_tools(said: str, code: str) -> None:
    async with upstream(answer(said, 400)) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat, WITH_TOOLS)
        assert chat.native_tools
    assert (failure.code, failure.retryable, offered(server)) == (code, code == "model_failed", [True])


async def test_the_first_model_is_asked_for_by_name() -> None:
    models = answer('{"object":"list","data":[{"id":"nomic-embed-text"},{"id":"qwen"},{"id":"other"}]}')
    async with upstream(models, WHOLE, WHOLE) as server, chat_with(server, model="auto", key="sk-1") as chat:
        await pieces_of(chat)
        await pieces_of(chat)
        assert chat.model == "qwen"
    assert [asked.path for asked in server.asked] == ["/v1/models", *["/v1/chat/completions"] * 2]
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer sk-1"}
    assert server.asked[1].json["model"] == "qwen"


@pytest.mark.parametrize("body", ["<html></html>", '{"models":[]}', '{"data":[]}', '{"data":[{"id":7}]}', "[" * 5000])
async def test_a_server_without_a_list_of_models_is_asked_for_its_default(body: str) -> None:
    async with upstream(answer(body), WHOLE) as server, chat_with(server, model="auto") as chat:
        await pieces_of(chat)
        assert chat.model == "default"

"""Two real model servers: what they say of their models, what they refuse, that they are busy, killed, and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from app.core.events import TextReclassified
from app.core.messages import AskedCall, Message
from app.core.provider import CallForm, FallbackUsed, Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.embedded.supervisor import SMOLLM2
from app.models.http.client import model_client
from app.models.scripted import Scripted
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.native_calls import NATIVE
from app.models.wire.openai.provider import OpenAIChat
from app.transcript.reply import Reply
from parsing import Call
from tests.support.models.real_models import (
    GEMMA,
    LIMIT_S,
    LlamaServer,
    Served,
    embedded,
    need_embedded,
    need_gemma,
    pieces_of,
)
from tests.support.models.targets import Time
from tests.support.models.templates import MUSES, MUSES_APART, PLAIN, REFUSES, WITH_CALLS
from tests.support.nightly import at_night, only_at_night
from tests.support.server.serving import serving, until
from tools.catalogue import TOOLS

pytestmark = pytest.mark.anyio
COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
BASH = [replace(tool, description="Run it.", parameters=COMMAND) for tool in TOOLS if tool.name == "bash"]
HELLO = ModelRequest([Message("user", "Say hello.")], max_tokens=2, temperature=0.0)
TEXTS = ["Unknowable", "请阅读文件", "def area(r): return 3.14159 * r**2", "<|im_start|>"]
OTHER = Served(str(GEMMA), "gemma-3-270m", WITH_CALLS, slots=2)


@pytest.fixture(autouse=True)
def installed() -> None:
    need_embedded()
    need_gemma()


@asynccontextmanager
async def chat_with(server: LlamaServer) -> AsyncGenerator[OpenAIChat, None]:
    """The whole test is bounded by it."""
    async with asyncio.timeout(LIMIT_S), model_client(server.base_url) as client:
        yield OpenAIChat(
            client, server.base_url, server.served.name, defaults=RequestDefaults(max_tokens=64, temperature=0.0)
        )


async def tokens_of(server: LlamaServer, text: str) -> int:
    async with httpx2.AsyncClient(trust_env=False) as client:
        url = f"{server.base_url.removesuffix('/v1')}/tokenize"
        return len((await client.post(url, json={"content": text, "add_special": False})).json()["tokens"])


async def test_two_servers_say_what_their_models_can_and_count_for_themselves() -> None:
    with LlamaServer(OTHER) as server:
        async with embedded() as (_, small), chat_with(server) as large:
            assert (await small.window(), await large.window()) == (SMOLLM2.context, OTHER.context)
            known = [{row.name: row.value for row in provider.abilities()} for provider in (small, large)]
            assert {name for name in known[0] if known[0][name] != known[1][name]} == {"tools", "window"}
            both = {"images": False, "pdf": False, "slots": 2, "counting": "llama.cpp"}
            assert known[1].items() >= ({"tools": True} | both).items()
            assert known[0]["tools"] is False
            rows = [row for row in (*small.abilities(), *large.abilities()) if row.name != "reasoning"]
            assert {row.source for row in rows} == {"server"}  # an answer shows if its reasoning comes apart
            assert (large.native_tools, large.call_form) == (True, CallForm.NATIVE)
            counted = await large.count_tokens(TEXTS)
            assert counted == [await tokens_of(server, text) for text in TEXTS]
            assert counted != await small.count_tokens(TEXTS)


@pytest.mark.parametrize(
    ("served", "detail"),
    [
        (Served(template=REFUSES), "status 400 for tools"),
        (Served(template=PLAIN, jinja=False), "status 500 for tools"),
    ],
    ids=["a template that takes none", "a server that takes none"],
)
async def test_tools_that_a_server_refuses_are_taught_at_once_and_from_then_on(served: Served, detail: str) -> None:
    """Nobody has asked it before."""
    with LlamaServer(served) as server:
        async with chat_with(server) as chat:
            assert (chat.native_tools, chat.call_form) == (True, CallForm.TAGGED)
            assert Finished("length") in await pieces_of(chat, replace(HELLO, tools=BASH))
            assert (chat.native_tools, chat.call_form) == (False, CallForm.TAGGED)
            shown = chat.ability("tools")
            assert (shown.source, shown.detail) == ("answer", detail)
            await chat.window()  # the server says so itself
            assert chat.ability("tools").value is False


def native_turns() -> list[Message]:
    """So often that the model does it once more."""
    turns = []
    for number in range(3):
        call = AskedCall(f"c{number}", "bash", {"command": "ls"}, NATIVE)
        turns += [
            Message("user", "Show the files."),
            Message("assistant", "", calls=(call,)),
            Message("tool", "guide.md", call=call.id, name="bash"),
            Message("assistant", "There is guide.md."),
        ]
    return [*turns, Message("user", "Show the files.")]


@only_at_night  # recorded answers show it by day (test_abilities)
async def test_a_native_call_shows_that_the_model_takes_tools() -> None:
    with LlamaServer(Served(template=WITH_CALLS, context=2048)) as server:
        async with chat_with(server) as chat:
            pieces = await pieces_of(chat, ModelRequest(native_turns(), BASH))
            assert Call(0, "bash", {"command": "ls"}, NATIVE) in pieces
            shown = chat.ability("tools")
            assert (shown.value, shown.source, chat.call_form) == (True, "answer", CallForm.NATIVE)


MUSED = "I muse.</think>\n\nParis"
EMPTY = "</think>\n\nParis"


@pytest.mark.parametrize(
    ("template", "reasoning", "says", "hint", "thought"),
    [
        (MUSES, 3, MUSED, "<|im_end|>\n<|im_start|>assistant\n<think>\n", "I muse."),
        pytest.param(MUSES, 3, EMPTY, "<|im_end|>\n<|im_start|>assistant\n<think>\n", "", marks=only_at_night),
        (MUSES_APART, 3, MUSED, "", "I muse."),
        pytest.param(MUSES_APART, 3, EMPTY, "", "", marks=only_at_night),
        pytest.param(MUSES_APART, 0, MUSED, "", "I muse.", marks=only_at_night),
    ],
)
async def test_thoughts_that_the_prompt_begins_are_thoughts_and_the_answer_is_never_one(
    template: str, reasoning: int, says: str, hint: str, thought: str
) -> None:
    with LlamaServer(Served(template=template, reasoning=reasoning, says=says)) as server:
        async with chat_with(server) as chat:
            await chat.window()
            pieces = await pieces_of(chat, replace(HELLO, max_tokens=32))
            for suffix, hindsight in ((chat.prompt_suffix, False), (str, bool(hint and thought))):
                reply = Reply({}, fences=lambda: True, new_id=str, prompt_suffix=suffix)
                events = [*(event for piece in pieces for event in reply.add(piece)), *reply.end()]
                assert (reply.message().reasoning.strip(), reply.shown.strip()) == (thought, "Paris")
                assert any(isinstance(event, TextReclassified) for event in events) is hindsight
            assert chat.prompt_suffix() == hint


async def test_many_runs_share_two_slots_and_none_fails() -> None:
    """More than the server has room for are in the line, not at its door."""
    async with embedded() as (_, provider):
        await provider.window()
        time = Time()
        host = time.server("local")
        target, most = time.handle(provider, host), 0

        async def asked(principal: str) -> list[Piece]:
            nonlocal most
            pieces = []
            async with aclosing(time.route(target, principal=principal).stream(replace(HELLO, max_tokens=1))) as stream:
                async for piece in stream:
                    most = max(most, host.queue.under_way)
                    pieces.append(piece)
            return pieces

        answers = await asyncio.gather(*(asked(f"person {number % 7}") for number in range(at_night(50, 16))))
        assert all(isinstance(pieces[-1], Finished) for pieces in answers)
        assert (host.queue.limit, most, host.queue.under_way, host.queue.waiting) == (2, 2, 0, 0)


async def test_a_server_killed_in_the_middle_is_another_one_when_it_is_back() -> None:
    with LlamaServer(OTHER) as server:
        async with chat_with(server) as chat:
            await chat.window()
            with pytest.raises(ProviderFailed) as failed:
                async with aclosing(chat.stream(replace(HELLO, max_tokens=900))) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, TextChunk):
                            server.kill()
            assert failed.value.code == "model_cut"
            assert chat.native_tools  # as far as anybody knows
            server.start(Served(name=OTHER.name, template=PLAIN, context=512))
            assert await chat.window() == 512
            assert (chat.native_tools, chat.call_form) == (False, CallForm.FENCED)
            assert Finished("length") in await pieces_of(chat, replace(HELLO, tools=BASH))


async def test_one_stands_in_for_the_other_until_it_is_back() -> None:
    time = Time()
    with LlamaServer(OTHER) as server:
        async with embedded() as (_, small), chat_with(server) as large:
            targets = (time.handle(large, time.server("far")), time.handle(small, time.server("near")))
            route = time.route(*targets)
            asked = replace(HELLO, tools=BASH)

            async def answer() -> tuple[list[FallbackUsed], str]:
                pieces = await pieces_of(route, asked)
                assert isinstance(pieces[-1], Finished)
                return [piece for piece in pieces if isinstance(piece, FallbackUsed)], route.last.name

            assert await answer() == ([], f"far/{OTHER.name}")
            server.kill()
            switched = [FallbackUsed(f"far/{OTHER.name}", f"near/{SMOLLM2.name}", "model_down")]
            assert await answer() == (switched, f"near/{SMOLLM2.name}")
            assert (route.native_tools, route.call_form) == (False, CallForm.FENCED)
            server.start()
            assert await answer() == (switched, f"near/{SMOLLM2.name}")  # it is left alone for a while
            time.now += 21
            assert await answer() == ([], f"far/{OTHER.name}")


async def test_a_run_whose_model_is_killed_goes_on_with_the_other_one(tmp_path: Path) -> None:
    """What it had said stays, marked; who answers instead is told, and stored with the message."""
    here, there = "near/small", f"far/{OTHER.name}"
    with LlamaServer(OTHER) as server, LlamaServer(Served(says="Hello.", slots=2)) as other:
        far = {"url": server.base_url, "model": OTHER.name, "temperature": 0}
        flags: dict[str, Any] = {
            "endpoints": json.dumps({"far": far, "near": {"url": other.base_url}}),
            "fallback": here,
        }
        async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), **flags) as served:
            async with aclosing(served.turn(message="Say hello.", model=there, tools=[])) as turn:
                session = (await until(turn, "run.started"))["session"]
                said = await until(turn, "text.delta")
                server.kill()
                events = [event async for event in turn]
            assert events[-1]["reason"] == "answered" and events[-1]["text"].endswith("Hello.")
            told = {event["code"]: event for event in events if event["type"] == "notice"}
            assert "fallback" not in told
            assert (told["continued"]["wanted"], told["continued"]["answered_by"]) == (there, here)
            messages = (await served.client.get(f"/sessions/{session}")).json()["messages"]
            first, second = [one for one in messages if one["role"] == "assistant"]
            assert (first["cut"], first["text"].startswith(said["text"])) == (True, True)
            assert second["switched"]["answered_by"] == here

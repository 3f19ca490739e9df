"""The prompt: its pieces, its stable head, its size, and whether the embedded model does what it teaches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from app.framing import RULE, framed
from app.messages import AskedCall, Message
from app.prompt import EXAMPLES, Example, opening, signature, system_prompt, worked_examples
from app.provider import ModelRequest, Said
from app.providers.embedded import EmbeddedModel, EmbeddedProvider
from app.providers.wire import ENOUGH, wire_messages
from parsing import parse
from tools.catalogue import TOOLS
from tools.tool import Tool

pytestmark = pytest.mark.anyio

WORKSPACE = Path("/home/ann/workspace")
MORNING = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
REQUEST = "Print hello world with the shell."
TOKEN_LIMIT = 600
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


def prompt(tools: Sequence[Tool] = TOOLS, *, teach_fences: bool = True, now: datetime = MORNING) -> str:
    return system_prompt(tools, teach_fences=teach_fences, workspace=WORKSPACE, now=now)


def beginning(tools: Sequence[Tool] = TOOLS, *, teach_fences: bool = True) -> list[Message]:
    return opening(tools, teach_fences=teach_fences, workspace=WORKSPACE, now=MORNING)


def named(*names: str) -> list[Tool]:
    return [tool for tool in TOOLS if tool.name in names]


def test_every_round_of_a_day_has_the_same_prompt() -> None:
    assert prompt(now=MORNING + timedelta(hours=15)) == prompt()


def test_the_next_day_changes_nothing_but_the_end() -> None:
    today, tomorrow = prompt(), prompt(now=MORNING + timedelta(days=1))
    assert today.endswith("\n\nToday is Saturday, 2026-11-21.")
    assert tomorrow.endswith("\n\nToday is Sunday, 2026-11-22.")
    assert today.rpartition("\n\n")[0] == tomorrow.rpartition("\n\n")[0]


def test_the_date_is_that_of_the_given_time_zone() -> None:
    late = datetime.fromisoformat("2026-11-21T23:30:00-08:00")
    assert "2026-11-21" in prompt(now=late)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_each_tool_has_a_line_with_its_arguments(tool: Tool) -> None:
    assert f"- {tool.name}({signature(tool.parameters)}): {tool.description}\n" in prompt()


@pytest.mark.parametrize("kept", TOOLS, ids=lambda tool: tool.name)
def test_tools_that_are_not_offered_are_not_mentioned(kept: Tool) -> None:
    said = "\n".join(message.text for message in beginning([kept]))
    assert [tool.name for tool in TOOLS if f"- {tool.name}(" in said or f"```{tool.name}\n" in said] == [kept.name]
    assert {message.name for message in beginning([kept])} <= {None, kept.name}


@pytest.mark.parametrize("teach_fences", [True, False])
def test_without_tools_none_are_spoken_of(teach_fences: bool) -> None:
    messages = beginning([], teach_fences=teach_fences)
    assert [message.role for message in messages] == ["system"]
    assert "tool" not in messages[0].text and str(WORKSPACE) not in messages[0].text


def test_a_model_with_native_calls_is_not_taught() -> None:
    messages = beginning(teach_fences=False)
    assert [message.role for message in messages] == ["system"]
    assert "fence" not in messages[0].text and "bash" not in messages[0].text
    assert str(WORKSPACE) in messages[0].text


def test_required_arguments_come_first_and_optional_ones_are_marked() -> None:
    schema = {"properties": {"limit": {}, "path": {}, "text": {}}, "required": ["path", "text"]}
    assert signature(schema) == "path, text, limit?"
    assert signature({}) == ""


def test_there_are_two_worked_examples_and_each_ends_in_an_answer() -> None:
    messages = worked_examples(TOOLS)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"] * 2


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.tool)
def test_a_worked_example_means_to_the_parser_what_it_means_in_the_history(example: Example) -> None:
    [asked] = [message for message in example.messages() if message.calls]
    read = parse(asked.text, SCHEMAS).calls
    assert [(call.name, call.arguments, call.dialect) for call in read] == [
        (call.name, call.arguments, call.dialect) for call in asked.calls
    ]


def test_text_results_end_with_one_line_that_allows_an_answer() -> None:
    calls = tuple(AskedCall(f"c{number}", "bash", {"command": "ls"}, "fence") for number in range(2))
    asked = Message("assistant", "two calls", calls=calls)
    results = [Message("tool", "out", call=call.id, name=call.name) for call in calls]
    sent = wire_messages([Message("user", "Go."), asked, *results], native=False)
    told = [framed("out", call=call.id, name="bash") for call in calls]
    assert sent[-1] == {"role": "user", "content": "\n\n".join([*told, ENOUGH])}


@pytest.mark.parametrize(("tools", "times"), [(TOOLS, 1), ((), 0)], ids=["with tools", "without"])
@pytest.mark.parametrize("teach_fences", [True, False])
def test_the_prompt_says_once_what_a_frame_means(tools: Sequence[Tool], times: int, teach_fences: bool) -> None:
    assert prompt(tools, teach_fences=teach_fences).count(RULE) == times


@pytest.mark.parametrize("native", [True, False])
def test_results_are_never_in_the_system_prompt(native: bool) -> None:
    calls = tuple(AskedCall(f"c{dialect}", "bash", {"command": "ls"}, dialect) for dialect in ("fence", "native"))
    results = [Message("tool", "canary", call=call.id, name=call.name) for call in calls]
    asked = [Message("assistant", "a call", calls=(call,)) for call in calls]
    sent = wire_messages([*beginning(), Message("user", "Go."), *asked, *results], native=native)
    assert [one["role"] for one in sent if "canary" in one["content"]] == (["tool", "user"] if native else ["user"])


def test_the_worked_examples_are_framed_like_any_result() -> None:
    sent = wire_messages(beginning(), native=False)
    for example in EXAMPLES:
        told = framed(example.result, call=f"example-{example.tool}", name=example.tool)
        assert {"role": "user", "content": told} in [
            one | {"content": one["content"].split(f"\n\n{ENOUGH}")[0]} for one in sent
        ]


async def said_by(provider: EmbeddedProvider, conversation: Sequence[Message]) -> str:
    request = ModelRequest(conversation, TOOLS, opening=beginning)
    async with aclosing(provider.stream(request)) as pieces:
        return "".join([piece.text async for piece in pieces if isinstance(piece, Said)])


async def test_the_opening_is_short_in_the_embedded_models_own_tokens() -> None:
    model = EmbeddedModel()
    try:
        async with asyncio.timeout(60), httpx2.AsyncClient(headers={"authorization": f"Bearer {model.key}"}) as client:
            server = (await model.start()).removesuffix("/v1")
            messages = wire_messages(beginning(), native=False)  # framed: the longer form
            templated = await client.post(f"{server}/apply-template", json={"messages": messages})
            tokens = await client.post(f"{server}/tokenize", json={"content": templated.json()["prompt"]})
            assert 0 < len(tokens.json()["tokens"]) < TOKEN_LIMIT
    finally:
        await model.close()


async def test_the_embedded_model_calls_the_shell_and_then_answers() -> None:
    provider = EmbeddedProvider(httpx2.AsyncClient(timeout=60), EmbeddedModel())
    try:
        async with asyncio.timeout(100):
            conversation = [Message("user", REQUEST)]
            written = await said_by(provider, conversation)
            [call] = parse(written, SCHEMAS).calls
            assert call.name == "bash" and "hello" in call.arguments["command"].lower()
            asked = AskedCall("c1", call.name, call.arguments, call.dialect)
            result = Message("tool", "hello world", call="c1", name="bash")
            conversation += [Message("assistant", written, calls=(asked,)), result]
            answer = await said_by(provider, conversation)
            assert parse(answer, SCHEMAS).calls == []
            assert "hello" in answer.lower()
    finally:
        await provider.close()

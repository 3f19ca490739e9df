"""What runs make of what is known of a model's tools: offered beside the messages, taught in the prompt, or both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.context.prompt import TEACHINGS
from app.core.provider import CallForm
from app.models.capabilities.abilities import AbilityOverrides
from app.models.http.client import model_client
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.abilities import models
from tests.support.models.chatting import DONE, LIMIT_S, chunk, says
from tests.support.models.upstream import Act, Paths, Upstream, answer, stream, upstream
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
CHATS = "/v1/chat/completions"
SCRIPT = "```bash\necho from a fence\n```\n"
FENCE = stream(says(SCRIPT), chunk(finish="stop"), DONE)
MARKUP = stream(
    says('<tool_call>\n{"name": "bash", "arguments": {"command": "echo from markup"}}\n</tool_call>'),
    chunk(finish="stop"),
    DONE,
)
FUNCTION = {"name": "bash", "arguments": '{"command": "echo from a native call"}'}
NATIVE = stream(
    chunk({"tool_calls": [{"index": 0, "id": "c1", "function": FUNCTION}]}), chunk(finish="tool_calls"), DONE
)
DONE_WELL = stream(says("Done."), chunk(finish="stop"), DONE)
REFUSED = answer('{"error":{"message":"tools are not supported by this model"}}', 400)
TAKES: dict[str, Any] = {"context_length": 65_536, "supported_parameters": ["tools"]}
TAKES_NONE: dict[str, Any] = {"context_length": 65_536, "supported_parameters": []}
Way = tuple[bool, CallForm]  # whether tools are offered beside the messages, and what the prompt teaches
BOTH, ALONE, TAUGHT = (True, CallForm.TAGGED), (True, CallForm.NATIVE), (False, CallForm.TAGGED)
FENCES = (False, CallForm.FENCED)


def in_turn(acts: Sequence[Act]) -> Act:
    left = list(acts)

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await left.pop(0)(reader, writer)

    return act


@asynccontextmanager
async def behind(
    folder: Path, entry: dict[str, Any], *acts: Act, overrides: AbilityOverrides | None = None
) -> AsyncGenerator[tuple[Served, Upstream], None]:
    """The server lists its model with this entry and answers chats in turn."""
    paths = Paths({"/v1/models": models(**entry), CHATS: in_turn(acts)})
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        provider = OpenAIChat(model_client(server.base_url), server.base_url, "m", overrides=overrides)
        async with serving(folder, provider) as served:
            yield served, server


def told(server: Upstream) -> list[Way]:
    bodies = [asked.json for asked in server.asked if asked.path == CHATS]
    return [("tools" in body, taught(body["messages"][0]["content"])) for body in bodies]


def taught(prompt: str) -> CallForm:
    [*forms] = [form for form, teaching in TEACHINGS.items() if teaching.rule in prompt]
    assert len(forms) <= 1
    return forms[0] if forms else CallForm.NATIVE


# What the server says of its model, what is set, what it answers, what it was told each time, and what ran.
RUNS: dict[str, tuple[dict[str, Any], AbilityOverrides | None, list[Act], list[Way], list[str]]] = {
    "nobody knows, and it writes markup": ({}, None, [MARKUP, DONE_WELL], [BOTH, BOTH], ["from markup"]),
    "nobody knows, and fences are text": ({}, None, [FENCE], [BOTH], []),
    "nobody knows, and it calls natively": ({}, None, [NATIVE, DONE_WELL], [BOTH, BOTH], ["from a native call"]),
    "nobody knows, and it refuses": ({}, None, [REFUSED, MARKUP, DONE_WELL], [BOTH, TAUGHT, TAUGHT], ["from markup"]),
    "it takes tools, and fences are text": (TAKES, None, [FENCE], [ALONE], []),
    "it takes tools, and markup counts": (TAKES, None, [MARKUP, DONE_WELL], [ALONE, ALONE], ["from markup"]),
    "it takes tools, and refuses them": (
        TAKES,
        None,
        [REFUSED, MARKUP, DONE_WELL],
        [ALONE, TAUGHT, TAUGHT],
        ["from markup"],
    ),
    "it takes none": (TAKES_NONE, None, [MARKUP, DONE_WELL], [TAUGHT, TAUGHT], ["from markup"]),
    "it takes none, and fences are text": (TAKES_NONE, None, [FENCE], [TAUGHT], []),
    "it takes none, and they are to be offered": (
        TAKES_NONE,
        AbilityOverrides("native"),
        [NATIVE, DONE_WELL],
        [ALONE, ALONE],
        ["from a native call"],
    ),
    "it takes tools, and they are to be taught": (
        TAKES,
        AbilityOverrides("fenced"),
        [FENCE, DONE_WELL],
        [FENCES, FENCES],
        ["from a fence"],
    ),
    "it takes tools, and they are to be taught in tags": (
        TAKES,
        AbilityOverrides("tagged"),
        [MARKUP, DONE_WELL],
        [TAUGHT, TAUGHT],
        ["from markup"],
    ),
}


@pytest.mark.parametrize("case", RUNS)
async def test_a_model_is_told_of_tools_in_the_way_that_it_takes(tmp_path: Path, case: str) -> None:
    entry, overrides, acts, ways, ran = RUNS[case]
    async with behind(tmp_path, entry, *acts, overrides=overrides) as (served, server):
        events = await served.chat("Go.", tools=["bash"])
        assert events[-1]["reason"] == "answered"
        assert told(server) == ways
        assert [event["text"].strip() for event in of_kind(events, "tool.finished")] == ran


async def test_code_that_is_an_answer_stays_one(tmp_path: Path) -> None:
    """Of a model of which nobody knows whether it has native calls."""
    answer = f"Here it is:\n\n{SCRIPT}\nIt prints a line."
    async with behind(tmp_path, {}, stream(says(answer), chunk(finish="stop"), DONE)) as (served, _):
        events = await served.chat("Write me a script, do not run it.", tools=["bash"])
        assert {event["type"] for event in events if event["type"].startswith("tool.")} == set()
        assert (events[-1]["text"], events[-1]["rounds"]) == (answer, 1)
        assert "".join(event["text"] for event in of_kind(events, "text.delta")) == answer


async def test_what_was_refused_once_is_not_offered_to_anybody(tmp_path: Path) -> None:
    async with behind(tmp_path, {}, REFUSED, DONE_WELL, DONE_WELL) as (served, server):
        for _ in range(2):
            await served.chat("Go.", tools=["bash"])
        assert told(server) == [BOTH, TAUGHT, TAUGHT]


async def test_a_refusal_of_what_was_set_is_told(tmp_path: Path) -> None:
    async with behind(tmp_path, {}, REFUSED, overrides=AbilityOverrides("native")) as (served, server):
        events = await served.chat("Go.", tools=["bash"])
        assert (events[-1]["type"], events[-1]["code"]) == ("run.failed", "model_rejected")
        assert "tools are not supported" in events[-1]["message"]
        assert told(server) == [ALONE]

"""Replies that came whole as reasoning, as vLLM sends them with a reasoning parser that does not fit the model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.transcript.whole_thoughts import APART, IN_VAIN, REASONING, UNSURE, WHOLE
from tests.support.models.chatting import DONE, chat_with, chunk, says
from tests.support.models.upstream import Act, Upstream, answer, stream, upstream
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio

CALL = '<tool_call>{"name": "bash", "arguments": {"command": "echo MARKER-42"}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]
NATIVELY = {"index": 0, "id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": "true"}'}}
PATH = "/v1/chat/completions"


def thinks(text: str, *rest: str, finish: str = "stop", field: str = "reasoning") -> Act:
    """As vLLM streams it: the role with empty content first, then a few characters a chunk."""
    words = [chunk({field: text[begin : begin + 7]}) for begin in range(0, len(text), 7)]
    return stream(chunk({"role": "assistant", "content": ""}), *words, *rest, chunk({field: ""}, finish), DONE)


class Talk:
    """What a server was asked, and what it knows of its model."""

    def __init__(self, served: Served, server: Upstream, chat: Any) -> None:
        self.served, self._server, self._chat = served, server, chat

    @property
    def requests(self) -> int:
        return sum(one.path.endswith("/chat/completions") for one in self._server.asked)

    @property
    def known(self) -> object:
        return self._chat.ability(REASONING).value


@asynccontextmanager
async def talking(folder: Path, acts: Sequence[Act]) -> AsyncGenerator[Talk, None]:
    opened, left = list[Upstream](), [*acts]

    async def say(reader: Any, writer: Any) -> None:
        asked = opened[0].asked[-1].path.endswith("/chat/completions")
        await (left.pop(0) if asked else answer("{}", 404))(reader, writer)

    async with (
        upstream(say, repeat=True) as server,
        chat_with(server) as chat,
        serving(folder, chat, window=32_768) as served,
    ):
        opened.append(server)
        yield Talk(served, server, chat)


def of(events: list[dict[str, Any]], kind: str, field: str) -> list[Any]:
    return [event[field] for event in events if event["type"] == kind]


def shown(events: list[dict[str, Any]]) -> str:
    return "".join(of(events, "text.delta", "text"))


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_a_call_at_the_end_is_run(tmp_path: Path, field: str) -> None:
    acts = [thinks(f"I look.\n{CALL}\n", field=field), thinks("It is 42.", field=field), thinks("It is 42.")]
    async with talking(tmp_path, acts) as talk:
        events = await talk.served.chat("Go.", tools=["bash"], approval="auto")
        assert talk.known == WHOLE
    assert of(events, "tool.started", "dialect") == ["hermes"] and "MARKER-42" in str(
        of(events, "tool.finished", "text")
    )
    assert (events[-1]["reason"], events[-1]["text"]) == ("answered", "It is 42.")
    assert "tool_call" not in shown(events) and of(events, "notice", "code") == ["reasoning", "synthesis", "reasoning"]
    assert "--reasoning-parser" in of(events, "notice", "message")[0]


async def test_an_answer_is_asked_for_once_and_then_known(tmp_path: Path) -> None:
    async with talking(tmp_path, [thinks("Hello."), thinks("Hello."), thinks("Good day.")]) as talk:
        first = await talk.served.chat("Hi.")
        second = await talk.served.chat("Hi again.")
        assert (talk.requests, talk.known) == (3, WHOLE)
    assert [events[-1]["text"] for events in (first, second)] == ["Hello.", "Good day."]
    assert [events[-1]["reason"] for events in (first, second)] == ["answered", "answered"]
    assert (of(first, "notice", "code"), of(second, "notice", "code")) == (["synthesis", "reasoning"], ["reasoning"])


async def test_what_is_known_holds_for_calls_anywhere_in_a_reply(tmp_path: Path) -> None:
    acts = [thinks("Hello."), thinks("Hello."), thinks(f"{CALL} And now I wait."), thinks("Done.")]
    async with talking(tmp_path, acts) as talk:
        await talk.served.chat("Hi.")
        events = await talk.served.chat("Go.", tools=["bash"], approval="auto")
    assert of(events, "tool.started", "dialect") == ["hermes"] and events[-1]["text"] == "Done."


# The reply, and why its call is none as long as nothing is known of the model.
NO_CALLS = {
    "it is quoted": f"The form would be {CALL}, but there is nothing to do.",
    "a thought is marked": f"<think>Shall I?</think>{CALL}",
}


@pytest.mark.parametrize("thought", NO_CALLS.values(), ids=NO_CALLS)
async def test_a_call_in_what_may_be_a_thought_is_not_run(tmp_path: Path, thought: str) -> None:
    async with talking(tmp_path, [thinks(thought), thinks("", says("There is nothing to do."))]) as talk:
        events = await talk.served.chat("Go.", tools=["bash"], approval="auto")
    assert of(events, "tool.started", "name") == [] and of(events, "notice", "code") == ["synthesis"]
    assert (events[-1]["reason"], events[-1]["text"]) == ("answered", "There is nothing to do.")


async def test_a_reply_that_was_cut_is_no_answer(tmp_path: Path) -> None:
    async with talking(
        tmp_path, [thinks(CALL, finish="length"), stream(says("Too long."), chunk(finish="stop"))]
    ) as talk:
        events = await talk.served.chat("Go.", tools=["bash"], approval="auto")
    assert of(events, "tool.started", "name") == [] and events[-1]["text"] == "Too long."


# What has shown that the server tells reasoning from answers.
TOLD_APART = {
    "text": [thinks("I greet.", says("Hello."))],
    "a native call": [
        thinks("I look.", chunk({"tool_calls": [NATIVELY]})),
        stream(says("Hello."), chunk(finish="stop")),
    ],
}


@pytest.mark.parametrize("acts", TOLD_APART.values(), ids=TOLD_APART)
async def test_a_model_that_thinks_has_thought(tmp_path: Path, acts: list[Act]) -> None:
    async with talking(tmp_path, [*acts, thinks(CALL), thinks("Hm."), thinks("Hello."), thinks("Hello.")]) as talk:
        first = await talk.served.chat("Hi.", tools=["bash"], approval="auto")
        assert first[-1]["text"] == "Hello." and talk.known == APART
        events = await talk.served.chat("Go.", tools=["bash"], approval="auto")
        assert talk.known == UNSURE
        last = await talk.served.chat("So?", tools=["bash"], approval="auto")
    assert of(events, "tool.started", "name") == [] and events[-1]["reason"] == "no_answer"
    assert IN_VAIN in events[-1]["text"] and "--reasoning-parser" in events[-1]["text"]
    assert (last[-1]["reason"], last[-1]["text"]) == ("answered", "Hello.")


async def test_a_call_found_so_is_a_quotation_where_the_model_has_read_it(tmp_path: Path) -> None:
    async with talking(tmp_path, [thinks(CALL), stream(says("I translate."), chunk(finish="stop"), DONE)]) as talk:
        events = await talk.served.chat(f"Translate this: {CALL}", tools=["bash"], approval="deny")
    assert "counts as quoted" in of(events, "tool.rejected", "reason")[0] and of(events, "tool.started", "name") == []


def relayed(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": False} | more


async def test_a_relay_hands_over_the_call_and_the_text(tmp_path: Path) -> None:
    acts = [thinks(f"I look. {CALL}"), thinks("It is 42."), thinks(f"It may be {CALL} or not.")]
    async with talking(tmp_path, acts) as talk:
        replies = [
            (await talk.served.client.post(PATH, json=relayed("Go.", tools=TOOLS))).json()["choices"][0] for _ in acts
        ]
    call, text, unclear = [reply["message"] for reply in replies]
    assert call["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "echo MARKER-42"}'}
    assert (call["content"].strip(), text["content"]) == ("I look.", "It is 42.")
    assert unclear["content"] == f"It may be {CALL} or not." and not unclear.get("tool_calls")
    assert [reply["finish_reason"] for reply in replies] == ["tool_calls", "stop", "stop"]

"""Sampling of a run: in the words of each server, left out where it refuses them, and without a refusal twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.context.view import View
from app.core.provider import ModelRequest, ProviderNotice
from app.models.scripted import Scripted
from app.runs.composition.unattended import UnattendedRuns
from app.runs.run_options import RunOptions
from tests.support.models.chatting import HELLO, WHOLE, chat_with, pieces_of, refusal
from tests.support.models.messages_streams import WHOLE as MESSAGE
from tests.support.models.messages_streams import claude_at, error_answer
from tests.support.models.upstream import upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
LOW: dict[str, Any] = {"temperature": 0.2, "max_output_tokens": 90, "reasoning_effort": "low", "seed": 7}


def request(**options: Any) -> ModelRequest:
    return ModelRequest([HELLO], parameters=RunOptions(**options).parameters)


async def test_chat_completions_get_the_options_in_their_words() -> None:
    async with upstream(WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, request(**LOW, top_p=0.5, frequency_penalty=1, presence_penalty=-1.5))
    sent = {"temperature": 0.2, "max_tokens": 90, "reasoning_effort": "low", "seed": 7, "top_p": 0.5}
    assert (sent | {"frequency_penalty": 1, "presence_penalty": -1.5}).items() <= server.asked[0].json.items()


async def test_a_thinker_of_openai_gets_its_own_name_of_the_limit() -> None:
    async with upstream(WHOLE) as server, chat_with(server, model="gpt-5") as chat:
        await pieces_of(chat, request(**LOW))
    body = server.asked[0].json
    assert body["max_completion_tokens"] == 90 and "max_tokens" not in body


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 0.3), ("top_p", 0.5), ("seed", 1), ("frequency_penalty", 1), ("reasoning_effort", "high")],
)
async def test_an_option_that_a_server_refuses_is_sent_once(name: str, value: Any) -> None:
    refused = refusal(f"Unsupported parameter: '{name}' is not supported with this model.", name)
    async with upstream(refused, WHOLE, WHOLE) as server, chat_with(server) as chat:
        first, second = [await pieces_of(chat, request(max_output_tokens=50, **{name: value})) for _ in range(2)]
    assert isinstance(first[0], ProviderNotice) and name in first[0].message
    assert first[1:] == second
    assert [name in asked.json for asked in server.asked] == [True, False, False]
    assert [asked.json["max_tokens"] for asked in server.asked] == [50, 50, 50]


async def test_a_limit_that_the_window_has_no_room_for_is_left_out() -> None:
    too_large = refusal("'max_tokens' is too large: 32000. This model's maximum context length is 32768 tokens")
    async with upstream(too_large, WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, request(max_output_tokens=32_000))
    assert ["max_tokens" in asked.json for asked in server.asked] == [True, False]


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"temperature": 1.5, "top_p": 0.5}, {"temperature": 1}),
        ({"max_output_tokens": 90}, {"max_tokens": 90}),
        (
            {"reasoning_effort": "high", "temperature": 0.2},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        ({"reasoning_effort": "minimal"}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ({"reasoning_effort": "none", "temperature": 0.2}, {"temperature": 0.2}),
        ({"seed": 1, "presence_penalty": 1}, {}),
    ],
)
async def test_the_messages_api_gets_what_it_has_a_counterpart_for(
    options: dict[str, Any], sent: dict[str, Any]
) -> None:
    async with upstream(MESSAGE) as server, claude_at(server) as chat:
        await pieces_of(chat, request(**options))
    body = server.asked[0].json
    others = {"model", "messages", "stream"} | ({"max_tokens"} - sent.keys())
    assert {name: value for name, value in body.items() if name not in others} == sent


async def test_a_claude_that_does_not_think_so_is_not_asked_again() -> None:
    refused = error_answer("invalid_request_error", "adaptive thinking is not supported on this model", 400)
    asked = request(reasoning_effort="high", temperature=0.2)
    async with upstream(refused, MESSAGE, MESSAGE, MESSAGE) as server, claude_at(server) as chat:
        first, _ = [await pieces_of(chat, asked) for _ in range(2)]
        await pieces_of(chat, request(reasoning_effort="low"))
    assert isinstance(first[0], ProviderNotice) and "reasoning_effort" in first[0].message
    assert ["thinking" in one.json for one in server.asked] == [True, False, False, True], "another may be taken"
    assert [one.json.get("temperature") for one in server.asked] == [None, 0.2, 0.2, None]


async def test_every_round_has_the_options_and_a_run_that_goes_on_keeps_them(tmp_path: Path) -> None:
    model = Scripted(["```bash\necho hi\n```", "Done."])
    async with serving(tmp_path, model) as served:
        events = await served.chat("Go.", **LOW)
        row = await served.services.store.run(events[0]["run"])
        assert row and json.loads(row.policy) == LOW
        again, _ = await UnattendedRuns(served.services.factory).restored_agent(
            row
        )  # after a restart; a follow-up has the same policy
    sent = {"temperature": 0.2, "max_tokens": 90, "reasoning_effort": "low", "seed": 7}
    assert isinstance(again.view, View)
    assert [one.parameters for one in model.requests] == [sent, sent] and again.view.parameters == sent
    rounds = [event["timing"] for event in events if event["type"] == "usage"]
    assert len(rounds) == 2 and all(timing.keys() >= {"preparation_s", "first_token_s"} for timing in rounds)
    assert events[-1]["usage"]["timing"]["first_token_s"] == rounds[0]["first_token_s"]

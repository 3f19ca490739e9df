"""A model server that dies within an answer, over real sockets: another one goes on with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.runs.discipline.limit_enforcer import BROKEN_OFF
from app.runs.discipline.reminders import GO_ON
from tests.support.models.abilities import CAPS, PROPS, models, said
from tests.support.models.chatting import DONE, chunk, refusal, says
from tests.support.models.upstream import Act, Upstream, answer, hang_up, stream, upstream
from tests.support.server.events import Event, of_kind, text_of
from tests.support.server.histories import messages_of
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
LIMIT_S = 60
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
PREFILL = "Assistant response prefill is incompatible with enable_thinking."
COMMAND = '<tool_call>\n{"name": "bash", "arguments": {"command": "echo hi > made"}}\n</tool_call>'


def whole(text: str) -> Act:
    return stream(says(text), chunk(finish="stop"), DONE)


def cut(*parts: str) -> Act:
    return stream(*parts, then=hang_up)


@asynccontextmanager
async def llama(*chats: Act) -> AsyncGenerator[Upstream, None]:
    """A server that says of itself that it is llama.cpp, and answers chats with these acts in turn."""
    pages = {"/v1/models": models(), "/props?model=m": said(PROPS | {"chat_template_caps": CAPS})}
    left = list(chats)

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = server.asked[-1]
        chat = asked.path.endswith("/chat/completions") and b'"stream": false' not in asked.body
        page = pages.get(asked.path) or answer('{"error":"not found"}', 404)
        await (left.pop(0) if chat else page)(reader, writer)

    async with upstream(act, repeat=True) as server:
        yield server


@asynccontextmanager
async def pair(folder: Path, wanted: Upstream, other: Upstream, **fields: Any) -> AsyncGenerator[Served, None]:
    """A server of two endpoints, the second of which stands in."""
    lines = ['fallback = ["other/m"]', "summarise_at = 1"]
    for name, server in (("wanted", wanted), ("other", other)):
        about = {"url": server.base_url, "model": "m", "window": 8192, "tool_calls": "tagged"}
        about |= fields if name == "wanted" else {}
        lines += [f"[endpoints.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in about.items())]
    (folder / "dragoman.toml").write_text("\n".join(lines))
    async with asyncio.timeout(LIMIT_S), serving(folder, None) as served:
        yield served


def chats(server: Upstream) -> list[Sequence[Mapping[str, Any]]]:
    return [one.json["messages"] for one in server.asked if one.path.endswith("/chat/completions")]


def switch_of(events: Sequence[Event]) -> Event:
    [notice] = of_kind(events, "notice")
    assert (notice["code"], notice["reason"]) == ("continued", "model_cut")
    return notice


@pytest.mark.usefixtures("replayed")
async def test_a_server_that_continues_messages_goes_on_within_a_word(tmp_path: Path) -> None:
    opened = chunk({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "bash", "arguments": '{"com'}}]})
    async with (
        upstream(cut(says("I look it up. The ca"), opened), chats=True) as wanted,
        llama(whole(f"pital first.\n\n{COMMAND}"), whole("It says hi.")) as other,
        pair(tmp_path, wanted, other, tool_calls="native") as served,
    ):
        events = await served.chat(record=True)
        messages = await messages_of(served, events)
    switch = switch_of(events)
    assert (switch["wanted"], switch["answered_by"]) == ("wanted/m", "other/m")
    assert text_of(events) == "I look it up. The capital first.\n\nIt says hi."
    request, following = chats(other)
    assert request[-1] == {"role": "assistant", "content": "I look it up. The ca"}
    assert GO_ON not in json.dumps(request)
    [rejected] = of_kind(events, "tool.rejected")
    [drafted, *_] = [one["call"] for one in of_kind(events, "tool.delta")]
    assert (rejected["call"], rejected["name"], rejected["reason"]) == (drafted, "bash", BROKEN_OFF)
    assert len(of_kind(events, "tool.started")) == 1 and (tmp_path / "work" / "made").exists()
    assert [(one["role"], one.get("cut", False), len(one.get("calls", ()))) for one in messages[1:4]] == [
        ("assistant", True, 0),
        ("assistant", False, 1),
        ("tool", False, 0),
    ]
    assert messages[2]["switched"]["answered_by"] == "other/m"
    [kept] = [one["content"] for one in following if one["content"].startswith("I look it up. ")]
    assert kept == f"I look it up. The capital first.\n\n{COMMAND}", "one reply"
    assert len(of_kind(events, "usage")) == 3 and events[-1]["rounds"] == 2


@pytest.mark.usefixtures("replayed")
async def test_a_refusal_to_continue_is_learned_and_costs_no_answer(tmp_path: Path) -> None:
    async with (
        upstream(cut(says("Half an ")), cut(says("One ")), chats=True) as wanted,
        llama(refusal(PREFILL), whole("answer."), whole("One more.")) as other,
        pair(tmp_path, wanted, other) as served,
    ):
        runs = [await served.chat(), await served.chat()]
    assert [text_of(events) for events in runs] == ["Half an answer.", "One more."], "what is repeated is left out"
    assert [switch_of(events)["answered_by"] for events in runs] == ["other/m"] * 2
    assert [request[-1]["role"] for request in chats(other)] == ["assistant", "user", "user"]
    assert all(request[-1]["content"].startswith(GO_ON) for request in chats(other)[1:])


@pytest.mark.usefixtures("replayed")
async def test_another_model_answers_where_no_word_was_shown(tmp_path: Path) -> None:
    async with (
        upstream(cut(chunk({"reasoning_content": "Hm, the cap"})), chats=True) as wanted,
        llama(whole("An answer.")) as other,
        pair(tmp_path, wanted, other) as served,
    ):
        events = await served.chat(max_rounds=1)
    assert "begins anew" in switch_of(events)["message"]
    assert (text_of(events), events[-1]["reason"]) == ("An answer.", "answered")
    assert GO_ON not in json.dumps(chats(other)) and chats(other)[0][-1]["role"] == "user"


def relayed(frames: str) -> str:
    deltas = [json.loads(line[6:]) for line in frames.splitlines() if line.startswith("data: {")]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in deltas if one.get("choices"))


async def test_a_relayed_answer_goes_on_in_one_stream(tmp_path: Path) -> None:
    async with (
        upstream(cut(says("Half an ")), chats=True) as wanted,
        llama(whole("answer.")) as other,
        pair(tmp_path, wanted, other) as served,
    ):
        frames = (await served.client.post("/v1/chat/completions", json=ASK | {"model": "wanted/m"})).text
    assert relayed(frames) == "Half an answer."
    assert frames.count('"finish_reason":"stop"') == 1 and '"error"' not in frames
    assert chats(other) == [[*ASK["messages"], {"role": "assistant", "content": "Half an "}]]


@pytest.mark.parametrize("refuses", [False, True])
async def test_nothing_is_added_to_a_relayed_request(tmp_path: Path, refuses: bool) -> None:
    """A model that can only be asked in words to go on is not asked: the answer fails as it did."""
    async with (
        upstream(cut(says("Half an ")), chats=True) as wanted,
        llama(refusal(PREFILL)) if refuses else upstream(whole("answer."), chats=True) as other,
        pair(tmp_path, wanted, other) as served,
    ):
        frames = (await served.client.post("/v1/chat/completions", json=ASK | {"model": "wanted/m"})).text
    assert relayed(frames).strip() == "Half an" and '"error"' in frames
    assert len(chats(other)) == int(refuses)


async def test_a_server_that_dies_before_its_first_word_is_asked_again(tmp_path: Path) -> None:
    role = chunk({"role": "assistant", "content": ""})
    async with (
        upstream(cut(role), cut(role), chats=True) as wanted,
        llama(whole("An answer.")) as other,
        pair(tmp_path, wanted, other) as served,
    ):
        events = await served.chat()
    assert (text_of(events), events[-1]["reason"]) == ("An answer.", "answered")


async def test_a_switch_is_replayed_from_the_log_alone(tmp_path: Path) -> None:
    thought = chunk({"reasoning_content": "Hm."})
    async with (
        upstream(cut(says("Half an ")), cut(thought), chats=True) as wanted,
        llama(whole("answer."), whole("Anew.")) as other,
        pair(tmp_path, wanted, other) as served,
    ):
        runs = [(await served.chat())[0]["run"] for _ in range(2)]
        outcomes = [(await served.client.post(f"/runs/{run}/replay")).json() for run in runs]
    assert [(one["state"], one.get("differences", [])) for one in outcomes] == [("same", [])] * 2

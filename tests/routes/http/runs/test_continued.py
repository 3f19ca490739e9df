"""An answer that breaks off: what was said stays, marked, and the run goes on from there or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.provider import ProviderFailed, TextChunk, TokenUsage
from app.models.scripted import Line, Raise, Reply, Scripted
from app.runs.discipline.limit_enforcer import BROKEN_OFF
from app.runs.discipline.reminders import GO_ON
from parsing import Call, CallOpened, Thought
from tests.support.server.events import Event, notices, of_kind, text_of
from tests.support.server.histories import messages_of
from tests.support.server.serving import answer_in, serving

pytestmark = pytest.mark.anyio
LIMIT_S = 60
LOST = Raise(ProviderFailed("model_cut", "The connection was lost.", retryable=True))
FINAL = Raise(ProviderFailed("model_garbled", "It makes no sense.", retryable=False))
RUN = "```bash\ntouch ran\n```\n"


def continued(events: Sequence[Event]) -> int:
    return sum(code == "continued" for code, _ in notices(events))


async def test_a_run_goes_on_from_where_its_answer_broke_off(tmp_path: Path) -> None:
    provider = Scripted([[Thought("Hm."), "Half an ", LOST], ["answer", LOST], ".", "Good."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
        messages = await messages_of(served, events)
        await served.chat("And now?", session=events[0]["session"])
    assert (events[-1]["reason"], events[-1]["text"], text_of(events)) == ("answered", *["Half an answer."] * 2)
    assert (continued(events), events[-1]["rounds"]) == (2, 3)
    assert [(one["text"], one.get("cut", False)) for one in messages[1:]] == [
        ("Half an ", True),
        ("answer", True),
        (".", False),
    ]
    asked = [[message.text for message in request.messages] for request in provider.requests]
    assert [texts[-1] for texts in asked] == ["Hello", GO_ON, GO_ON, "And now?"]
    assert GO_ON not in asked[3], "said for one request only"


# replies -> how often the run goes on, the code of its failure
FAILING: dict[str, tuple[Sequence[Reply], int, str]] = {
    "three in a row": ([["One ", LOST], ["two ", LOST], ["three", LOST], "never"], 2, "model_cut"),
    "for good": ([["One ", LOST], ["two ", FINAL], "never"], 1, "model_garbled"),
    "before the first word": ([["One ", LOST], [FINAL], "never"], 1, "model_garbled"),
}


@pytest.mark.parametrize(("replies", "times", "code"), FAILING.values(), ids=FAILING)
async def test_a_run_fails_when_it_cannot_go_on(
    tmp_path: Path, replies: Sequence[Reply], times: int, code: str
) -> None:
    provider = Scripted(replies)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
        messages = await messages_of(served, events)
    assert (events[-1]["type"], events[-1]["code"], continued(events)) == ("run.failed", code, times)
    assert "never" not in text_of(events) and text_of(events) == "".join(one["text"] for one in messages[1:])
    assert all(one["cut"] for one in messages[1:])


async def test_an_answer_that_came_whole_begins_the_count_again(tmp_path: Path) -> None:
    broken: Reply = ["I run it. ", LOST]
    provider = Scripted([broken, broken, "```bash\ntrue\n```\n", broken, broken, "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
    assert (events[-1]["reason"], continued(events)) == ("answered", 4)
    assert answer_in(events[-1]["text"]) == "I run it. I run it. Done.", "of the last answer, all its parts"


@pytest.mark.parametrize("wish", [{"max_rounds": 1}, {"max_tokens": 50}], ids=str)
async def test_no_limit_is_passed_to_go_on(tmp_path: Path, wish: dict[str, int]) -> None:
    provider = Scripted([[TokenUsage(60, 1), "Half", LOST], "never"])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat(**wish)
    assert (events[-1]["type"], events[-1]["code"], len(provider.requests)) == ("run.failed", "model_cut", 1)


CUT_CALLS: dict[str, Sequence[Line]] = {
    "a whole call": [RUN, "and then", LOST],
    "half a call": ["```bash\ntouch ran", LOST],
    "a native call": [TextChunk("I do. "), Call(0, "bash", {"command": "touch ran"}, "native"), LOST],
    "the name of a native call": [CallOpened(0, "bash"), LOST],
}


@pytest.mark.parametrize("reply", CUT_CALLS.values(), ids=CUT_CALLS)
async def test_no_call_of_an_answer_that_broke_off_is_run(tmp_path: Path, reply: Sequence[Line]) -> None:
    provider = Scripted([reply, "I did not do it."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
        messages = await messages_of(served, events)
    assert events[-1]["text"].endswith("I did not do it.")
    assert continued(events) == 1
    assert not (tmp_path / "work" / "ran").exists() and not of_kind(events, "tool.started")
    calls = [call["id"] for one in messages for call in one.get("calls", ())]
    answers = {one["call"]: one["text"] for one in messages if one["role"] == "tool"}
    assert list(answers) == calls
    assert all(text == BROKEN_OFF or "not run" in text for text in answers.values())


async def test_a_call_that_was_cut_off_is_run_when_it_is_made_again(tmp_path: Path) -> None:
    provider = Scripted([["I run it.\n", "```bash\ntouch", LOST], RUN, "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
    assert events[-1]["reason"] == "answered" and len(of_kind(events, "tool.started")) == 1
    assert (tmp_path / "work" / "ran").exists()


async def test_nothing_more_to_say_ends_the_run_with_what_was_said(tmp_path: Path) -> None:
    provider = Scripted([["All there is to say.", LOST], ""])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
    assert (events[-1]["reason"], events[-1]["text"]) == ("answered", "All there is to say.")
    assert len(provider.requests) == 2, "no answer is asked for once more"


async def test_a_secret_that_is_cut_in_two_is_hidden_in_the_text_of_the_run(tmp_path: Path) -> None:
    secret = "sk-this-is-a-secret-key"
    provider = Scripted([[f"It is {secret[:9]}", LOST], f"{secret[9:]}."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, model_key=secret) as served:
        events = await served.chat()
    assert secret not in events[-1]["text"]

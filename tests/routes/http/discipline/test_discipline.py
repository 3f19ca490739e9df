"""A run that never loops and always answers: its last round, its limits, its nudges, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from app.core.provider import Piece, ProviderFailed, TextChunk, TokenUsage
from app.models.scripted import Line, Pause, Raise, Scripted
from app.runs.discipline.fallback_answer import ASKED
from app.runs.discipline.limit_enforcer import NOT_RUN
from app.runs.discipline.reminders import AGAIN, LAST, LOOPING, NUDGED
from parsing import Call, Thought
from tests.support.models.replies import bash_block
from tests.support.parsing.forms import WRITERS
from tests.support.server.approvals import decide, follow, stop_as_killed, waiting_call
from tests.support.server.events import Event, notices, of_kind
from tests.support.server.histories import LIMIT_S, ending_of, last_message, whole_history
from tests.support.server.serving import answer_in, serving, until

pytestmark = pytest.mark.anyio


def bashes(*commands: str) -> str:
    return "\n".join(map(bash_block, commands))


def text_of(events: Sequence[Event]) -> str:
    return answer_in("".join(event["text"] for event in of_kind(events, "text.delta")))


async def test_the_last_of_the_rounds_has_no_tools_and_an_answer(tmp_path: Path) -> None:
    provider = Scripted([bash_block("echo one"), "It printed one."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat(max_rounds=2)
        messages = await whole_history(served, events)
    assert ending_of(events) == ("round_limit", "It printed one.")
    assert events[0]["limits"]["max_rounds"] == 2
    first, last = provider.requests
    assert [bool(request.tools) for request in (first, last)] == [True, False]
    assert "bash" in first.whole()[0].text and "bash" not in last.whole()[0].text
    assert last.messages[-1].text == LAST and LAST not in [message["text"] for message in messages]
    assert first.messages[-1].text == "Hello", "nothing was near its end"


@pytest.mark.parametrize(("tools", "noted"), [(["bash"], True), ([], False)])
async def test_one_round_is_a_plain_answer(tmp_path: Path, tools: list[str], noted: bool) -> None:
    provider = Scripted(["Hello to you."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        assert ending_of(await served.chat(max_rounds=1, tools=tools)) == ("answered", "Hello to you.")
    assert (last_message(provider, 0) == LAST) is noted


async def test_forged_calls_in_the_last_round_are_not_run_in_any_dialect(tmp_path: Path) -> None:
    arguments = {"command": "touch ran"}
    forms: dict[str, Piece] = {
        key: TextChunk(write([("bash", arguments)])) for key, write in sorted(WRITERS.items())[::6]
    }
    forms["native"] = Call(0, "bash", arguments, "native")
    provider = Scripted([line for form in forms.values() for line in ((form,), "Done.")])
    refused = set[str]()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        for dialect in forms:
            events = await served.chat(max_rounds=1)
            assert not of_kind(events, "tool.started"), dialect
            assert (ending_of(events), text_of(events)) == (("round_limit", "Done."), "Done."), dialect
            rejected = of_kind(events, "tool.rejected")
            assert rejected and {event["reason"] for event in rejected} == {NOT_RUN}, dialect
            refused |= {event["name"] for event in rejected}
            messages = await whole_history(served, events)
            assert [message["text"] for message in messages if message["role"] == "tool"] == [NOT_RUN] * len(rejected)
    assert len(forms) > 15 and refused == {"bash"} and not (tmp_path / "work" / "ran").exists()


async def test_calls_beyond_the_limit_are_refused_and_the_answer_follows(tmp_path: Path) -> None:
    provider = Scripted([bashes("echo one", "echo two", "touch three"), "Two of three."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat(max_calls=2)
        answers = [message["text"] for message in await whole_history(served, events) if message["role"] == "tool"]
    assert ending_of(events) == ("call_limit", "Two of three.") and events[-1]["calls"] == 2
    assert len(of_kind(events, "tool.finished")) == 2 and not (tmp_path / "work" / "three").exists()
    (rejected,) = of_kind(events, "tool.rejected")
    assert "2 calls" in rejected["reason"] and answers[2] == rejected["reason"]
    assert last_message(provider, 1) == LAST and not provider.requests[1].tools


async def test_spent_tokens_end_the_run_at_once_with_honest_words(tmp_path: Path) -> None:
    provider = Scripted([(bash_block("touch ran"), TokenUsage(900, 200))])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Touch it.", max_tokens=1000)
        messages = await whole_history(served, events)
    reason, text = ending_of(events)
    assert reason == "token_limit" and "the limit of tokens was reached" in text and "bash once (1 not run)" in text
    assert text_of(events) == text == messages[-1]["text"] and "“Touch it.”" in text
    assert len(provider.requests) == 1 and not (tmp_path / "work" / "ran").exists()


async def test_tokens_that_run_short_leave_room_for_an_answer(tmp_path: Path) -> None:
    provider = Scripted([(bash_block("echo one"), TokenUsage(300, 50)), ("One.", TokenUsage(350, 5))])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, max_run_tokens="1000") as served:
        events = await served.chat()
    assert ending_of(events) == ("token_limit", "One.") and not provider.requests[1].tools
    assert events[0]["limits"]["max_tokens"] == 1000


async def test_a_loop_is_broken_and_the_answer_follows(tmp_path: Path) -> None:
    provider = Scripted([*[bash_block("ls")] * 4, "There is nothing."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
    assert ending_of(events) == ("loop_broken", "There is nothing.")
    assert notices(events) == [("loop_broken", LOOPING)]
    assert last_message(provider, 4) == LAST and not provider.requests[4].tools


async def test_polling_that_shows_progress_goes_on(tmp_path: Path) -> None:
    poll = bash_block("echo x >> log; wc -c log")
    provider = Scripted([*[poll] * 18, "It grew."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat(max_rounds=30)
    assert ending_of(events) == ("answered", "It grew.") and notices(events) == []


async def test_little_that_is_left_is_told_once_and_not_kept(tmp_path: Path) -> None:
    steps = [bash_block(f"echo {number}") for number in range(4)]
    provider = Scripted([*steps, "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat(max_rounds=6)
        messages = await whole_history(served, events)
    assert ending_of(events) == ("answered", "Done.")
    assert [code for code, _ in notices(events)] == ["nudge"]
    noted = [number for number, request in enumerate(provider.requests) if "Little is left" in str(request.messages)]
    assert noted == [4] and last_message(provider, 4).startswith("Little is left: 2 of 6 rounds.")
    assert "Little is left" not in str(messages)


async def test_an_announcement_without_a_call_is_nudged(tmp_path: Path) -> None:
    provider = Scripted(["I will look:", bash_block("echo one"), "One."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
        messages = await whole_history(served, events)
    assert ending_of(events) == ("answered", "One.") and notices(events) == [("nudge", NUDGED)]
    assert last_message(provider, 1) == AGAIN and AGAIN not in str(messages)
    assert [message.text for message in provider.requests[1].messages[-2:]] == ["I will look:", AGAIN]


# A model that says nothing.


SILENT: dict[str, Sequence[Line]] = {
    "nothing": [],
    "white space": [" \n"],
    "only thoughts": [Thought("Hm.")],
    "a call that is not run": [bash_block("touch ran")],
    "an announcement and such a call": ["I look.\n", bash_block("touch ran")],
}


@pytest.mark.parametrize("silence", SILENT)
async def test_a_silent_last_round_is_asked_once_more_for_its_answer(tmp_path: Path, silence: str) -> None:
    answer = ("It ", "printed ", "one.", TokenUsage(70, 7))
    provider = Scripted(
        [(bash_block("echo one"), TokenUsage(100, 10)), (*SILENT[silence], TokenUsage(100, 10)), answer]
    )
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("What is it?", max_rounds=2)
        messages = await whole_history(served, events)
    assert ending_of(events) == ("round_limit", "It printed one.")
    kinds = [(event["type"], event.get("text", event.get("code"))) for event in events[-4:-1]]
    assert kinds == [("notice", "synthesis"), ("usage", None), ("text.delta", "It printed one.")]
    assert events[-1]["usage"]["prompt_tokens"] == 270
    assert (messages[-1]["role"], messages[-1]["text"]) == ("assistant", "It printed one.")
    (rule, data), tools = provider.requests[2].whole(), provider.requests[2].tools
    assert "final answer" in rule.text and "What is it?" in data.text and "ok: bash" in data.text and not tools
    assert "Result 1, of bash" in data.text and "\none\n" in data.text


FAILED = ProviderFailed("model_down", "Nobody is there.", retryable=True)


@pytest.mark.parametrize("again", [[], [bash_block("touch ran")], [Raise(FAILED)], ["Half an", Raise(FAILED)]])
async def test_a_model_that_stays_silent_gets_honest_words(tmp_path: Path, again: Sequence[Line]) -> None:
    provider = Scripted([bash_block("exit 3"), [], again])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Exit!", max_rounds=2)
        messages = await whole_history(served, events)
    reason, text = ending_of(events)
    assert reason == "round_limit" and text == text_of(events) == messages[-1]["text"]
    if "Half an" in again:
        assert text == "Half an"
        return
    assert "the limit of rounds was reached" in text and "bash once (1 failed)" in text and "“Exit!”" in text


async def test_an_answer_that_is_asked_for_keeps_its_code(tmp_path: Path) -> None:
    script = f"This is the script:\n{bash_block('touch ran')}"
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["", script])) as served:
        events = await served.chat("Write me a script.")
    assert events[-1]["text"] == script and not (tmp_path / "work/ran").exists()


async def test_what_was_said_beside_a_call_that_is_not_run_stands_if_nothing_better_comes(tmp_path: Path) -> None:
    provider = Scripted([bash_block("echo one"), "It is one.\n" + bash_block("touch ran"), ""])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat(max_rounds=2)
        await whole_history(served, events)
    first, last = bash_block("echo one"), bash_block("touch ran")
    assert events[-1]["text"] == f"{first}\n\nIt is one.\n{last}\n"
    assert "".join(event["text"] for event in of_kind(events, "text.delta")) == f"{first}\nIt is one.\n{last}\n"


async def test_an_empty_reply_is_no_answer_in_any_round(tmp_path: Path) -> None:
    provider = Scripted(["", "Hello to you.", "", ""])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat()
        assert ending_of(events) == ("answered", "Hello to you.") and notices(events) == [("synthesis", ASKED)]
        events = await served.chat(session=events[0]["session"])
        assert ending_of(events)[0] == "no_answer" and "the model ended without words" in ending_of(events)[1]


async def test_a_deadline_in_the_middle_of_a_tool_ends_in_words(tmp_path: Path) -> None:
    provider = Scripted(["I run it.\n" + bash_block("echo up; sleep 60"), "So?"])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.out_of_time("tool.progress")
        reason, text = ending_of(events)
        assert reason == "deadline" and "the time limit was reached" in text and "bash once" in text
        assert of_kind(events, "text.delta")[-1]["text"] == text == (await whole_history(served, events))[-1]["text"]
        again = await served.chat(session=events[0]["session"])
        assert ending_of(again) == ("answered", "So?")


async def test_a_deadline_in_the_middle_of_an_answer_keeps_what_was_said(tmp_path: Path) -> None:
    provider = Scripted([["As I said", Pause(asyncio.Event())]])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        assert ending_of(await served.out_of_time("text.delta")) == ("deadline", "As I said")


async def test_a_spent_budget_ends_in_words(tmp_path: Path) -> None:
    provider = Scripted([(bash_block("echo one"), TokenUsage(3000, 100))])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, tokens_per_month="3000") as served:
        events = await served.chat()
        await whole_history(served, events)
    reason, text = ending_of(events)
    assert reason == "budget" and text_of(events) == text
    assert "the budget was spent" in text and "The budget resets at" in text and "to go on" not in text


# Messages for a run that seems to be at its end.


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("at", ["nudge", "synthesis"])
async def test_a_message_is_taken_until_it_is_sure_that_the_run_ends(tmp_path: Path, at: str) -> None:
    go_on = asyncio.Event()
    first = ("I look:",) if at == "nudge" else ("",)
    provider = Scripted([first, ["Hm.", Pause(go_on)], "And that."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="This?")) as turn:
            run = (await until(turn, "run.started"))["run"]
            while (notice := await until(turn, "notice"))["code"] != at:
                """Something else was told."""
            sent = await served.client.post(f"/runs/{run}/messages", json={"message": "And that?"})
            assert (sent.status_code, notice["code"]) == (202, at)
            go_on.set()
            finished = await until(turn, "run.finished")
    assert (finished["reason"], finished["text"]) == ("answered", "And that.")
    assert last_message(provider, 2) == "And that?"


@pytest.mark.usefixtures("replayed")
async def test_limits_hold_after_a_restart(tmp_path: Path) -> None:
    provider = Scripted([bashes("touch one", "touch two", "touch three"), "As far as I came."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        question, _ = await waiting_call(served, max_calls=2)
        await stop_as_killed(served.services, question["run"])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with aclosing(follow(served.client, question["run"], question["seq"])) as events:
            await decide(served.client, question["run"], question["call"], "deny")
            second = await until(events, "approval.required")
            await decide(served.client, question["run"], second["call"], "deny")
            finished = await until(events, "run.finished")
        rejected = of_kind(await served.events(question["run"]), "tool.rejected")
    assert (finished["reason"], answer_in(finished["text"]), finished["calls"]) == (
        "call_limit",
        "As far as I came.",
        0,
    )
    assert len(rejected) == 3 and not provider.requests[1].tools

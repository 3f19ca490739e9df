"""The second look at a run that changed something: what it sees, what comes of it, and what it never stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import pytest

from app.core.events import ToolFinished, ToolRejected, ToolStarted
from app.core.provider import ProviderFailed, TokenUsage
from app.models.scripted import Pause, Raise, Reply, Scripted
from app.runs.discipline.round_end import TIME_LIMIT_S
from app.runs.discipline.verifier import EARLIER, RULE, listed, verify
from app.transcript.run_totals import RunTotals
from tests.support.access.judging import judging
from tests.support.models.replies import bash_block
from tests.support.server.approvals import decide, follow, stop_as_killed, waiting_call
from tests.support.server.events import notices
from tests.support.server.histories import LIMIT_S, ending_of, last_message, whole_history
from tests.support.server.serving import answer_in, serving, until

pytestmark = pytest.mark.anyio

FAIL = "FAIL: note.txt was not written."
TOUCH = bash_block("touch note.txt")


async def test_a_pass_ends_the_run_and_says_so(tmp_path: Path) -> None:
    provider = Scripted([TOUCH, "Done.", ("SUCCESS", TokenUsage(50, 5))])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        events = await served.chat("Touch note.txt.")
        await whole_history(served, events)
    assert ending_of(events) == ("answered", "Done.") and [code for code, _ in notices(events)] == ["verifier"]
    assert events[-1]["usage"]["prompt_tokens"] >= 50
    rule, data = provider.requests[2].whole()
    assert (rule.text, provider.requests[2].tools) == (RULE, ())
    assert "Touch note.txt." in data.text and 'ok: bash {"command": "touch note.txt"}' in data.text
    assert "Done." not in data.text, "what was said could persuade it"


async def test_a_fail_gives_two_rounds_more_and_no_third(tmp_path: Path) -> None:
    provider = Scripted(
        [TOUCH, "Done.", FAIL, bash_block("touch note.txt; ls"), bash_block("touch never"), "Now it is done."]
    )
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        events = await served.chat()
        messages = await whole_history(served, events)
    assert ending_of(events) == ("answered", "Now it is done.") and events[-1]["rounds"] == 4
    assert [code for code, _ in notices(events)] == ["verifier", "synthesis"]
    assert "note.txt was not written." in notices(events)[0][1]
    assert "note.txt was not written." in last_message(provider, 3) and provider.requests[3].tools
    assert not provider.requests[4].tools and not (tmp_path / "work" / "never").exists()
    assert "was not written" not in str(messages)


async def test_a_fail_may_be_answered_at_once(tmp_path: Path) -> None:
    provider = Scripted([TOUCH, "Done.", FAIL, "It was there before."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        events = await served.chat()
    assert ending_of(events) == ("answered", "It was there before.") and len(provider.requests) == 4


DOWN = ProviderFailed("model_down", "Nobody is there.", retryable=True)


@pytest.mark.parametrize(
    "verdict", ["", "Well, FAIL.", "FAILURE", (Raise(DOWN),), ("FAIL", Raise(DOWN)), bash_block("ls")]
)
async def test_whatever_goes_wrong_counts_as_a_pass(tmp_path: Path, verdict: Reply) -> None:
    provider = Scripted([TOUCH, "Done.", verdict])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        events = await served.chat()
    assert ending_of(events) == ("answered", "Done.")
    ((code, message),) = notices(events)
    assert code == "verifier" and "was not checked" in message


async def test_a_slow_verifier_is_not_waited_for(tmp_path: Path) -> None:
    assert TIME_LIMIT_S == 60
    async with judging(tmp_path, ("FAIL", Pause(asyncio.Event())), limit_s=2) as tried:
        verdict = await verify(tried.judge, tried.totals, tried.conversation)
        assert tried.provider.unfinished == 1, "its request is closed"
    assert verdict.wanting == "" and "took more than 2 s" in verdict.notice.message and verdict.usage


async def test_a_spent_budget_counts_as_a_pass(tmp_path: Path) -> None:
    provider = Scripted([(TOUCH, TokenUsage(1000, 1)), ("Done.", TokenUsage(9000, 1))])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true", tokens_per_month="10000") as served:
        events = await served.chat()
    assert ending_of(events) == ("answered", "Done.") and "was not asked" in notices(events)[0][1]


UNCHECKED: dict[str, tuple[Sequence[Reply], dict[str, object]]] = {
    "nothing was done": (["Hello."], {}),
    "it only read": (["```list_files\n```", "Nothing there."], {}),
    "what it tried failed": ([bash_block("exit 1"), "It failed."], {}),
    "a limit ended it": ([TOUCH, "Done."], {"max_rounds": 2}),
}


@pytest.mark.parametrize("case", UNCHECKED)
async def test_only_a_run_that_changed_something_and_was_not_cut_short_is_checked(tmp_path: Path, case: str) -> None:
    replies, more = UNCHECKED[case]
    provider = Scripted(replies)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        events = await served.chat(**more)
    assert events[-1]["type"] == "run.finished" and notices(events) == []
    assert len(provider.requests) == len(replies)


async def test_it_is_off_unless_it_is_wanted(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([TOUCH, "Done."])) as served:
        assert notices(await served.chat()) == []


@pytest.mark.usefixtures("replayed")
async def test_a_message_during_the_check_is_answered(tmp_path: Path) -> None:
    class Awaited(asyncio.Event):
        """Says when it is waited for."""

        async def wait(self) -> Literal[True]:
            asked.set()
            return await super().wait()

    go_on, asked = Awaited(), asyncio.Event()
    provider = Scripted([TOUCH, "Done.", (Pause(go_on), "SUCCESS"), "And that."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        async with aclosing(served.turn(message="This?")) as turn:
            run = (await until(turn, "run.started"))["run"]
            await asked.wait()
            sent = await served.client.post(f"/runs/{run}/messages", json={"message": "And that?"})
            assert sent.status_code == 202
            go_on.set()
            finished = await until(turn, "run.finished")
    assert (finished["reason"], answer_in(finished["text"])) == ("answered", "And that.") and last_message(
        provider, 3
    ) == "And that?"


def test_many_actions_are_listed_from_the_end() -> None:
    totals = RunTotals()
    for number in range(100):
        totals.record(ToolStarted(f"c{number}", "bash", {"command": "x" * 10_000}, "native"))
        totals.record(ToolFinished(f"c{number}", "bash", True, "", 0.1))
    totals.record(ToolStarted("last", "write_file", {"path": "p"}, "native"))
    lines = listed(totals, 4000).splitlines()
    assert lines[0].startswith("(") and lines[-1] == 'unknown: write_file {"path": "p"}'
    assert sum(map(len, lines)) < 4200 and len(lines) > 5


def test_a_name_that_a_model_made_up_is_no_line_of_its_own() -> None:
    totals = RunTotals()
    totals.record(ToolRejected("No.", "c1", 'x\nok: bash {"command": "make test"}'))
    assert listed(totals, 4000).splitlines() == ['refused: xok: bash {"command": "make test"} ']


async def test_what_was_asked_in_earlier_turns_is_no_part_of_what_is_checked(tmp_path: Path) -> None:
    provider = Scripted([TOUCH, "Done.", "SUCCESS", bash_block("touch b"), "Done too.", "SUCCESS"])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        first = await served.chat("Touch note.txt.")
        await served.chat("Touch b.", session=first[0]["session"])
    before, after = (provider.requests[number].whole()[1].text for number in (2, 5))
    assert EARLIER not in before
    earlier, _, rest = after.partition("The person's request")
    assert EARLIER in earlier and "Touch note.txt." in earlier and "Touch b." in rest and "note.txt" not in rest


async def test_after_a_restart_the_request_is_still_known(tmp_path: Path) -> None:
    provider = Scripted(["Hello.", TOUCH, "Done.", "SUCCESS"])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        first = await served.chat("Good morning.")
        question, _ = await waiting_call(served, session=first[0]["session"])
        await stop_as_killed(served.services, question["run"])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        async with aclosing(follow(served.client, question["run"], question["seq"])) as events:
            await decide(served.client, question["run"], question["call"], "approve")
            assert (await until(events, "run.finished"))["reason"] == "answered"
    earlier, _, request = provider.requests[3].whole()[1].text.partition("The person's request")
    assert "Good morning." in earlier and "Write." in request and "Good morning." not in request

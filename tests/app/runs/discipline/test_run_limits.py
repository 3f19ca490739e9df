"""The rules that keep a run to its task, each by itself: circles, limits, nudges, last words."""

from __future__ import annotations

import json
import math

import pytest
from msgspec.structs import replace

from app.core.events import (
    AgentEvent,
    Notice,
    RoundStarted,
    ToolFinished,
    ToolRejected,
    ToolStarted,
    encode,
    fields_of,
)
from app.core.messages import AskedCall, Message
from app.core.provider import FallbackUsed, Finished, ProviderFailed, TextChunk, TokenUsage
from app.models.wire.native_calls import NATIVE
from app.redaction.redactor import Redactor
from app.runs.discipline.fallback_answer import WHY, fallback_answer
from app.runs.discipline.limit_enforcer import ANSWERED, NOT_RUN, LimitEnforcer
from app.runs.discipline.limits import Limits
from app.runs.discipline.loop_detector import STREAK
from app.runs.discipline.reminders import AGAIN, FAILED, GO_ON, LAST, LOOPING, NUDGED
from app.storage.runs import EventRow
from app.transcript.conversation import Conversation
from app.transcript.reply import Reply
from app.transcript.reply_calls import TWICE
from app.transcript.round_plan import RoundPlan
from app.transcript.run_totals import FAILING, RunTotals, totals_of
from parsing import Call
from tests.support.models.histories import store_nothing

# Limits.


def totals(**used: int) -> RunTotals:
    return RunTotals(**used)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "used", "elapsed_s", "reason"),
    [
        (Limits(3), totals(rounds=1), 0, None),
        (Limits(3), totals(rounds=2), 0, "round_limit"),
        (Limits(1), totals(), 0, "round_limit"),
        (Limits(20, calls=2), totals(rounds=1, calls=1), 0, None),
        (Limits(20, calls=2), totals(rounds=1, calls=2), 0, "call_limit"),
        (Limits(20), totals(rounds=1, calls=10_000, prompt_tokens=10**9), 0, None),
        (Limits(20, tokens=1000), totals(rounds=1, prompt_tokens=300, dearest=300), 0, None),
        (Limits(20, tokens=1000), totals(rounds=2, prompt_tokens=500, dearest=300), 0, "token_limit"),
        (Limits(20, seconds=100), totals(rounds=1), 89, None),
        (Limits(20, seconds=100), totals(rounds=1), 90, "deadline"),
        (Limits(20, seconds=7200), totals(rounds=1), 7139, None),
        (Limits(20, seconds=7200), totals(rounds=1), 7140, "deadline"),
    ],
)
def test_a_limit_leaves_room_for_a_last_round(limits: Limits, used: RunTotals, elapsed_s: float, reason: str) -> None:
    assert limits.over(used, elapsed_s) == reason


@pytest.mark.parametrize(
    ("limits", "used", "elapsed_s", "units"),
    [
        (Limits(20), totals(rounds=15), 0, []),
        (Limits(20), totals(rounds=16), 0, ["rounds"]),
        (Limits(4), totals(rounds=1), 0, []),
        (Limits(4), totals(rounds=2), 0, ["rounds"]),
        (Limits(2), totals(), 0, []),
        (Limits(20, calls=10), totals(rounds=2, calls=7), 0, []),
        (
            Limits(20, 10, 10_000, 100),
            totals(rounds=2, calls=8, prompt_tokens=8000),
            80,
            ["tool calls", "tokens", "seconds"],
        ),
    ],
)
def test_a_model_is_told_that_little_is_left(
    limits: Limits, used: RunTotals, elapsed_s: float, units: list[str]
) -> None:
    assert [gauge.unit for gauge in limits.nearly(used, elapsed_s)] == units


def test_a_tool_leaves_time_for_a_last_round() -> None:
    clock = Clock()
    discipline = LimitEnforcer(Limits(20, seconds=200), clock=clock)
    assert discipline.tool_left_s() == math.inf
    discipline.enter(200)
    assert discipline.tool_left_s() == 180
    clock.now += 179.5
    assert discipline.tool_left_s() == 1
    for limits in (Limits(20), Limits(20, seconds=40)):
        short = LimitEnforcer(limits, clock=clock)
        short.enter(40)
        assert short.tool_left_s() == math.inf, "that would be too little for an answer"


def test_the_time_stands_still_while_a_person_is_waited_for() -> None:
    clock = Clock()
    discipline = LimitEnforcer(Limits(20, seconds=100), clock=clock)
    discipline.enter(100)
    clock.now += 10
    with discipline.waiting():
        clock.now += 10_000
        assert discipline.left_s() == 90
    assert discipline.left_s() == 90
    clock.now += 81
    assert discipline.plan(totals()).ends == "deadline"


class Clock:
    """A time that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_each_limit_is_told_once_also_by_the_next_server() -> None:
    clock = Clock()
    discipline, used = LimitEnforcer(Limits(10, seconds=100), clock=clock), totals(rounds=8)
    discipline.enter(100)
    (notice,) = discipline.plan(used).notices
    assert notice.code == "nudge" and "rounds" in notice.message
    used.record(notice)
    assert discipline.plan(used) == RoundPlan()
    clock.now += 85
    plan = discipline.plan(used)
    assert "15 of 100 seconds" in plan.notes[0] and "rounds" not in plan.notes[0]
    rows = [EventRow("run_1", at, one.type, encode(one)) for at, one in enumerate([notice, *plan.notices])]
    again = LimitEnforcer(Limits(10, seconds=100), clock=clock)
    again.enter(15)
    assert again.plan(replace(totals_of(rows, ()), rounds=8)) == RoundPlan(), "its time has gone on"
    clock.now += 5
    assert again.plan(used).ends == "deadline"


def reply_of(*pieces: object, stopped: str = "stop") -> Reply:
    numbers = iter(range(100))
    reply = Reply({"bash": {}}, fences=lambda: True, new_id=lambda: f"c{next(numbers)}")
    for piece in (*pieces, Finished(stopped)):
        list(reply.add(TextChunk(piece) if isinstance(piece, str) else piece))  # type: ignore[arg-type]
    list(reply.end())
    return reply


def calls(*commands: str) -> Reply:
    return reply_of(*(Call(at, "bash", {"command": command}, "native") for at, command in enumerate(commands)))


def results(reply: Reply, text: str) -> list[Message]:
    return [Message("tool", text, call=call.id, name=call.name) for call in reply.calls]


def test_an_announcement_is_nudged_twice_at_most_and_only_with_tools() -> None:
    announced = reply_of("I will look.")
    discipline, used = LimitEnforcer(Limits(20)), totals(rounds=1)
    for _ in range(2):
        plan = discipline.plan(used)
        assert discipline.may_nudge(announced, used)
        assert discipline.reason_to_end(plan, announced, [], used, announces=True) is None
        plan = discipline.plan(used)
        assert (plan.notes, plan.notices) == ((AGAIN,), (Notice("nudge", NUDGED),))
        used.record(plan.notices[0])
    assert not discipline.may_nudge(announced, used)
    assert discipline.reason_to_end(discipline.plan(used), announced, [], used) == ANSWERED
    without = LimitEnforcer(Limits(20))
    without.plan(totals(), offers=False)
    assert not without.may_nudge(announced, totals(rounds=1))
    late = LimitEnforcer(Limits(3))
    late.plan(totals(rounds=1))
    assert not late.may_nudge(announced, totals(rounds=2)), "no tools are left"
    assert not LimitEnforcer(Limits(20)).may_nudge(calls("ls"), totals(rounds=1)), "it has called"


def test_a_broken_loop_leads_to_one_round_without_tools() -> None:
    discipline, used, reply = LimitEnforcer(Limits(20)), totals(rounds=1, calls=4), calls("ls")
    for _ in range(STREAK):
        plan = discipline.plan(used)
        assert plan.tools and discipline.reason_to_end(plan, reply, results(reply, "a"), used) is None
    plan = discipline.plan(used)
    assert plan == RoundPlan(False, (LAST,), (Notice("loop_broken", LOOPING),), "loop_broken")
    assert discipline.refusals(plan, reply, used) == {"c0": NOT_RUN}
    assert discipline.reason_to_end(plan, reply_of("As far as I know: a."), [], used) == "loop_broken"


def test_the_person_s_words_may_break_a_loop() -> None:
    discipline, used, reply = LimitEnforcer(Limits(20)), totals(rounds=1, calls=4), calls("ls")
    for number in range(STREAK):
        plan = discipline.plan(used)
        discipline.reason_to_end(plan, reply, results(reply, "a"), used, steered=number == STREAK - 1)
    assert discipline.plan(used) == RoundPlan()
    for _ in range(STREAK):
        discipline.reason_to_end(discipline.plan(used), reply, results(reply, "a"), used)
    plan = discipline.plan(used)
    assert plan.ends == "loop_broken"
    assert discipline.reason_to_end(plan, reply_of("a"), [], used, steered=True) is None
    assert discipline.plan(used) == RoundPlan()


def test_calls_beyond_the_limit_are_refused_and_told_so() -> None:
    discipline, reply = LimitEnforcer(Limits(20, calls=3)), calls("one", "two", "three")
    refused = discipline.refusals(RoundPlan(), reply, totals(rounds=1, calls=2))
    assert list(refused) == ["c1", "c2"] and all("3 calls" in why for why in refused.values())
    assert discipline.refusals(RoundPlan(), reply, totals(rounds=1)) == {}
    assert list(discipline.refusals(RoundPlan(), reply, totals(rounds=1, calls=9))) == ["c0", "c1", "c2"]
    assert LimitEnforcer(Limits(20)).refusals(RoundPlan(), reply, totals(calls=10**6)) == {}


def test_a_run_that_has_used_its_tokens_makes_no_further_request() -> None:
    discipline, used, reply = LimitEnforcer(Limits(20, tokens=1000)), totals(rounds=1, prompt_tokens=1200), calls("ls")
    assert discipline.refusals(RoundPlan(), reply, used) == {"c0": NOT_RUN}
    assert discipline.reason_to_end(RoundPlan(), reply, results(reply, NOT_RUN), used) == "token_limit"
    assert discipline.reason_to_end(RoundPlan(), reply_of("It is a."), [], used) == ANSWERED


def test_work_found_wanting_gets_two_rounds_more() -> None:
    discipline, used = LimitEnforcer(Limits(20), verify=True), totals(rounds=3, calls=1)
    assert discipline.checks(ANSWERED, used) and not discipline.checks("round_limit", used)
    discipline.found_wanting("Do it.", used)
    assert discipline.plan(used) == RoundPlan(notes=("Do it.",))
    used.rounds += 1
    assert discipline.plan(used) == RoundPlan(False, ("Do it.", LAST), (), ANSWERED)
    assert not discipline.checks(ANSWERED, used), "no round is left"
    assert discipline.reason_to_end(RoundPlan(), calls("ls"), [], used, steered=True) is None
    assert discipline.plan(used) == RoundPlan(), "what the person wants now may take more"
    assert not LimitEnforcer(Limits(20)).checks(ANSWERED, used)


def test_the_reminder_to_go_on_stands_directly_behind_the_reply() -> None:
    """So a server that continues messages can be given the reply as the last one."""
    failure = ProviderFailed("model_cut", "Lost.", retryable=True, successor=FallbackUsed("a", "b", "model_cut"))
    for rounds in (1, 18):
        discipline, used, reply = LimitEnforcer(Limits(20)), totals(rounds=rounds), reply_of("Half an")
        discipline.found_wanting("Do it.", used)
        used.text = "Half an"
        assert discipline.go_on(RoundPlan(), reply, failure, used)
        plan = discipline.plan(used)
        assert plan.notes[:2] == (GO_ON, "Do it.") and plan.go_on == GO_ON


# The account, and what is said when a model says nothing.


def told(*events: AgentEvent) -> RunTotals:
    seen = RunTotals()
    for event in events:
        seen.record(event)
    return seen


HAPPENED: tuple[AgentEvent, ...] = (
    Notice("nudge", NUDGED),
    ToolStarted("c1", "bash", {"command": "make"}, "native"),
    ToolFinished("c1", "bash", True, "ok", 0.1, 0),
    ToolStarted("c2", "bash", {"command": "make test"}, "native"),
    ToolFinished("c2", "bash", False, "no", 0.1, 1),
    ToolStarted("c3", "write_file", {"path": "x"}, "native"),
    ToolRejected("No.", "c4", "web_fetch"),
)


def test_what_was_done_is_known_after_a_restart() -> None:
    seen = told(*HAPPENED)
    assert [(one.name, one.outcome) for one in seen.actions.values()] == [
        ("bash", "ok"),
        ("bash", "failed"),
        ("write_file", "unknown"),
        ("web_fetch", "refused"),
    ]
    usage = seen.add(TokenUsage(100, 20, 80), measured=True), seen.add(TokenUsage(10, 2), measured=False)
    assert ([one.cached_tokens for one in usage], "cached_tokens" in fields_of(usage[1])) == ([80, None], False)
    seen.rounds, seen.calls = 2, 3
    events: list[AgentEvent] = [RoundStarted(1), *HAPPENED, usage[0], RoundStarted(2), usage[1]]
    rows = [EventRow("run_1", at, one.type, encode(one)) for at, one in enumerate(events)]
    assert totals_of(rows, [AskedCall("c3", "write_file", {}, "native")]) == seen
    assert (seen.tokens, seen.dearest) == (132, 120)


def test_a_call_that_came_twice_is_one_action() -> None:
    used = RunTotals()
    used.record(ToolRejected(TWICE, "c1", "bash"))
    used.record(ToolStarted("c0", "bash", {"command": "ls"}, "native"))
    assert list(used.actions) == ["c0"]


@pytest.mark.parametrize("reason", [*WHY, "something_else"])
def test_last_words_say_what_was_done_what_is_missing_and_why(reason: str) -> None:
    conversation = Conversation(
        "ses_1",
        [Message("user", "Build\n  it. " + "x" * 500)],
        lambda *_: None,
        lambda _: None,
        store_nothing,
        redactor=Redactor(),
    )
    text = fallback_answer(reason, told(*HAPPENED), conversation)
    assert WHY.get(reason, "something else") in text
    assert "bash 2 times (1 failed), write_file once (1 with an unknown outcome), web_fetch once (1 not run)" in text
    assert "“Build it. xxx" in text and len(text) < 600
    assert "Done so far: nothing." in fallback_answer(reason, RunTotals(), conversation)


def test_a_name_that_a_model_made_up_does_not_break_the_last_words() -> None:
    names = ["\x1b[2J\n" + "x" * 10_000, "", *(f"tool{number}" for number in range(99))]
    seen = told(*(ToolRejected("No.", f"c{at}", name) for at, name in enumerate(names)))
    text = fallback_answer(
        "deadline", seen, Conversation("s", [], lambda *_: None, lambda _: None, store_nothing, redactor=Redactor())
    )
    assert "\x1b" not in text and "\n" not in text and len(text) < 1500 and "more tools" in text
    assert json.dumps(text).isascii()


def test_a_call_is_not_compared_with_each_that_was_made_in_the_other_way() -> None:
    compared = 0

    class Counted(dict[str, str]):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return dict.__eq__(self, other)

    numbers = iter(range(1000))
    reply = Reply({"bash": {}}, fences=lambda: True, new_id=lambda: f"c{next(numbers)}")
    call = '<tool_call>{"name": "bash", "arguments": {"command": "%d"}}</tool_call>'
    for number in range(200):
        list(reply.add(TextChunk(call % number)))
    for number in range(100, 300):
        list(reply.add(Call(number, "bash", Counted(command=str(number)), NATIVE)))
    list(reply.end())
    assert compared <= 2 * 400
    asked = [(call.dialect == NATIVE, call.arguments["command"]) for call in reply.calls]
    assert asked == [*((False, str(n)) for n in range(100)), *((True, str(n)) for n in range(100, 300))]


def test_a_row_of_failed_calls_is_noted_once_and_twice_in_a_run() -> None:
    discipline, used, log = LimitEnforcer(Limits(100)), RunTotals(), list[EventRow]()

    def record(event: AgentEvent) -> None:
        used.record(event)
        log.append(EventRow("run", len(log) + 1, event.type, encode(event)))

    def noted(*ended: bool | None) -> list[str]:
        """Return the notes behind calls that ended so (None: refused), also as they are after a restart."""
        for ok in ended:
            call = f"c{len(log)}"
            record(ToolRejected("No.", call, "bash") if ok is None else ToolFinished(call, "bash", ok, "", 0.0))
        plan, anew = discipline.plan(used), LimitEnforcer(Limits(100)).plan(totals_of(log, ()))
        assert (plan.notes, plan.notices) == (anew.notes, anew.notices)
        for notice in plan.notices:
            record(notice)
        return [*plan.notes]

    record(ToolRejected(TWICE, "c", "bash"))  # of two twins, the other is made
    assert noted(False, None, False) == []
    assert noted(None) == [FAILED.format(count=4)]
    assert noted(False, False, False, False, False) == [], "once a row"
    assert noted(True, False, False, False) == []
    assert noted(None, None) == [FAILED.format(count=5)]
    assert noted(True, False, False, False, False) == [], "twice in a run"
    assert used.notices["nudge", FAILING] == 2

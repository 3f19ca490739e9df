"""Trimming: whatever the history, the request fits or is refused, and what it is about is never lost."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.compaction.trim import trim
from app.context.overflow import ContextOverflow
from app.core.messages import Message
from app.models.wire.openai.history import wire_messages
from tests.support.trimming import (
    QUICK,
    History,
    Measure,
    Trial,
    answered,
    current,
    distinct,
    essential,
    histories,
    measures,
    needed,
    recent,
    requests,
    rounds,
    tags,
    total,
    trials,
)


@QUICK
@given(trials())
def test_the_result_fits_and_its_figures_are_true(trial: Trial) -> None:
    if trial.trimmed is None:
        return
    before, after = trial.before, trial.after
    assert trial.trimmed.after == total(after, trial.measure) <= trial.budget
    assert trial.trimmed.before == total(before, trial.measure)
    assert trial.trimmed.dropped == len(before) - len(after)
    changed = [message for message in after if message is not before[int(message.reasoning)]]
    assert trial.trimmed.shortened == len(changed)
    assert all(len(message.text) < len(before[int(message.reasoning)].text) for message in changed)


@QUICK
@given(trials())
def test_only_what_cannot_fit_is_refused(trial: Trial) -> None:
    assert (trial.trimmed is None) == (trial.budget < needed(trial.history, trial.measure))


@QUICK
@given(trials())
def test_no_call_is_parted_from_its_result(trial: Trial) -> None:
    assert tags(answered(trial.after)) == tags(trial.after)
    whole = {one[0].reasoning: one for one in rounds(answered(trial.before))}
    for left in rounds(trial.after):
        assert tags(left) == tags(whole[left[0].reasoning])


@QUICK
@given(trials())
def test_order_and_all_but_the_text_are_kept(trial: Trial) -> None:
    assert tags(trial.after) == sorted(set(tags(trial.after)))
    for message in trial.after:
        assert message == replace(trial.before[int(message.reasoning)], text=message.text)


@QUICK
@given(trials())
def test_goal_request_and_last_round_stay(trial: Trial) -> None:
    if trial.trimmed:
        assert {*tags(essential(trial.history))} <= {*tags(trial.after)}


@QUICK
@given(trials())
def test_the_last_messages_stay_whole_unless_they_alone_are_too_much(trial: Trial) -> None:
    staying = distinct([*essential(trial.history), *requests(current(trial.history)), *recent(trial.history)])
    if total(staying, trial.measure) <= trial.budget:
        left = {message.reasoning: message for message in trial.after}
        assert all(left[message.reasoning] is message for message in staying)


@QUICK
@given(trials())
def test_what_has_to_go_goes_as_far_as_the_target(trial: Trial) -> None:
    if trial.trimmed and total(answered(trial.before), trial.measure) > trial.budget:
        staying = distinct([*essential(trial.history), *requests(current(trial.history)), *recent(trial.history)])
        assert trial.trimmed.after <= trial.target or {*tags(trial.after)} <= {*tags(staying)}


@QUICK
@given(trials())
def test_what_fits_stays_as_it_is(trial: Trial) -> None:
    whole = answered(trial.before)
    assert trial.again(total(whole, trial.measure), trial.target).after == whole
    if trial.trimmed:
        again = trim(trial.after, trial.budget, trial.measure, opening=trial.history.opening, target=trial.target)
        assert again.messages == trial.after
        assert (again.dropped, again.shortened) == (0, 0)


@QUICK
@given(trials(), st.integers(100, 200))
def test_a_larger_budget_never_leaves_less(trial: Trial, percent: int) -> None:
    larger = trial.again(trial.budget * percent // 100, trial.target * percent // 100)
    if trial.trimmed:
        assert larger.trimmed
    more = {message.reasoning: message for message in larger.after}
    for message in trial.after:
        assert len(more[message.reasoning].text) >= len(message.text)


@QUICK
@given(trials())
def test_nothing_that_was_given_is_changed(trial: Trial) -> None:
    copies = [replace(message) for message in trial.before]
    given_as = tuple(trial.before)
    trial.again(trial.budget // 2, trial.target // 2)
    assert tuple(map(id, trial.before)) == tuple(map(id, given_as))
    assert trial.before == copies


@QUICK
@given(trials(), st.booleans())
def test_strict_servers_take_it(trial: Trial, native: bool) -> None:
    sent = wire_messages(trial.after, native=native)
    spoken = [message for message in sent if message["role"] != "system"]
    assert [message["role"] for message in sent].count("system") <= 1
    assert not spoken or spoken[0]["role"] == "user"
    waiting: list[str] = []
    for earlier, later in zip([{"role": "system"}, *sent], sent, strict=False):
        if later["role"] == "tool":
            assert waiting.pop(0) == later["tool_call_id"]
        else:
            assert not waiting
            in_pairs = "tool_calls" in earlier or "tool_calls" in later
            assert earlier["role"] != later["role"] or in_pairs or later is sent[0]
            waiting = [call["id"] for call in later.get("tool_calls", ())]
    assert not waiting


@QUICK
@given(histories(), measures, st.integers(100, 300), st.integers(0, 100))
def test_a_conversation_may_be_trimmed_again_and_again_as_it_grows(
    history: History, measure: Measure, percent: int, share: int
) -> None:
    budget = needed(history, measure) * percent // 100
    kept: list[Message] = []
    for at, message in enumerate(history.messages):
        kept.append(message)
        if message.role in ("user", "tool") and at > history.opening:
            with suppress(ContextOverflow):
                kept = trim(kept, budget, measure, opening=history.opening, target=budget * share // 100).messages
    final = trim(kept, budget, measure, opening=history.opening)
    assert final.after <= budget
    assert {*tags(essential(history))} - {*tags(requests(current(history))[:1])} <= {*tags(final.messages)}
    assert tags(answered(final.messages)) == tags(final.messages) == sorted(set(tags(final.messages)))

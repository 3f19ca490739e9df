"""Counting tokens: what goes over the wire, each text once, by whoever can, and mended by what servers report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.clock import Clock
from app.core.messages import AskedCall, Message
from app.models.scripted import Scripted
from app.models.tokens.counter import AGAIN_S, ANSWER, DEFAULT_WINDOW, LONG, ROLE, TokenCounter
from app.models.tokens.estimates import HIGHEST, LOWEST, LRUCache, Scale, estimated
from app.models.wire.native_calls import NATIVE
from app.models.wire.openai.history import wire_messages
from tests.support.models.chatting import BASH
from tests.support.models.scripted_models import Letters
from tools.tool import ToolList

pytestmark = pytest.mark.anyio


def result(text: str, call: str = "c1", *, untrusted: bool = False) -> Message:
    return Message("tool", text, call=call, name="bash", untrusted=untrusted)


async def test_a_round_costs_its_new_messages_only() -> None:
    provider = Letters()
    counter = TokenCounter(provider)
    history = [Message("system", "You help."), Message("user", "Count the files.")]
    for turn in range(20):
        asked = len(provider.asked)
        await counter.prepare(history, [BASH])
        before = sum(map(counter.measure, history))
        assert (
            len(provider.asked) - asked == (3, 4, 3)[min(turn, 2)]
        )  # answer, call, result; and a frame, the first time
        await counter.prepare(history, [BASH])
        assert sum(map(counter.measure, history)) == before
        call = AskedCall(f"c{turn}", "bash", {"command": f"ls {turn}"}, NATIVE)
        history += [Message("assistant", f"I look at {turn}.", calls=(call,)), result(f"{turn} files", f"c{turn}")]
    assert len(provider.asked) == len(set(provider.asked))  # other sessions would find them counted, too


async def test_what_was_counted_is_exact_and_the_rest_is_estimated() -> None:
    counter, message = TokenCounter(Letters()), Message("user", "12345678")
    assert counter.measure(message) == 8 // 4 + ROLE
    await counter.prepare([message])
    assert counter.measure(message) == 8 + ROLE
    assert counter.measure(Message("user", "87654321")) == 8 + ROLE  # as many characters a token as in that one
    assert counter.measure(Message("system", "")) == ROLE + ANSWER


calls = st.builds(
    AskedCall,
    st.uuids().map(str),
    st.just("bash"),
    st.dictionaries(st.text("ab", max_size=3), st.text(max_size=9) | st.integers() | st.lists(st.text(max_size=3))),
    st.sampled_from([NATIVE, "fence"]),
)
turns = st.tuples(st.text(max_size=30), st.text(max_size=30), st.lists(calls, max_size=2), st.booleans())


@given(st.lists(turns, min_size=1, max_size=5), st.booleans(), st.booleans(), st.booleans())
async def test_what_is_measured_is_what_goes_over_the_wire(
    said: list[tuple[str, str, list[AskedCall], bool]], native: bool, bare: bool, timed: bool
) -> None:
    clock = Clock("UTC") if timed else None
    history = [Message("system", "You help.")]
    for asked, answered, made, untrusted in said:
        history += [Message("user", asked, at=1_800_000_000.0), Message("assistant", answered, calls=tuple(made))]
        history += [result(answered, call.id, untrusted=untrusted) for call in made]
    counter = TokenCounter(Letters(bare=bare, clock=clock))
    await counter.prepare(history)
    sent = 0
    for wired in wire_messages(history, native=native, bare=bare, clock=clock):
        sent += len(wired["content"])
        sent += sum(len(json.dumps(call["function"])) for call in wired.get("tool_calls", ()))
    around = sum(ROLE + 60 * (1 + len(message.calls)) for message in history)  # brackets, blank lines, reminders
    assert abs(sum(map(counter.measure, history)) - sent) <= around


async def test_tools_are_counted_as_they_are_offered() -> None:
    counter = TokenCounter(Letters())
    assert counter.described([]) == 0
    roughly = counter.described([BASH])
    await counter.prepare([], [BASH])
    assert len(json.dumps(BASH.parameters)) < roughly < counter.described([BASH])
    assert counter.described([BASH, BASH]) < 2 * counter.described([BASH])  # what stands in front of them stands once


async def test_of_a_very_long_text_only_parts_are_counted() -> None:
    provider = Letters()
    counter, text = TokenCounter(provider), "é a" * LONG
    await counter.prepare([Message("user", text)])
    assert sum(map(len, provider.asked)) <= LONG
    assert counter.measure(Message("user", text)) == len(text) + ROLE


class Stuck(Letters):
    """It counts one part, and is never done with the next."""

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        if len(self.asked) > 2:
            await asyncio.Event().wait()
        return await super().count_tokens(texts)


async def test_when_counting_takes_too_long_what_was_counted_stays() -> None:
    counter = TokenCounter(Stuck(), limit_s=1)
    history = [Message("user", f"{number}" * (LONG - 9)) for number in range(5)]
    async with asyncio.timeout(30):
        await counter.prepare(history)
        await counter.prepare(history[:2])
    assert counter.measure(history[0]) == LONG - 9 + ROLE


class Silent(Letters):
    """It is never done."""

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        self.asked += texts
        if texts:
            await asyncio.Event().wait()
        return []


async def test_a_server_that_never_counts_is_not_waited_for_in_each_round() -> None:
    provider, now = Silent(), 0.0
    counter = TokenCounter(provider, limit_s=0.05, clock=lambda: now)
    async with asyncio.timeout(30):
        for number in range(5):
            await counter.prepare([Message("user", f"Question {number}.")])
        assert len(provider.asked) == 1
        now = AGAIN_S
        await counter.prepare([Message("user", "One more.")])
    assert len(provider.asked) == 2


async def test_without_anybody_who_counts_other_scripts_weigh_more() -> None:
    counter = TokenCounter(Scripted([]))
    history = [Message("user", text) for text in ("hello there", "привет там", "你好你好你好你好", "\ud800 lone", "")]
    await counter.prepare(history)
    assert [counter.measure(message) - ROLE for message in history] == [3, 10, 12, 3, 0]


@given(st.lists(st.tuples(st.integers(-10, 10**9), st.integers(-10, 10**9)), max_size=30))
def test_whatever_servers_report_the_scale_stays_sensible(reports: list[tuple[int, int]]) -> None:
    scale = Scale()
    for counted, real in reports:
        before = scale.value
        scale.learn(counted, real)
        assert LOWEST <= scale.value <= HIGHEST
        if counted <= 0 or real <= 0 or real > 8 * counted or counted > 8 * real:
            assert scale.value == before


@given(st.text(), st.text())
def test_estimates_add_up_and_grow_with_the_text(one: str, more: str) -> None:
    assert estimated(one) <= estimated(one + more) <= estimated(one) + estimated(more) + 1e-6


def test_a_count_too_low_is_mended_at_once_and_one_too_high_slowly() -> None:
    counter, message = TokenCounter(Scripted([])), Message("user", "x" * 4000)
    first = counter.measure(message)
    counter.learn(first, 2 * first)
    assert counter.measure(message) == 2 * first
    counter.learn(2 * first, first)
    assert first < counter.measure(message) < 2 * first
    for _ in range(30):
        counter.learn(counter.measure(message), first)
    assert abs(counter.measure(message) - first) <= 2


def test_runs_side_by_side_that_report_the_same_are_believed_once() -> None:
    counter, message = TokenCounter(Scripted([])), Message("user", "x" * 4000)
    scale, counted = counter.scale, counter.measure(message)
    for _ in range(10):
        counter.learn(counted, counted * 3 // 2, scale)
    assert counter.scale == pytest.approx(1.5, rel=0.01)


async def test_the_window_is_set_or_learned_or_a_sensible_one() -> None:
    provider = Letters()
    assert await TokenCounter(provider).window() == TokenCounter(provider).known_window == DEFAULT_WINDOW
    provider.said_window = 8192
    counter = TokenCounter(provider)
    assert counter.known_window == DEFAULT_WINDOW  # nobody has asked yet
    assert await counter.window() == counter.known_window == 8192
    provider.said_window = None  # once known it is not forgotten
    assert await counter.window() == 8192
    assert await TokenCounter(provider, 2048).window() == 2048


@pytest.mark.parametrize(
    ("setting", "refusals", "window"),
    [
        (None, [(9000, 4096)], 4096),
        (None, [(9000, 65_536)], 65_536),
        (8192, [(9000, 4096)], 4096),
        (2048, [(9000, 4096)], 2048),
        (None, [(8000, None)], 6000),
        (None, [(8000, None), (6000, None)], 4500),
        (None, [(8000, None), (7000, None), (9000, None)], 5250),
        (None, [(3000, None)] * 9, 2250),
        (None, [(2100, None)] * 9, 2048),
        (None, [(2000, None)] * 9, DEFAULT_WINDOW),
        (None, [(100, None), (0, None)], DEFAULT_WINDOW),  # so short a prompt was refused for something else
        (None, [(9000, 4096), (3000, None)], 2250),
    ],
)
async def test_refusals_teach_the_window(
    setting: int | None, refusals: list[tuple[int, int | None]], window: int
) -> None:
    counter = TokenCounter(Scripted([]), setting)
    for counted, named in refusals:
        counter.refused(counted, named)
    assert await counter.window() == counter.known_window == window


async def test_a_limit_holds_for_all_once_a_second_session_has_met_it() -> None:
    counter = TokenCounter(Scripted([]))
    for _ in range(2):
        counter.refused(9000, 4096, "one")
    assert (counter.window_of("one"), counter.window_of("two")) == (4096, DEFAULT_WINDOW)
    counter.refused(9000, 8192, "two")  # another one: neither is confirmed
    assert (counter.window_of("two"), counter.known_window) == (8192, DEFAULT_WINDOW)
    counter.refused(9000, 4096, "two")
    assert await counter.window("three") == counter.known_window == 4096


async def test_a_limit_that_the_server_lists_holds_for_all_at_once() -> None:
    provider = Letters()
    provider.said_window = 8192
    counter = TokenCounter(provider, 16_384)
    assert await counter.window() == 16_384
    counter.refused(12_000, 8192, "one")
    assert counter.known_window == 8192


def test_a_guess_holds_for_all_once_a_second_session_was_refused() -> None:
    counter = TokenCounter(Scripted([]))
    counter.refused(8000, None, "one")
    assert (counter.window_of("one"), counter.known_window) == (6000, DEFAULT_WINDOW)
    counter.refused(9000, None, "two")
    assert (counter.window_of("one"), counter.known_window) == (6000, 6750)


async def test_what_leaves_no_room_for_a_conversation_is_believed_no_longer() -> None:
    for setting, window in ((None, DEFAULT_WINDOW), (8192, 8192)):
        counter = TokenCounter(Scripted([]), setting)
        counter.refused(9000, 300)
        counter.refused(9000, None)
        counter.doubt()
        assert await counter.window() == window


def test_a_prompt_refused_although_it_seemed_to_fit_is_counted_higher_from_then_on() -> None:
    counter, message = TokenCounter(Scripted([])), Message("user", "x" * 12_000)
    counter.refused(counter.measure(message), 4096)
    assert counter.measure(message) >= 4096
    counter.refused(100, 4096)  # which had asked for too long an answer
    assert counter.measure(message) < 4200


def test_only_so_much_is_remembered() -> None:
    recent: LRUCache[int, int] = LRUCache(3)
    for number in range(5):
        recent.put(number, number)
        recent.get(2)
    assert [number in recent for number in range(5)] == [False, False, True, True, True]


def test_a_model_that_nobody_counts_for_adds_nothing() -> None:
    assert Scripted([]).added(result("x")) == ""


async def test_an_opening_costs_what_its_messages_cost_whatever_has_been_learned_since() -> None:
    counter = TokenCounter(Letters())
    opening = Message("system", "You help."), Message("user", "Count."), result("3", "c0"), Message("user", "Thanks.")
    tools = ToolList([BASH])

    def check() -> int:
        for tokens, sure in (
            (counter.measure_opening(opening), sum(map(counter.measure, opening))),
            (counter.described(tools), counter.described([*tools])),
        ):
            assert tokens == sure
        return counter.measure_opening(opening)

    guessed = check()
    await counter.prepare(opening, tools)
    counted = check()
    assert counted > guessed, "characters, not estimates"
    counter.learn(counted, 2 * counted)
    assert check() > counted
    assert counter.measure_opening([*opening]) == check()


async def test_an_opening_is_counted_anew_once_the_tools_are_native() -> None:
    class Changing(Letters):
        native_tools = True

        def added(self, message: Message) -> str:
            return "" if self.native_tools else super().added(message)

    provider = Changing()
    counter, opening = TokenCounter(provider), (Message("system", "You help."), result("3"))
    native = counter.measure_opening(opening)
    provider.native_tools = False
    assert counter.measure_opening(opening) == sum(map(counter.measure, opening)) > native

"""The view of a conversation: what a request carries, always the same for the same history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.context.compaction.replay import CompactedHistory, HistoryCache, WindowBudget
from app.context.compaction.steps import PROMPT
from app.context.overflow import ContextOverflow
from app.context.view import LEFT_OUT, TO_FIND, Fitted, View, answer_room
from app.core.events import ContextTrimmed
from app.core.messages import AskedCall, Message
from app.core.provider import CallForm
from app.models.scripted import Scripted
from app.models.tokens.counter import TokenCounter
from app.models.tokens.cutting import shortened
from app.models.wire.native_calls import NATIVE
from app.redaction.redactor import Redactor
from app.transcript.conversation import Conversation
from app.transcript.round_plan import RoundPlan
from app.transcript.run_totals import RunTotals
from tests.support.models.histories import HEAD, HISTORIES, measured, store_nothing, turn
from tests.support.trimming import Counted
from tools.catalogue import TOOLS

pytestmark = pytest.mark.anyio
LIMIT_S = 30
RECALL = [tool for tool in TOOLS if tool.name == "recall_history"]


def conversation(messages: Sequence[Message] = ()) -> Conversation:
    return Conversation("ses_1", list(messages), lambda *_: None, lambda _: None, store_nothing, redactor=Redactor())


@settings(max_examples=60, deadline=None)
@given(HISTORIES, st.integers(1200, 3000))
def test_a_history_walked_at_once_is_left_as_round_by_round(history: list[Message], budget: int) -> None:
    """After a restart, and in the next turn, the model's server finds in its cache what it has read before."""
    room = WindowBudget(HEAD, budget, measured)
    live = CompactedHistory()
    for at, message in enumerate(history):
        if message.role != "assistant":
            continue
        live.advance(history[:at], room)  # a request is made here
        live.fit(room)
        again = CompactedHistory()
        again.advance(history[:at], room)
        again.fit(room)
        assert again.kept == live.kept
        assert live.tokens(room) <= budget


def test_walking_measures_each_message_a_few_times() -> None:
    measures = 0

    def counting(message: Message) -> int:
        nonlocal measures
        measures += 1
        return measured(message)

    history = [message for number in range(1000) for message in turn(number, 1, 100)]
    compacted, room = CompactedHistory(), WindowBudget(HEAD, 4000, counting)
    compacted.advance(history, room)
    compacted.fit(room)
    assert measures < 12 * len(history)


@pytest.mark.parametrize("native", [True, False])
async def test_a_request_leaves_room_for_the_answer_and_the_tools(native: bool) -> None:
    counter = TokenCounter(Scripted([], call_form=CallForm.NATIVE if native else CallForm.FENCED), 4096)
    view = View(Counted(counter, native), lambda _: HEAD)
    history = [message for number in range(100) for message in turn(number, 2, 200)]
    async with asyncio.timeout(LIMIT_S):
        fitted = await view.fit(conversation(history), TOOLS, RoundPlan(), RunTotals())
    assert len(fitted.request.messages) < 100 < len(history)
    described = counter.described(TOOLS) if native else 0
    assert fitted.counted <= 4096 - answer_room(4096) < fitted.counted + 1200
    assert fitted.counted == sum(map(counter.measure, fitted.request.whole())) + described


async def fitted_with(history: Sequence[Message], *, window: int = 2048, **more: Any) -> Fitted:
    view = View(Counted(TokenCounter(Scripted([]), window)), more.pop("opening", lambda _: HEAD))
    async with asyncio.timeout(LIMIT_S):
        return await view.fit(conversation(history), more.get("tools", ()), more.get("plan", RoundPlan()), RunTotals())


async def test_what_goes_now_is_told_once() -> None:
    """What went before went before: an event tells of this very request."""
    said = conversation()
    view = View(Counted(TokenCounter(Scripted([]), 2048)), lambda _: HEAD)
    told = []
    async with asyncio.timeout(LIMIT_S):
        for message in (message for number in range(30) for message in turn(number, 1, 200)):
            if message.role == "assistant":
                told.append((await view.fit(said, (), RoundPlan(), RunTotals())).events)
            said.append(message)
        assert not (await view.fit(said, (), RoundPlan(), RunTotals())).events
    trims = [event for events in told for event in events]
    assert 3 < len(trims) < len(told) // 2
    assert all(isinstance(one, ContextTrimmed) and one.dropped and one.before > one.after for one in trims)


@pytest.mark.parametrize(("tools", "line"), [(RECALL, TO_FIND), ((), LEFT_OUT)], ids=["recall", "none"])
async def test_the_model_is_told_behind_its_goal_that_something_is_missing(tools: Any, line: str) -> None:
    history = [message for number in range(60) for message in turn(number, 1, 200)]
    told = (await fitted_with(history, tools=tools)).request.messages
    assert told[0] == history[0] and told[1].text == line and told[-1] == history[-1]
    short = (await fitted_with(history[:4], tools=tools)).request.messages
    assert list(short) == history[:4]


async def test_a_round_without_tools_is_sent_the_same_conversation() -> None:
    history = [message for number in range(60) for message in turn(number, 1, 200)]
    plain = (await fitted_with(history, tools=TOOLS)).request
    last = (await fitted_with(history, tools=TOOLS, plan=RoundPlan(tools=False, notes=("Finish.",)))).request
    assert plain.tools and not last.tools
    assert [*plain.messages, Message("user", "Finish.")] == list(last.messages)


async def test_a_prompt_that_was_shortened_stays_so_whoever_asks_again() -> None:
    """A server that refuses tools is asked again, with a prompt that teaches them."""
    prompts = ["short " * 100, "long " * 1500, "long " * 1500]
    history = turn(0, 1, 500)
    fitted = await fitted_with(history, opening=lambda _: [Message("system", prompts[-1]), *turn(1, 0, 1)])
    prompts.append("longer " * 1500)
    for _ in range(2):
        first, *examples = fitted.request.opening()
        assert first.text == shortened(prompts[-1], PROMPT) and examples == turn(1, 0, 1)


async def test_what_becomes_a_secret_before_a_request_is_hidden_in_the_next_turn() -> None:
    """Between the reading of a history and its first request a run may wait, for servers of tools perhaps."""
    histories, redactor, said = HistoryCache(), Redactor(), [Message("user", "Make a key.", at=1.0)]
    fitted = None
    async with asyncio.timeout(LIMIT_S):
        for at, answer in enumerate(("It is sesame-4711.", "Yes.", "Yes.", "")):
            session = Conversation("ses_1", [*said], lambda *_: None, lambda _: None, store_nothing, redactor=redactor)
            if at == 1:
                redactor.add("sesame-4711")
            view = View(Counted(TokenCounter(Scripted([]), 4096)), lambda _: HEAD, histories=histories)
            fitted = await view.fit(session, (), RoundPlan(), RunTotals())
            said += [Message("assistant", answer), Message("user", "Is it kept?", at=2.0 + at)]
    assert fitted is not None
    assert [one.text for one in fitted.request.messages if one.role == "assistant"] == [
        "It is [redacted].",
        "Yes.",
        "Yes.",
    ]


async def test_what_cannot_be_made_to_fit_is_named() -> None:
    with pytest.raises(ContextOverflow, match="Offer fewer tools"):
        view = View(Counted(TokenCounter(Scripted([]), 512), native_tools=True), lambda _: HEAD)
        await view.fit(conversation(turn(0, 0, 1)), TOOLS, RoundPlan(), RunTotals())


async def test_a_round_that_could_not_fit_does_not_end_the_session() -> None:
    """Its turn has failed, perhaps under another window; the next one is fitted as if it had not."""
    calls = tuple(AskedCall(f"c{one}", "bash", {}, NATIVE) for one in range(40))
    wide = [Message("tool", "r" * 4000, call=call.id, name="bash") for call in calls]
    history = [Message("user", "Go."), Message("assistant", "", calls), *wide, Message("assistant", "Done.")]
    with pytest.raises(ContextOverflow):
        await fitted_with(history[:-1])
    for said in (history, history[:-1]):  # the run that failed has said nothing
        fitted = await fitted_with([*said, Message("user", "And now?")])
        assert fitted.request.messages[-1].text == "And now?"


def test_folds_are_kept_for_the_sessions_at_work_last() -> None:
    histories, room = HistoryCache(most=2), WindowBudget(HEAD, 4000, measured)
    one = histories.keep("ses_1", CompactedHistory())
    said = turn(0, 1, 1)
    one.advance(said, room)
    assert histories.of("ses_1", said) is histories.of("ses_1", [*said, *turn(1, 0, 1)]) is one
    for others in (said[:3], [*said[:3], *turn(1, 0, 1)]):
        assert histories.of("ses_1", others) is None, "what a store has lost was walked nevertheless"
    for session in ("ses_2", "ses_1", "ses_3"):
        histories.keep(session, one)
    assert histories.of("ses_2", said) is None and histories.of("ses_1", said) is histories.of("ses_3", said) is one


async def test_better_counts_do_not_change_what_the_model_has_read() -> None:
    """The next run of a session goes on where the last one was, however tokens are counted by then."""
    counter, histories = TokenCounter(Scripted([]), 2048), HistoryCache()
    said = conversation()
    requests = []
    async with asyncio.timeout(LIMIT_S):
        for number in range(12):
            view = View(Counted(counter), lambda _: HEAD, histories=histories)
            for message in turn(number, 0, 400):
                if message.role == "assistant":
                    fitted = await view.fit(said, (), RoundPlan(), RunTotals())
                    requests.append((list(fitted.request.messages), bool(fitted.events)))
                    counter.learn(fitted.counted, fitted.counted * 103 // 100, fitted.scale)
                said.append(message)
    assert any(trimmed for _, trimmed in requests)
    for (before, _), (after, trimmed) in pairwise(requests):
        assert trimmed or after[: len(before)] == before


def test_nothing_goes_silently_because_counts_have_grown() -> None:
    """What a request has carried stays until the next one is made, which tells what went."""
    history = [message for number in range(8) for message in turn(number, 1, 200)]
    room = WindowBudget(HEAD, sum(map(measured, [*HEAD, *history])), measured)
    compacted = CompactedHistory()
    compacted.advance(history[:-1], room)
    assert compacted.fit(room) is None
    seen_tokens = WindowBudget(HEAD, room.budget, lambda message: 2 * measured(message))
    compacted.advance(history, seen_tokens)
    assert compacted.kept == history
    trimmed = compacted.fit(seen_tokens)
    assert trimmed and trimmed.dropped


class Asked(Scripted):
    """Notes what it is asked of itself."""

    def __init__(self) -> None:
        super().__init__([])
        self.about: list[str] = []

    async def window(self) -> int | None:
        self.about.append("window")
        return 4096

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        self.about.append("tokens")
        return None


async def test_a_server_that_hangs_is_waited_for_once_before_it_is_to_count() -> None:
    """What is learned of the window says whether it can count at all; a count that is given up says nothing."""
    provider = Asked()
    await View(Counted(TokenCounter(provider)), lambda _: HEAD).fit(
        conversation(turn(0, 0, 1)), (), RoundPlan(), RunTotals()
    )
    assert provider.about == ["window", "tokens"]

"""A history that clients have brought, and results that they send, in any form: every call has exactly one result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.messages import AskedCall, Message, unanswered
from app.models.wire.client_history import settled
from app.models.wire.openai.history import WireMessage, wire_messages
from app.redaction.redactor import Redactor
from app.transcript.conversation import Conversation
from app.transcript.run_request import CallResult

IDS = st.sampled_from(["", "a", "b", "a b", "x" * 70])
DIALECTS = st.sampled_from(["native", "hermes"])
CALLS = st.lists(st.builds(AskedCall, IDS, st.just("t"), st.just({}), DIALECTS), max_size=3).map(tuple)
TEXTS = st.sampled_from(["", "words"])
MESSAGES = st.one_of(
    st.builds(Message, st.sampled_from(["user", "system"]), TEXTS),
    st.builds(Message, st.just("assistant"), TEXTS, CALLS),
    st.builds(Message, st.just("tool"), TEXTS, call=st.none() | IDS, name=st.sampled_from([None, "t", "other"])),
)
RESULTS = st.lists(st.builds(CallResult, IDS, TEXTS), max_size=4)


async def _stored() -> None:
    """Everything is."""


def conversation(messages: list[Message]) -> Conversation:
    return Conversation("s", messages, lambda *_: None, lambda _: None, _stored, redactor=Redactor())


def expect_pairs(sent: list[WireMessage]) -> None:
    """Fail unless each call has an id of its own and is followed by its result."""
    waiting, known = list[Any](), set[str]()
    for message in sent:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        assert all(waiting) and known.isdisjoint(waiting) and len(set(waiting)) == len(waiting)
        known.update(waiting)
    assert not waiting


@pytest.mark.parametrize(
    ("first", "second", "shown"), [(None, None, None), ("a", None, "a\n\nB"), (None, "b", "A\n\nb"), ("", "b", "b")]
)
def test_neighbouring_replies_show_what_both_have_shown(
    first: str | None, second: str | None, shown: str | None
) -> None:
    [joined] = settled([Message("assistant", "A", shown=first), Message("assistant", "B", shown=second)])
    assert (joined.text, joined.shown) == ("A\n\nB", shown)


@given(st.lists(MESSAGES, max_size=10), RESULTS, st.booleans(), st.booleans())
def test_every_call_has_one_result(
    brought: list[Message], results: list[CallResult], native: bool, bridged: bool
) -> None:
    first = conversation([])
    for message in settled(brought):
        first.append(message)
    assert len(first.take_results(results)) == len(results)  # none of them is for a call of the imported history
    first.append(Message("assistant", "", (AskedCall("n1", "t", {}, "native"), AskedCall("n2", "t", {}, "hermes"))))
    first.hand_over("n1")
    first.hand_over("n2")
    first.settle("")
    first.append(Message("user", "meanwhile"))
    second = conversation(first.messages)
    assert len(second.take_results([CallResult("n1", "1"), CallResult("n1", "2"), *results])) == 1 + len(results)
    second.settle("", (), {"n2"})
    assert not list(unanswered(second.messages))
    called = [call.id for message in second.messages for call in message.calls]
    assert sorted(called) == sorted(one.call for one in second.messages if one.role == "tool" and one.call)
    expect_pairs(wire_messages(second.messages, native=native, bridged=bridged))

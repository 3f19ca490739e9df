"""Trimming conversations with pictures: whole turns go first, pictures become words last, and nothing is changed."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.compaction.trim import Trimmed, trim
from app.context.overflow import ContextOverflow
from app.core.attachments import Attachment
from app.core.messages import Message, in_words
from tests.support.trimming import QUICK, History, histories

PICTURE = 500
CAT = Attachment("a" * 64, "image/png", 1, "cat.png", 80, 60)


def size_of(message: Message) -> int:
    return 3 + len(message.text) + PICTURE * len(message.attachments)


@st.composite
def pictured(draw: st.DrawFn) -> History:
    history = draw(histories())
    for at, message in enumerate(history.messages[history.opening :], history.opening):
        if message.role == "user":
            history.messages[at] = replace(message, attachments=(CAT,) * draw(st.integers(0, 2)))
    return history


def trimmed(history: History, budget: int) -> Trimmed | None:
    try:
        return trim(history.messages, budget, size_of, opening=history.opening)
    except ContextOverflow:
        return None


def shown(trimmed: Trimmed | None) -> int:
    return sum(len(message.attachments) for message in trimmed.messages) if trimmed else -1


@QUICK
@given(pictured(), st.integers(200, 6000))
def test_it_fits_and_what_is_left_is_as_it_came(history: History, budget: int) -> None:
    before = list(history.messages)
    found = trimmed(history, budget)
    assert history.messages == before
    if found is None:
        return
    assert sum(map(size_of, found.messages)) == found.after <= budget
    by_tag = {message.reasoning: message for message in before}
    for message in found.messages:
        was = by_tag[message.reasoning]
        assert message.attachments in (was.attachments, ())
        if was.attachments and not message.attachments and len(message.text) > 300:
            assert message.text.startswith("[picture cat.png"), "what is not shown any more is told of"


@QUICK
@given(pictured(), st.integers(200, 6000), st.integers(1, 1000))
def test_more_room_never_shows_less(history: History, budget: int, more: int) -> None:
    assert shown(trimmed(history, budget)) <= shown(trimmed(history, budget + more))


@QUICK
@given(pictured(), st.integers(200, 6000))
def test_pictures_never_make_a_session_fail(history: History, budget: int) -> None:
    """Where the words alone would fit once they are described, so do they with pictures."""
    described = [replace(one, text=in_words(one), attachments=()) for one in history.messages]
    if trimmed(dataclasses.replace(history, messages=described), budget):
        assert trimmed(history, budget)


def test_the_person_s_last_picture_is_the_last_to_go() -> None:
    messages = [
        Message("system", "Be brief."),
        Message("user", "What is this?", attachments=(CAT,)),
        Message("assistant", "A cat."),
        Message("user", "And this?", attachments=(CAT,)),
    ]
    whole = sum(map(size_of, messages))
    assert trim(messages, whole, size_of).messages == messages
    first, *_, last = trim(messages, whole - 1, size_of).messages[1:]
    assert (first.attachments, last.attachments) == ((), (CAT,))
    assert first.text == "[picture cat.png, 80 x 60, image/png]\nWhat is this?"
    assert trim(messages, 200, size_of).messages[-1].attachments == ()

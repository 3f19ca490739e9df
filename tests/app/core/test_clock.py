"""The time at the end of a person's message: in one zone, the same for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.clock import Clock
from app.core.messages import AskedCall, Message, dump, load
from app.models.wire.openai.history import wire_messages

SUMMER, WINTER = 1_790_000_000.0, 1_795_357_500.9  # 2026-09-21 13:33:20 and 2026-11-22 14:25:00 UTC
BERLIN = Clock("Europe/Berlin")
STAMPS = {
    ("Europe/Berlin", SUMMER): "[2026-09-21 16:13 CEST]",
    ("Europe/Berlin", WINTER): "[2026-11-22 15:25 CET]",
    ("UTC", WINTER): "[2026-11-22 14:25 UTC]",
    ("Asia/Kolkata", WINTER): "[2026-11-22 19:55 IST]",
    ("America/Sao_Paulo", WINTER): "[2026-11-22 11:25 -03]",
}


@pytest.mark.parametrize(("zone", "at"), STAMPS, ids=lambda value: str(value))
def test_the_time_is_that_of_the_zone_with_its_own_summer_time(zone: str, at: float) -> None:
    assert Clock(zone).stamped("Hi", at) == f"Hi\n\n{STAMPS[zone, at]}"


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_without_a_zone_it_is_this_machine_s() -> None:
    assert Clock().stamped("Hi", WINTER) == "Hi\n\n[2026-11-22 23:25 JST]"
    assert f"{Clock().local(WINTER):%Z}" == "JST"


def test_words_whose_time_is_not_known_stay_as_they_are() -> None:
    assert BERLIN.stamped("Hi", None) == "Hi"
    old = load('{"role": "user", "text": "Hi"}')
    assert old == Message("user", "Hi")
    assert wire_messages([old], native=False, clock=BERLIN) == [{"role": "user", "content": "Hi"}]


@given(st.text(), st.floats(0, 4e9))
def test_a_stored_message_keeps_its_time(text: str, at: float) -> None:
    message = Message("user", text, at=at or 1.0)
    assert load(dump(message)) == message


@pytest.mark.parametrize("native", [True, False])
def test_only_the_person_s_words_end_with_a_time(native: bool) -> None:
    call = AskedCall("c1", "bash", {"command": "ls"}, "native")
    history = [
        Message("system", "Be brief.", at=WINTER),
        Message("user", "Look.", at=WINTER),
        Message("assistant", "I look.", calls=(call,), at=WINTER),
        Message("tool", "guide.md", call="c1", name="bash", at=WINTER, code="abcdefgh"),
        Message("user", "Sum it up."),
    ]
    plain = [str(one) for one in wire_messages(history, native=native)]
    stamped = [str(one) for one in wire_messages(history, native=native, clock=BERLIN)]
    assert [one.replace("\\n\\n[2026-11-22 15:25 CET]", "") for one in stamped] == plain
    assert "".join(stamped).count("CET") == 1


def test_without_a_clock_there_are_no_times() -> None:
    assert wire_messages([Message("user", "Hi", at=WINTER)], native=False) == [{"role": "user", "content": "Hi"}]

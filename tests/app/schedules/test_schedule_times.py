"""Times of schedules: cron expressions over changes of clocks in several zones, intervals, single times, jitter."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.schedules.times import MOST_COUNTED, Timetable, UnfitTime, checked, jitter

BERLIN, NEW_YORK, LORD_HOWE, KOLKATA = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"
SANTIAGO, AUCKLAND = "America/Santiago", "Pacific/Auckland"
NOW = 1_774_000_000.0  # 2026-03-20


def at(text: str, zone: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def times(table: Timetable, after: float, many: int) -> list[str]:
    found = list[str]()
    while len(found) < many and (following := table.after(after)) is not None:
        after = following
        found.append(datetime.fromtimestamp(after, ZoneInfo(table.zone)).strftime("%m-%d %H:%M %z"))
    return found


# zone, expression, begin -> the times behind it
CRON = [
    # Clocks go forward: what is left out is made up for right after it, once.
    (BERLIN, "30 2 * * *", "2026-03-28T12:00", ["03-29 03:00 +0200", "03-30 02:30 +0200"]),
    (BERLIN, "0,30 2 * * *", "2026-03-28T12:00", ["03-29 03:00 +0200", "03-30 02:00 +0200"]),
    (NEW_YORK, "15 2 * * *", "2026-03-07T12:00", ["03-08 03:00 -0400", "03-09 02:15 -0400"]),
    (LORD_HOWE, "15 2 * * *", "2026-10-03T12:00", ["10-04 02:30 +1100", "10-05 02:15 +1100"]),  # by half an hour
    (SANTIAGO, "0 0 * * *", "2026-09-05T12:00", ["09-06 01:00 -0300", "09-07 00:00 -0300"]),  # at midnight
    # Clocks go back: a time that comes twice counts once.
    (BERLIN, "30 2 * * *", "2026-10-24T12:00", ["10-25 02:30 +0200", "10-26 02:30 +0100"]),
    (NEW_YORK, "30 1 * * *", "2026-10-31T12:00", ["11-01 01:30 -0400", "11-02 01:30 -0500"]),
    (AUCKLAND, "59 2 * * *", "2026-04-04T12:00", ["04-05 02:59 +1300", "04-06 02:59 +1200"]),
    # Where the hour or minute is `*` they follow the time that passes.
    (BERLIN, "30 * * * *", "2026-10-25T01:40", ["10-25 02:30 +0200", "10-25 02:30 +0100", "10-25 03:30 +0100"]),
    (BERLIN, "30 * * * *", "2026-03-29T00:40", ["03-29 01:30 +0100", "03-29 03:30 +0200"]),
    (KOLKATA, "0 9 * * MON", "2026-03-20T12:00", ["03-23 09:00 +0530", "03-30 09:00 +0530"]),
    ("UTC", "0 0 29 2 *", "2026-03-01T00:00", ["02-29 00:00 +0000"]),
    ("UTC", "0 9 L * *", "2026-02-01T00:00", ["02-28 09:00 +0000", "03-31 09:00 +0000"]),
    ("UTC", "@weekly", "2026-03-20T00:00", ["03-22 00:00 +0000"]),
]


@pytest.mark.parametrize(("zone", "expression", "begin", "expected"), CRON)
def test_cron_times_where_clocks_change(zone: str, expression: str, begin: str, expected: list[str]) -> None:
    table = checked("cron", expression, zone, 0, at(begin, zone))
    assert times(table, at(begin, zone), len(expected)) == expected


def test_a_schedule_made_in_the_second_pass_of_an_hour_begins_the_next_day() -> None:
    table = Timetable("cron", "30 2 * * *", BERLIN, 0)
    assert times(table, at("2026-10-25T02:10", BERLIN, fold=1), 1) == ["10-26 02:30 +0100"]


@given(some.sampled_from(sorted(available_timezones())), some.floats(0, 4e9), some.integers(0, 59))
def test_times_go_forward_in_every_zone(zone: str, begin: float, minute: int) -> None:
    table = Timetable("cron", f"{minute} 0-4 * * *", zone, 0)
    found = [begin]
    for _ in range(6):
        following = table.after(found[-1])
        assert following is not None
        found.append(following)
    assert all(earlier < later for earlier, later in pairwise(found))
    assert found[-1] < begin + 4 * 86_400


def test_intervals_follow_the_time_that_passes() -> None:
    table = checked("every", "1h30m", BERLIN, 0, NOW)
    assert table.after(NOW) == NOW + 5400
    assert table.after(NOW + 5400) == NOW + 10_800
    assert table.after(NOW + 10_799.5) == NOW + 10_800
    assert table.after(NOW - 99_999) == NOW + 5400  # a clock that was set back
    assert table.missed(NOW + 5400, NOW + 5400 * 4 + 1) == 4
    assert table.missed(NOW, NOW + 1e12) == MOST_COUNTED


def test_a_single_time_is_in_its_zone_unless_it_has_an_offset() -> None:
    assert checked("once", "2027-01-31T09:00", BERLIN, 0, NOW).after(NOW) == at("2027-01-31T09:00", BERLIN)
    table = checked("once", "2027-01-31T09:00+01:00", NEW_YORK, 0, NOW)
    assert (first := table.after(NOW)) == at("2027-01-31T09:00", BERLIN)
    assert table.after(first or 0) is None and table.missed(first or 0, NOW * 2) == 1
    twice = checked("once", "2026-10-25T02:30", BERLIN, 0, NOW)
    assert times(twice, NOW, 2) == ["10-25 02:30 +0200"]


# kind, expression, zone, jitter -> what the message says to do
UNFIT = [
    ("cron", "* * * *", "UTC", 0, "Write five fields"),
    ("cron", "* * * * * *", "UTC", 0, "Write five fields"),
    ("cron", "61 * * * *", "UTC", 0, "bad minute. Write five fields"),
    ("cron", "0 25 * * *", "UTC", 0, "bad hour"),
    ("cron", "0 0 30 2 *", "UTC", 0, "bad day-of-month"),
    ("cron", "* * */20 * 1L", "UTC", 0, "no time in the next 50 years"),
    ("cron", "", "UTC", 0, "Write five fields"),
    ("cron", "0 0 * * *" + " " * 200, "UTC", 0, "at most 200"),
    ("cron", "0 0 * * FUNDAY", "UTC", 0, "bad day-of-week"),
    ("cron", "0 0 * * *", "Mars/Olympus", 0, "Choose a name of the time zone database"),
    ("cron", "0 0 * * *", "../../etc/passwd", 0, "Choose a name of the time zone database"),
    ("cron", "0 0 * * *", "", 0, "Choose a name of the time zone database"),
    ("cron", "* * * * *", "UTC", 60, "Choose a smaller one"),
    ("cron", "0,5 3 * * *", "UTC", 300, "only 300 s apart"),
    ("every", "90", "UTC", 0, "Write an interval such as 90m"),
    ("every", "59s", "UTC", 0, "is too short"),
    ("every", "367d", "UTC", 0, "is too long"),
    ("every", "-5m", "UTC", 0, "is no interval"),
    ("every", "2m", "UTC", 120, "Choose a smaller one"),
    ("once", "tomorrow", "UTC", 0, "Write a date and time such as"),
    ("once", "2020-01-01T00:00", "UTC", 0, "Choose a later time"),
    ("once", "2126-01-01T00:00", "UTC", 0, "Choose an earlier one"),
    ("once", "9999-12-31T23:59:59-23:00", "UTC", 0, "Choose an earlier one"),
    ("once", "0001-01-01T00:00", BERLIN, 0, "Write a date and time"),
    ("once", "2027-03-28T02:30", BERLIN, 0, "clocks go forward then. 03:30 is next"),
]


@pytest.mark.parametrize(("kind", "expression", "zone", "jitter_s", "words"), UNFIT)
def test_an_unfit_time_says_what_to_do(kind: str, expression: str, zone: str, jitter_s: float, words: str) -> None:
    with pytest.raises(UnfitTime) as raised:
        checked(kind, expression, zone, jitter_s, NOW)
    assert words in str(raised.value)


@given(some.text(max_size=40), some.sampled_from(["cron", "every", "once"]))
def test_any_text_is_a_time_or_is_refused(text: str, kind: str) -> None:
    try:
        table = checked(kind, text, "Europe/Berlin", 0, NOW)
    except UnfitTime as unfit:
        assert "." in str(unfit)
    else:
        assert (table.after(NOW) or 0) > NOW


@given(some.text(max_size=20), some.floats(0, 4e9), some.floats(0, 3600))
def test_jitter_is_bounded_and_the_same_each_time(schedule: str, due: float, most: float) -> None:
    found = jitter(schedule, due, most)
    assert 0 <= found <= most and (found < most or not most)
    assert found == jitter(schedule, due, most)


def test_jitter_spreads_schedules_and_times() -> None:
    spread = [jitter(f"sch_{number}", NOW, 60) for number in range(200)]
    assert min(spread) < 10 and max(spread) > 50
    assert len({jitter("sch_1", NOW + day * 86_400, 60) for day in range(50)}) == 50

"""Times as people say them, and the times of schedules in words."""

from __future__ import annotations

import pytest

from app.schedules.times import Timetable, UnfitTime
from app.schedules.words import absolute, in_words, moment_in_words, span_in_words

BERLIN, HOUR = "Europe/Berlin", 3600.0
SUNDAY = 1_795_958_880.0  # 2026-11-29 13:28 UTC, 14:28 in Berlin

SAID = [
    ("17:00", "2026-11-29T17:00:00+01:00"),
    ("at 17:00", "2026-11-29T17:00:00+01:00"),
    ("9:30", "2026-11-30T09:30:00+01:00"),
    ("14:28", "2026-11-30T14:28:00+01:00"),
    ("today 9:30", "2026-11-29T09:30:00+01:00"),
    ("tomorrow at 17:00", "2026-11-30T17:00:00+01:00"),
    ("in 20m", "2026-11-29T14:48:00+01:00"),
    ("In 1 hour, 30 minutes", "2026-11-29T15:58:00+01:00"),
    ("2h30m", "2026-11-29T16:58:00+01:00"),
    ("999999d 999999d 999999d", "2.60996e+11"),
    *((same, same) for same in ("2026-12-01T09:00", "in 1 month", "at five", "25:00", "", "17:00 " + "x" * 99)),
]


@pytest.mark.parametrize(("said", "expected"), SAID)
def test_a_time_as_people_say_it_becomes_a_date_with_an_offset_once(said: str, expected: str) -> None:
    made = absolute(said, BERLIN, SUNDAY)
    assert made == expected
    if ":" in said:
        assert absolute(said, BERLIN, SUNDAY + 0.7) == expected, "on the minute, whenever it is said"
    assert absolute(made, BERLIN, SUNDAY + HOUR) == made
    if said != "14:28":
        assert absolute(said, BERLIN, SUNDAY - 0.3) == made, "a part of a second makes no other time"


WORDS = [
    ("once", "2026-11-29T17:00:00+01:00", "On Sunday 29 November 2026 at 17:00 (Europe/Berlin, in 2 hours 32 minutes)"),
    (
        "cron",
        "30 7 * * MON-FRI",
        "At 07:30 on Monday through Friday (Europe/Berlin), next on Monday 30 November 2026 at 07:30 "
        "(in 17 hours 2 minutes)",
    ),
    (
        "cron",
        "@daily",
        "At 00:00 every day (Europe/Berlin), next on Monday 30 November 2026 at 00:00 (in 9 hours 32 minutes)",
    ),
    (
        "every",
        "90m",
        "Every 1 hour 30 minutes (Europe/Berlin), next on Sunday 29 November 2026 at 15:58 (in 1 hour 30 minutes)",
    ),
    ("once", "2001-01-01", "At no time any more"),
]


@pytest.mark.parametrize(("kind", "expression", "words"), WORDS)
def test_times_in_words_name_the_zone_and_the_next_time(kind: str, expression: str, words: str) -> None:
    assert in_words(Timetable(kind, expression, BERLIN, SUNDAY), SUNDAY) == words


def test_spans_moments_and_unknown_zones() -> None:
    assert [span_in_words(one) for one in (0.2, 61, 172_800)] == ["a moment", "1 minute 1 second", "2 days"]
    assert moment_in_words(SUNDAY + 5, "UTC") == "Sunday 29 November 2026 at 13:28:05"
    assert absolute("2:30", BERLIN, 1_774_740_000.0) == "2026-03-29T03:30:00+02:00", "clocks go forward then"
    with pytest.raises(UnfitTime):
        absolute("17:00", "Mars", SUNDAY)

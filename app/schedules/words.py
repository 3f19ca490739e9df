"""The times of schedules in words, as the person who approves one reads them, and times as people say them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from cronsim import CronSim

from app.schedules.times import EVERY, MACROS, ONCE, SECONDS, Timetable, zone_named
from app.storage.schedules import ScheduleRow
from tools.base.patterns import lazy_pattern

_UNIT = r"(?:d(?:ays?)?|h(?:ours?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)"
_IN = lazy_pattern(rf"(?:in )?((?:[0-9]{{1,6}} ?{_UNIT},? ?)+)", re.IGNORECASE)
_CLOCK = lazy_pattern(r"(?:(today|tomorrow),? )?(?:at )?([01]?[0-9]|2[0-3]):([0-5][0-9])", re.IGNORECASE)
_PART = lazy_pattern(r"([0-9]+) ?([dhms])", re.IGNORECASE)
LONGEST = 64  # characters of such a time
_UNITS = {"d": "day", "h": "hour", "m": "minute", "s": "second"}


def absolute(text: str, zone: str, now: float) -> str:
    """Return `17:00`, `tomorrow 9:30` or `in 20m` as a date and time with its offset, and any other text as it is.

    A time of day without a day is the next one. Raises UnfitTime for an unknown zone.
    """
    here, said = datetime.fromtimestamp(now // 1, zone_named(zone)), text.strip()[:LONGEST]
    if found := _IN.fullmatch(said):
        seconds = sum(int(number) * SECONDS[unit.lower()] for number, unit in _PART.findall(found[1]))
        return _written(now + seconds, zone)
    if not (found := _CLOCK.fullmatch(said)):
        return text
    day, then = (found[1] or "").lower(), here.replace(hour=int(found[2]), minute=int(found[3]), second=0)
    if day == "tomorrow" or (not day and then <= here):
        then += timedelta(days=1)  # on the clock on the wall
    return _written(then.timestamp(), zone)


def _written(at: float, zone: str) -> str:
    try:
        return datetime.fromtimestamp(round(at), zone_named(zone)).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"  # beyond all calendars, which the check of the time says


def in_words(table: Timetable, now: float) -> str:
    """Return the times and the next of them, as "At 17:00 every day (Europe/Berlin), next on ...". Raises UnfitTime."""
    following = table.after(now)
    if following is None:
        return "At no time any more"
    moment = moment_in_words(following, table.zone)
    wait = f"in {span_in_words(following - now)}"
    if table.kind == ONCE:
        return f"On {moment} ({table.zone}, {wait})"
    if table.kind == EVERY:
        often = f"Every {span_in_words(table.after(following) - following)}"  # type: ignore[operator]
    else:
        expression = MACROS.get(table.expression.lower(), table.expression)
        often = CronSim(expression, datetime.fromtimestamp(now)).explain()
    return f"{often} ({table.zone}), next on {moment} ({wait})"


def moment_in_words(at: float, zone: str) -> str:
    """Such as "Sunday 29 November 2026 at 17:00"; with seconds if there are some."""
    local = datetime.fromtimestamp(at, zone_named(zone))
    return f"{local:%A} {local.day} {local:%B %Y} at {local:%H:%M:%S}".removesuffix(":00" if not local.second else "")


def span_in_words(seconds: float) -> str:
    """The two largest units of a time, such as "3 hours 12 minutes"."""
    left, parts = round(seconds), list[str]()
    for unit, word in _UNITS.items():
        count, left = divmod(left, SECONDS[unit])
        if count:
            parts.append(f"{count} {word}{'s' if count > 1 else ''}")
    return " ".join(parts[:2]) or "a moment"


def reminder_message(row: ScheduleRow, now: float, late: str) -> str:
    """Return the message that begins a schedule's run in the conversation that it answers in."""
    moment = moment_in_words(now // 60 * 60, row.zone)
    about = f"{late} The person has set it in this conversation and reads your answer here. It says:".lstrip()
    return f'The reminder "{row.name}" is due: it is {moment} ({row.zone}).\n\n{about}\n\n{row.text}'

"""The times of schedules: cron expressions with time zones, intervals, single times, and the jitter of each.

All results are Unix times. A cron expression follows the clock on the wall as Debian's cron does: a time that the
change to summer time leaves out is made up for right after it, and a time that comes twice counts once; expressions
whose minute or hour is `*` follow the time that passes. An interval follows the time that passes, too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from tools.base.patterns import lazy_pattern

CRON, EVERY, ONCE = "cron", "every", "once"
KINDS = (CRON, EVERY, ONCE)
FIELDS = 5
MOST_CHARACTERS = 200
LEAST_S, LONGEST_S = 60.0, 366 * 86_400.0  # of an interval
HORIZON_S = 50 * 366 * 86_400.0  # of single times; later ones are mistakes, and might not fit a date any more
MOST_JITTER_S = 3600.0
GAPS = 8  # of the next times, which a jitter must be shorter than
MOST_COUNTED = 100  # missed times that are counted, in some milliseconds
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
CRON_HINT = "Write five fields (minute, hour, day of month, month, day of week) such as `30 7 * * MON-FRI`, or @daily."
EVERY_HINT = "Write an interval such as 90m, 1h30m or 2d, from 1m to 366d."
ONCE_HINT = (
    "Write a date and time such as 2027-01-31T09:00, or with an offset: 2027-01-31T09:00+01:00; or 17:00, tomorrow "
    "9:30 or in 20m."
)
_SPAN = lazy_pattern(r"(?:[0-9]{1,8}[smhd])+")
_PART = lazy_pattern(r"([0-9]{1,8})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class UnfitTime(ValueError):
    """An expression, time zone or jitter that cannot be used. The message says what to do."""


class Timetable(Struct, frozen=True):
    """The times of one schedule; `start` is when it was made, from which intervals count."""

    kind: str
    expression: str
    zone: str
    start: float

    def after(self, at: float) -> float | None:
        """Return the first time later than `at`; None if there is none. Raises UnfitTime."""
        return _AFTER[self.kind](self, at)

    def missed(self, due: float, now: float) -> int:
        """Return how many times there are from `due` up to `now`, `due` included; at most MOST_COUNTED."""
        if self.kind == EVERY:
            return min(MOST_COUNTED, 1 + int((now - due) // interval_s(self.expression)))
        count = 0
        at = float(due)
        while at <= now and count < MOST_COUNTED:
            count += 1
            following = self.after(at)
            if following is None:
                break
            at = following
        return count


def checked(
    kind: str, expression: str, zone: str, jitter_s: float, now: float, *, shortest_s: float = 0.0
) -> Timetable:
    """Return the timetable of a new schedule, whose times are `shortest_s` apart or more. Raises UnfitTime."""
    if len(expression) > MOST_CHARACTERS:
        raise UnfitTime(f"expression has {len(expression)} characters, at most {MOST_CHARACTERS}.")
    zone_named(zone)
    table = Timetable(kind, expression.strip(), zone, now)
    first = table.after(now)
    if first is None and kind == ONCE:
        raise UnfitTime(f"{expression!a} is over in {zone}. Choose a later time.")
    if first is None:
        raise UnfitTime(f"{expression!a} has no time in the next 50 years. {CRON_HINT}")
    if kind == ONCE and first > now + HORIZON_S:
        raise UnfitTime("That time is more than 50 years away. Choose an earlier one.")
    _check_gaps(table, first, jitter_s, shortest_s)
    return table


def _check_gaps(table: Timetable, first: float, jitter_s: float, shortest_s: float) -> None:
    if table.kind == ONCE or not (jitter_s or shortest_s):
        return
    times = [first]
    while len(times) <= GAPS and (following := table.after(times[-1])) is not None:
        times.append(following)
    least = min((later - earlier for earlier, later in pairwise(times)), default=math.inf)
    if least < shortest_s:
        raise UnfitTime(f"Some times are only {least:g} s apart; choose times that are {shortest_s:g} s apart or more.")
    if jitter_s and jitter_s >= least:
        raise UnfitTime(f"jitter_s is {jitter_s:g}, and some times are only {least:g} s apart. Choose a smaller one.")


def zone_named(name: str) -> ZoneInfo:
    """Raises UnfitTime."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        advice = "Choose a name of the time zone database such as Europe/Berlin, America/New_York or UTC."
        raise UnfitTime(f"{name[:64]!a} is not a time zone that this machine knows. {advice}") from None


def jitter(schedule: str, due: float, jitter_s: float) -> float:
    """Return the seconds by which this time of this schedule is put off, from 0 up to less than `jitter_s`.

    They follow from the schedule and the time, so that a restart puts it off by as much.
    """
    if not jitter_s:  # of most, all of which are looked at with each change of one
        return 0.0
    digest = hashlib.sha256(f"{schedule}\n{due:.6f}".encode()).digest()
    return jitter_s * (int.from_bytes(digest[:6]) / (1 << 48))


def interval_s(expression: str) -> float:
    """Raises UnfitTime."""
    if not _SPAN.fullmatch(expression):
        raise UnfitTime(f"{expression[:64]!a} is no interval. {EVERY_HINT}")
    seconds = float(sum(int(number) * SECONDS[unit] for number, unit in _PART.findall(expression)))
    if not LEAST_S <= seconds <= LONGEST_S:
        raise UnfitTime(f"{expression[:64]!a} is too {'short' if seconds < LEAST_S else 'long'}. {EVERY_HINT}")
    return seconds


def _cron_after(table: Timetable, at: float) -> float | None:
    expression = MACROS.get(table.expression.lower(), table.expression)
    if len(expression.split()) != FIELDS:
        raise UnfitTime(f"{table.expression!a} does not have five fields. {CRON_HINT}")
    try:
        times = CronSim(expression, datetime.fromtimestamp(at, zone_named(table.zone)))
    except CronSimError as error:
        raise UnfitTime(f"{table.expression!a}: {str(error)[:1].lower()}{str(error)[1:]}. {CRON_HINT}") from None
    # An hour that comes twice counts in its first pass, so in its second one the next time may be over.
    return next((found for one in times if (found := one.timestamp()) > at), None)


def _every_after(table: Timetable, at: float) -> float:
    seconds = interval_s(table.expression)
    return table.start + (max(0, math.floor((at - table.start) / seconds)) + 1) * seconds


def _once_after(table: Timetable, at: float) -> float | None:
    moment = _moment(table)
    return moment if moment > at else None


def _moment(table: Timetable) -> float:
    """Raises UnfitTime."""
    try:
        parsed = datetime.fromisoformat(table.expression)
    except ValueError:
        raise UnfitTime(f"{table.expression[:64]!a} is no date and time. {ONCE_HINT}") from None
    try:
        if parsed.tzinfo:
            return parsed.timestamp()
        local = parsed.replace(tzinfo=zone_named(table.zone))
        back = local.astimezone(UTC).astimezone(local.tzinfo)
        if back.replace(tzinfo=None) != parsed:
            raise UnfitTime(f"There is no {parsed} in {table.zone}: clocks go forward then. {back:%H:%M} is next.")
        return local.timestamp()
    except (OverflowError, OSError):
        raise UnfitTime(f"{table.expression[:64]!a} is beyond all calendars. {ONCE_HINT}") from None


_AFTER: dict[str, Callable[[Timetable, float], float | None]] = {
    CRON: _cron_after,
    EVERY: _every_after,
    ONCE: _once_after,
}

"""`manage_schedules`: the schedules of a model's own person, whose times are resolved before the gate decides.

A time that depends on the clock, such as `in 20m`, becomes a date with an offset, and the time zone is written out: so
the call that a person approves, in words, is the one that runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.core.clock import known_zone
from app.core.profile_spec import TEMPORARY as TEMPORARY_MODE
from app.core.profile_spec import modes_in
from app.schedules.times import KINDS, Timetable, UnfitTime, checked
from app.schedules.words import absolute, in_words
from app.storage.schedules import NEW
from app.storage.store import Store
from app.transcript.run_request import HELPER, SENT_BY, UNASKED, has_mark
from app.transcript.titles import title_of
from parsing import Arguments
from tools.base.rights import OutboundEffect
from tools.tool import Context

ABOUT = (
    "Reminders of the person: messages that begin a run at their times, by the person's clock. once: 17:00, tomorrow "
    "9:30, in 20m or a date; cron: five fields; every: 90m. The answer comes here, unless here is false."
)
ADD = "add"
LOOKS = ("list", "show", "triggers")
HERE, ZONE = "here", "time_zone"
LOCALTIME = Path("/etc/localtime")
TAINTED = "This conversation holds untrusted text, so the schedule can only answer here: leave out here."
TEMPORARY = (
    "This conversation is temporary, so nothing can answer here later. With here: false a new one is begun for it."
)
OF_NO_PERSON = "A run that no person has begun adds no schedules. Say in your answer what should be scheduled."


class Reminders(Struct, frozen=True):
    """Rules of the tool that its routes do not have. `zone` is that of people whose own is not known."""

    zone: str = "UTC"
    clock: Callable[[], float] = time.time

    def normalise(self, arguments: Arguments) -> Arguments:
        given = dict(arguments)
        if given.get("action") != ADD:
            given.pop(ZONE, None)
            return given
        zone, once, message = given.get(ZONE) or self.zone, given.get("once"), given.get("message")
        given |= {ZONE: zone, HERE: given.get(HERE, True)}
        if isinstance(message, str) and not given.get("name"):
            given["name"] = title_of(message)
        if isinstance(once, str) and isinstance(zone, str):
            try:
                given["once"] = absolute(once, zone, self.clock())
            except UnfitTime:
                return given  # which `objection` says
        return given

    def leaves(self, arguments: Arguments, _: Path) -> OutboundEffect | None:
        action = arguments.get("action")
        if action in LOOKS:
            return None
        if action != ADD:
            return OutboundEffect(f"A schedule of yours: {action if isinstance(action, str) else '?'}.")
        try:
            words = in_words(self._timetable(arguments), self.clock())
        except UnfitTime:
            return None  # it is not run
        where = "in this conversation" if arguments.get(HERE) is True else "in a conversation of its own"
        return OutboundEffect(f"{words}. A run begins by itself and answers {where}.", firm=True)

    def loses_nothing(self, arguments: Arguments, _: Path) -> bool:
        return arguments.get("action") in LOOKS

    async def objection(self, arguments: Arguments, context: Context, store: Store) -> str:
        """Return why a call cannot be run; empty if it can. Raises StoreFailed."""
        if arguments.get("action") != ADD:
            return ""
        row = await store.run(context.run)
        if row is None or any(has_mark(row, mark) for mark in (UNASKED, HELPER, SENT_BY)):
            return OF_NO_PERSON
        if arguments.get(HERE) is not True and await store.tainted(context.session):
            return TAINTED
        if arguments.get(HERE) is True and TEMPORARY_MODE in modes_in(row.policy):
            return TEMPORARY
        try:
            self._timetable(arguments)
        except UnfitTime as unfit:
            return str(unfit)
        return ""

    def _timetable(self, arguments: Arguments) -> Timetable:
        """Raises UnfitTime."""
        kinds = [kind for kind in KINDS if arguments.get(kind) is not None]
        if len(kinds) != 1:
            raise UnfitTime("add needs exactly one of cron, every and once.")
        return checked(kinds[0], str(arguments[kinds[0]]), str(arguments.get(ZONE)), 0.0, self.clock())


def in_session(body: Mapping[str, Any], session: str) -> dict[str, Any]:
    """Return the body of POST /schedules for a call in this conversation."""
    place = session if body.get(HERE, True) else NEW
    return {name: value for name, value in body.items() if name != HERE} | {"session": place}


def zone_of_machine() -> str:
    """Return the name of the machine's time zone; UTC if it has none that is known."""
    return known_zone(os.environ.get("TZ") or str(LOCALTIME.resolve()).partition("zoneinfo/")[2]) or "UTC"

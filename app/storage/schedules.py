"""Schedules and triggers, and what became of the times and deliveries that began runs."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter

STARTED, SKIPPED, REFUSED, MISSED = "started", "skipped", "refused", "missed"  # outcomes of occurrences
NEW, ONE, HERE = "new", "one", "here"  # places, where the runs go


class ScheduleRow(Change, frozen=True):
    """A message that begins a run at its times. `policy`: JSON of the run's options.

    `kind` is `cron`, `every` or `once`; `place` is `new` (a session for each run), `one` (of its own) or `here` (the
    conversation `session`, which was there before); `missed` is `run` or `skip`. `next` is the next time without
    jitter, as of `reckoned`; `run` is the last that was begun.
    """

    id: str
    principal: str
    name: str
    kind: str
    expression: str
    zone: str
    text: str
    policy: str
    place: str
    missed: str
    jitter_s: float
    enabled: bool
    created: float
    next: float | None = None
    reckoned: float | None = None
    session: str | None = None
    run: str | None = None


class ScheduleMoved(Change, frozen=True):
    """A time of a schedule was handled. Nothing if the schedule was deleted."""

    id: str
    next: float | None
    reckoned: float | None
    session: str | None
    run: str | None


class ScheduleRemoved(Change, frozen=True):
    id: str


class TriggerRow(Change, frozen=True):
    """A message that begins a run for each delivery. `scheme` is `hmac`, `standard` or `bearer`.

    `secret` is the SHA-256 of a bearer secret; for signatures it is the salt from which the secret is derived.
    """

    id: str
    principal: str
    name: str
    scheme: str
    secret: str
    text: str
    template: str
    policy: str
    place: str
    enabled: bool
    created: float
    session: str | None = None


class TriggerMoved(Change, frozen=True):
    """A trigger's runs go to this session. Nothing if the trigger was deleted."""

    id: str
    session: str | None


class TriggerRemoved(Change, frozen=True):
    id: str


class OccurrenceRow(Change, frozen=True):
    """The outcome of one time of a schedule, or one delivery of a trigger, whose id is `origin`.

    `due` is the time without jitter, None for what was not scheduled. `state` and `ended` are the run's.
    """

    origin: str
    occurrence: str
    at: float
    outcome: str
    reason: str = ""
    due: float | None = None
    run: str | None = None


class OccurrenceOfRun(OccurrenceRow, frozen=True):
    """An occurrence with the state and the end of its run."""

    state: str | None = None
    ended: float | None = None


class OccurrencesTrimmed(Change, frozen=True):
    """Only the newest occurrences of `origin` are kept."""

    origin: str
    kept: int


class ScheduleStore(ChangeWriter, Protocol):
    async def schedules(self) -> list[ScheduleRow]:
        """All of them, oldest first."""

    async def triggers(self, principal: str) -> list[TriggerRow]:
        """Those of a principal, oldest first."""

    async def trigger(self, trigger: str) -> TriggerRow | None: ...

    async def occurrences(self, origin: str) -> list[OccurrenceOfRun]:
        """Those that are kept, newest first."""

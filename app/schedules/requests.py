"""Schedules and triggers as clients send and receive them, and their checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict, model_validator

from app.core.profile_spec import LONGEST_MODEL
from app.core.rules import ApprovalMode
from app.core.settings_fields import DAY_S
from app.core.strict_model import StrictModel
from app.runs.run_options import RunOptions
from app.schedules.signatures import SCHEMES
from app.schedules.templates import UnfitTemplate, placeholders
from app.schedules.times import KINDS, MOST_CHARACTERS, MOST_JITTER_S
from app.storage.schedules import HERE, NEW, OccurrenceOfRun, ScheduleRow, TriggerRow
from app.transcript.titles import one_line

MOST_TEXT = 32_000  # characters of a message or template
LONGEST_NAME = 80
OF_CALLS = ("profile", "model", "tools", "permissions", "approval")
OPTIONS = (*OF_CALLS, "max_rounds", "max_calls", "max_tokens", "time_limit_s")


def _name(text: str) -> str:
    name = one_line(text)
    if not 1 <= len(name) <= LONGEST_NAME:
        raise ValueError(f"has {len(name)} visible characters; send 1 to {LONGEST_NAME}")
    return name


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; send what the model is to do")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds a lone surrogate; send valid text")
    return text


class RunPart(StrictModel):
    """The run that a schedule or trigger begins. Without `tools` it gets those that only read."""

    name: Annotated[str, Field(max_length=1000), AfterValidator(_name)]
    message: Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(_words)]
    profile: str | None = Field(default=None, max_length=64)
    model: str | None = Field(default=None, max_length=LONGEST_MODEL)
    tools: list[str] | None = Field(default=None, max_length=1024)
    permissions: list[Annotated[str, Field(max_length=64)]] | None = Field(default=None, max_length=200)
    approval: Annotated[ApprovalMode, Strict(strict=False)] = ApprovalMode.DENY
    max_rounds: int | None = Field(default=None, ge=1, le=200)
    max_calls: int | None = Field(default=None, ge=1, le=100_000)
    max_tokens: int | None = Field(default=None, ge=1, le=10**12)
    time_limit_s: float | None = Field(default=None, gt=0, le=DAY_S)
    enabled: bool = True

    @property
    def options(self) -> RunOptions:
        return RunOptions(**{name: getattr(self, name) for name in OPTIONS})


class ScheduleRequest(RunPart):
    """The body of POST /schedules, with exactly one of `cron`, `every` and `once`.

    `session` is `new`, `one`, or the id of the conversation that the runs go on in.
    """

    cron: str | None = Field(default=None, max_length=MOST_CHARACTERS)
    every: str | None = Field(default=None, max_length=MOST_CHARACTERS)
    once: str | None = Field(default=None, max_length=MOST_CHARACTERS)
    time_zone: str | None = Field(default=None, max_length=64)
    missed: Literal["run", "skip"] = "run"
    jitter_s: float = Field(default=0, ge=0, le=MOST_JITTER_S, allow_inf_nan=False)
    session: str = Field(default=NEW, min_length=1, max_length=64)

    @model_validator(mode="after")
    def _one_time(self) -> ScheduleRequest:
        if sum(getattr(self, kind) is not None for kind in KINDS) != 1:
            example = '{"cron": "30 7 * * MON-FRI"}, {"every": "90m"} or {"once": "2027-01-31T09:00"}'
            raise ValueError(f"send exactly one of cron, every and once, such as {example}")
        return self

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def expression(self) -> str:
        return str(getattr(self, self.kind))


class TriggerRequest(RunPart):
    """The body of POST /triggers. `template` says what of a delivery's body the model reads; without it, all."""

    scheme: Literal[tuple(SCHEMES)] = "hmac"  # type: ignore[valid-type]
    session: Literal["new", "one"] = "new"
    template: str = Field(default="", max_length=MOST_TEXT)

    @model_validator(mode="after")
    def _readable(self) -> TriggerRequest:
        try:
            placeholders(self.template)
        except UnfitTemplate as unfit:
            raise ValueError(f"template: {unfit}") from None
        return self


def run_fields(row: ScheduleRow | TriggerRow) -> dict[str, Any]:
    """The fields of RunPart that a stored row was made of."""
    policy = {"approval": ApprovalMode.DENY} | json.loads(row.policy)
    return {
        "name": row.name,
        "message": row.text,
        **{name: policy.get(name) for name in OPTIONS},
        "session": row.session if row.place == HERE else row.place,
        "enabled": row.enabled,
    }


def schedule_fields(row: ScheduleRow) -> dict[str, Any]:
    """The fields of ScheduleRequest that a stored row was made of."""
    times = {kind: row.expression if kind == row.kind else None for kind in KINDS}
    return run_fields(row) | times | {"time_zone": row.zone, "missed": row.missed, "jitter_s": row.jitter_s}


def trigger_fields(row: TriggerRow) -> dict[str, Any]:
    """The fields of TriggerRequest that a stored row was made of."""
    return run_fields(row) | {"scheme": row.scheme, "template": row.template}


def changed_fields(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with these changes; another kind of time replaces the one there was."""
    fields = dict(fields)
    if any(changes.get(kind) is not None for kind in KINDS):
        fields |= dict.fromkeys(KINDS)
    return fields | dict(changes)


def occurrence_fields(one: OccurrenceOfRun) -> dict[str, Any]:
    """The outcome of one time or delivery, with how its run stands."""
    run = {"run": one.run, "state": one.state, "ended": one.ended} if one.run else {"run": None}
    return {"at": one.at, "due": one.due, "outcome": one.outcome, "reason": one.reason} | run

"""Replays of runs, and recordings of them as files."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace
from pydantic import BeforeValidator, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app.context.system_text import SystemText, as_fields
from app.core.profile_spec import LONGEST_MODEL, LONGEST_PROFILE
from app.core.strict_model import StrictModel
from app.replay.checking import Outcome, checked, recorded_or_derived
from app.replay.checks import Checks
from app.replay.checks import checked as check_results
from app.replay.recording import Recording, redacted, written
from app.replay.trial import TrialRun
from app.replay.world import options_of
from app.runs.run_options import PINNED, RunOptions
from routes.lanes.recorded_frames import frames_of
from routes.lanes.streams import until_left
from routes.protocol.errors import ASCIIResponse
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of

NEEDS_TRIAL = "{names}: only for a trial, which names another model, profile or system text"


class ReplayRequest(StrictModel):
    """The body of POST /runs/{id}/replay, which may be left out.

    Without `model`, `profile` and `system` the recorded model answers. With one of them the named model is asked, and
    results are those of then where the calls are the same (`match`: `exact`, or `name` for the next one of the tool).
    """

    exact: bool = False
    model: str | None = Field(default=None, min_length=1, max_length=LONGEST_MODEL)
    profile: str | None = Field(default=None, min_length=1, max_length=LONGEST_PROFILE)
    system: Annotated[SystemText | None, BeforeValidator(as_fields)] = None
    match: Literal["exact", "name"] = "exact"
    live: bool = False
    checks: Checks | None = None

    @property
    def is_trial(self) -> bool:
        return bool(self.model or self.profile or self.system)

    @model_validator(mode="after")
    def _sensible(self) -> ReplayRequest:
        given = [name for name in ("live", "checks", "match") if name in self.model_fields_set]
        if given and not self.is_trial:
            raise ValueError(NEEDS_TRIAL.format(names=", ".join(given)))
        return self


async def replay_run(request: Request) -> Response:
    """Replay a run by the code of now, or with another model.

    The recorded model, results and approvals take part: nothing is run. See [replays](#replays).
    """
    services = services_of(request)
    recording = await _recording(services, request)
    body = await read_fields(request, ReplayRequest, services.settings.max_message_bytes, empty=True)
    if body.is_trial:
        return await until_left(request, _trial(services, request, recording, body))
    outcome = await checked(recording, recording.run.id, frames_of, exact=body.exact)
    return ASCIIResponse(outcome_fields(outcome))


async def show_recording(request: Request) -> Response:
    """The recording of a run, as a test of it.

    A file for `dragoman replay`: see [replays](#replays). A run that was not recorded has what its log says.
    """
    services = services_of(request)
    recording = await _recording(services, request)
    text = await asyncio.to_thread(written, recording)
    name = f'attachment; filename="{recording.run.id}.json"'
    return Response(text, media_type="application/json", headers={"Content-Disposition": name})


async def _recording(services: Services, request: Request) -> Recording:
    row = await services.runs.run(request.path_params["run"], current_principal(request))
    recording = await recorded_or_derived(services.store, row, services.settings)
    return await asyncio.to_thread(redacted, recording, services.redactor)


async def _trial(services: Services, request: Request, recording: Recording, body: ReplayRequest) -> Response:
    principal = current_principal(request)
    async with TrialRun(services.factory, principal, recording, body.match, body.live) as trial:
        result = await trial.go(options_for(recording, body))
        if body.checks:
            checks = await check_results(body.checks, result.now.text, trial.folder, trial.context, trial.refusal)
            result = replace(result, checks=checks)
    return ASCIIResponse(msgspec.to_builtins(result))


def options_for(recording: Recording, body: ReplayRequest) -> RunOptions:
    """The options of the run with those of the trial in their place, under the profiles of now."""
    options = options_of({name: one for name, one in recording.run.policy.items() if name != PINNED})
    changed = {"model": body.model, "profile": body.profile, "system": body.system}
    return options.model_copy(update={name: value for name, value in changed.items() if value})


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    differences = [one.fields for one in outcome.differences]
    fields = {"run": outcome.name, "state": outcome.state, "differences": differences, "missing": outcome.missing}
    return fields | ({"reason": outcome.reason} if outcome.reason else {})


REPLAY = {
    "run": "text",
    "state?": "text",
    "differences?": ["object"],
    "missing?": ["text"],
    "then?": "object",
    "now?": "object",
}
ROUTES = tagged(
    "Runs",
    Route(
        "POST /runs/{run}/replay",
        replay_run,
        rights="owner",
        answer=REPLAY,
        errors=(409,),
        body=Body(ReplayRequest, {"model": "local/qwen"}, required=False),
    ),
    Route("GET /runs/{run}/recording", show_recording, rights="owner", media=("application/json",), errors=(409,)),
)

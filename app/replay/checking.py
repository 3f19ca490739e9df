"""Replays of many runs, and what came of each: the same, otherwise, or not to be replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.config.settings import Settings
from app.policy.current_rights import principal_named
from app.replay.derived import derived
from app.replay.differences import Difference, differences
from app.replay.events import Event
from app.replay.loading import recording_of, stored_run
from app.replay.playing import Played, Replay
from app.replay.recording import Recording, UnusableRecording
from app.runs.recording import parts
from app.runs.recording.world import settings_in_force
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.storage.store import Store
from app.transcript.run_request import NotFound
from tools.base.rights import Role

FramesOf = Callable[[Mapping[str, Any], str, str, float, Sequence[Event]], list[str]]
"""Return the digests of a lane's frames: the lane's part of the policy, run, session, its time, the events."""
SAME, OTHERWISE, UNUSABLE = "same", "otherwise", "unusable"
UNKNOWN = "It makes a call whose result was not recorded ({call}). Record a new run."


class Outcome(Struct, omit_defaults=True):
    """The outcome of one replay; `reason` says why there was none. `missing` is what could not be compared."""

    name: str
    state: str
    differences: list[Difference] = []
    missing: list[str] = []
    reason: str = ""


async def recorded_or_derived(store: Store, row: RunRow, settings: Settings) -> Recording:
    """Return the recording of a stored run, else what its log says. Raises UnusableRecording, StoreFailed."""
    stored = await stored_run(store, row)
    recording = recording_of(stored)
    if recording.begin is not None:
        return recording
    return derived(stored, settings, await _principal(store, row.principal))


async def _principal(store: Store, name: str) -> Principal:
    """Return the principal with its rights of now; one that is gone is taken for a user."""
    try:
        return await principal_named(store, name)
    except NotFound:
        return Principal(name, Role.USER)


async def checked(
    recording: Recording, name: str, frames_of: FramesOf, *, exact: bool = False, settings: Settings | None = None
) -> Outcome:
    """Replay a recording and compare it. With `settings` these hold in place of the recorded ones."""
    if settings and recording.begin:
        recording.begin.settings = settings_in_force(settings)
    try:
        played = await Replay(recording, exact=exact).play()
    except UnusableRecording as unusable:
        return Outcome(name, UNUSABLE, reason=str(unusable))
    found = differences(recording, played, frames_now(recording, played, frames_of))
    return Outcome(name, OTHERWISE if found else SAME, found, recording.missing)


def frames_now(recording: Recording, played: Played, frames_of: FramesOf) -> list[str] | None:
    run = recording.run
    if run.lane is None or not (recording.frames and recording.is_whole):
        return None
    return frames_of(run.lane, run.id, run.session, run.created, played.events)


async def checked_row(
    store: Store,
    row: RunRow,
    settings: Settings,
    frames_of: FramesOf,
    *,
    exact: bool = False,
    in_current_settings: bool = False,
) -> Outcome:
    """Replay a stored run and compare it. Raises StoreFailed."""
    try:
        recording = await recorded_or_derived(store, row, settings)
    except UnusableRecording as unusable:
        return Outcome(row.id, UNUSABLE, reason=str(unusable))
    current = settings if in_current_settings else None
    return await checked(recording, row.id, frames_of, exact=exact, settings=current)


def accepted(recording: Recording, played: Played, frames: list[str] | None) -> Recording:
    """Return the recording with what the run does now as what it is to do. Raises UnusableRecording."""
    if played.unknown:
        raise UnusableRecording(UNKNOWN.format(call=played.unknown))
    changed = replace(recording, events=played.events, requests=[])
    changed.frames = recording.frames if frames is None else frames
    left = {side: deque(one for one in recording.requests if one.side is side) for side in (False, True)}
    for now in played.requests:
        part = now
        if left[now.side]:
            then = left[now.side].popleft()
            part = replace(then, held=now.held, since=_since(now.since, [then.since]))
        changed.requests.append(part)
    rest = [*(one.since for those in left.values() for one in those), recording.rest]
    changed.rest = _since(played.rest, rest)
    return changed


def _since(now: parts.Since, then: Sequence[parts.Since]) -> parts.Since:
    """Return what is decided now, with the results, grants and permissions of then."""
    grants = [one for since in then for one in since.grants]
    results = dict(item for since in then for item in since.results.items())
    permissions = [one for since in then for one in since.permissions]
    return replace(now, grants=grants, permissions=permissions, results=results)

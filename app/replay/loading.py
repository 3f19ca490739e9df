"""Recordings of stored runs: the log and the history, with what was recorded beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

import msgspec
from msgspec import Struct

from app.checkpoints.scratch import FORK
from app.core import events
from app.core.messages import Message, as_json
from app.policy.guards import CANARY, JUDGE, SCREEN, UNSCREENED
from app.replay.events import Event
from app.replay.recording import NO_EVENTS, AnswerPart, Recording, ResultPart, RunPart, SteeringPart, UnusableRecording
from app.runs.recording import parts
from app.runs.recording.world import our_version
from app.runs.recovery.history import begins_in
from app.runs.recovery.left_off import RESUMED
from app.runs.tool_executor import CHANGED
from app.runs.tool_results import MOST_KEPT
from app.storage.approvals import GrantRow
from app.storage.runs import ALL, RecordingRow, RunRow
from app.storage.store import Store
from app.transcript.conversation import STOPPED
from tools.base.permit import canonical

# Events between the start and the end of a call that are the run's own: what is not compared, and the end of the run.
OWN = frozenset(
    {events.Usage.type, events.ToolProgress.type, events.ToolStarted.type, events.ToolFinished.type}
    | {events.TextDelta.type, events.RunFinished.type, events.RunFailed.type}
)
ASKS = frozenset({"ask_model"})  # tools that query a model: the usage of that came with the call
OF_GUARDS = frozenset({CANARY, JUDGE, SCREEN})
CUT = "The recording was cut at its limit: later requests are not compared."
WENT_ON = "The run went on after a restart of the server: what followed that is not replayed."
NOT_REPEATED = {
    FORK: "The run goes on from an event of another run. Replay that one.",
    "document_edited": "A person changed documents while the run was under way, which a replay cannot repeat.",
}
STILL_ACTIVE = "Run {run} has not ended. Replay it when it has, or cancel it."


class Stored(Struct):
    """A run as the store has it. `own` are its messages, `whole` the whole results of its calls, by their ids."""

    row: RunRow
    events: list[Event]
    history: list[Message]
    own: list[Message]
    whole: dict[str, str]
    recorded: list[RecordingRow]
    grants: list[GrantRow]  # of the session, until the run ended


async def stored_run(store: Store, row: RunRow) -> Stored:
    """Read a run. Raises StoreFailed, and UnusableRecording for one that has not ended or has no log."""
    if row.ended is None:
        raise UnusableRecording(STILL_ACTIVE.format(run=row.id))
    logged = [json.loads(event.data) for event in await store.events(row.id, 0, ALL)]
    if not logged:
        raise UnusableRecording(NO_EVENTS)
    if why := next(filter(None, map(NOT_REPEATED.get, _notices(logged))), None):
        raise UnusableRecording(why)
    messages = await store.messages_until(row.session, row.id)
    begins = await begins_in(store, row, messages)
    whole = dict[str, str]()
    for call in (event["call"] for event in logged if event["type"] == events.ToolFinished.type):
        if kept := await store.result(row.session, call, 0, MOST_KEPT):
            whole[call] = kept.text
    grants = [one for one in await store.grants(row.session) if one.created <= row.ended]
    recorded = await store.recording(row.id)
    return Stored(
        row=row,
        events=logged,
        history=messages[:begins],
        own=messages[begins:],
        whole=whole,
        recorded=recorded,
        grants=grants,
    )


def _notices(logged: Sequence[Event]) -> Iterator[str]:
    """Yield the codes of the notices after the beginning of the first round."""
    begun = dropwhile(lambda one: one["type"] != events.RoundStarted.type, logged)
    return (one["code"] for one in begun if one["type"] == events.Notice.type)


def recording_of(stored: Stored) -> Recording:
    """Return the recording of a run that was recorded. Raises UnusableRecording."""
    try:
        recording = log_of(stored)
        for row in _until_restart(stored.recorded) if WENT_ON in recording.missing else stored.recorded:
            _add(recording, row)
        if recording.begin and recording.begin.relay is not None:
            recording.said = list(map(_plain, _sent(stored.own)))
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise UnusableRecording(f"The recording of run {stored.row.id} cannot be used: {error}") from error
    return recording


def _until_restart(recorded: Sequence[RecordingRow]) -> Sequence[RecordingRow]:
    """Return the parts before the run began for a second time, in another server."""
    begins = [at for at, row in enumerate(recorded) if row.kind == parts.BEGIN]
    return recorded[: begins[1]] if len(begins) > 1 else recorded


def _add(recording: Recording, row: RecordingRow) -> None:
    match row.kind:
        case parts.BEGIN if recording.begin is None:
            recording.begin = parts.unpacked(row, parts.Begin)
            recording.made_by = recording.begin.made_by
        case parts.HISTORY:
            recording.compacted = parts.unpacked(row, parts.HistoryPart).state
        case parts.REQUEST:
            recording.requests.append(parts.unpacked(row, parts.RequestPart))
        case parts.END:
            recording.rest = parts.unpacked(row, parts.Since)
        case parts.FRAMES:
            recording.frames = parts.unpacked(row, list[str])
        case parts.CUT:
            recording.missing.append(CUT)
            recording.is_whole = False


def log_of(stored: Stored) -> Recording:
    """Return what the log and the history say of a run."""
    row, logged = stored.row, _up_to_restart(stored.events)
    policy: dict[str, Any] = json.loads(row.policy)
    lane = policy.pop(parts.LANE, None)
    run = RunPart(
        row.id,
        session=row.session,
        principal=row.principal,
        model=row.model,
        state=row.state,
        created=row.created,
        policy=policy,
        lane=lane,
        ended=row.ended,
    )
    is_whole = len(logged) == len(stored.events)
    results, inside = _results(logged, stored)
    answers = _answers(logged, inside)
    for answer in (one for one in answers if one.arguments is not None):
        note = CHANGED.format(by=answer.by, edited=canonical(answer.arguments or {}))
        for result in (one for one in results if one.call == answer.call):
            result.text = result.text.removeprefix(note)
    return Recording(
        made_by=our_version(),
        run=run,
        history=list(map(_plain, stored.history)),
        said=list(map(_plain, _said(stored.own))),
        results=results,
        answers=answers,
        steering=list(_steering(logged, stored.own[len(_said(stored.own)) :])),
        events=[event for event in logged if event["type"] != events.ToolProgress.type],
        missing=[] if is_whole else [WENT_ON],
        is_whole=is_whole,
    )


def _plain(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(json.dumps(as_json(message)))
    return fields


def _up_to_restart(logged: list[Event]) -> list[Event]:
    at = next((at for at, one in enumerate(logged) if one["type"] == "notice" and one["code"] == RESUMED), None)
    return logged if at is None else logged[:at]


def _said(own: Sequence[Message]) -> Sequence[Message]:
    """Return the messages that the run began with."""
    first = next((at for at, one in enumerate(own) if one.role == "assistant"), len(own))
    return own[:first]


def _sent(own: Sequence[Message]) -> Sequence[Message]:
    """Return the messages that a client has sent with a relay, replies of before among them."""
    last = max((at for at, one in enumerate(own) if one.role != "assistant"), default=-1)
    return own[: last + 1]


def _results(logged: Sequence[Event], stored: Stored) -> tuple[list[ResultPart], set[int]]:
    """Return the results of calls, and the places in the log of what came with them."""
    answers = {one.call: one for one in stored.own if one.role == "tool"}
    open_calls, found, inside = dict[str, list[Event]](), list[ResultPart](), set[int]()
    names = {event["call"]: event["name"] for event in logged if event["type"] == events.ToolStarted.type}
    for at, event in enumerate(logged):
        call = event.get("call")
        if event["type"] == events.ToolStarted.type:
            open_calls[event["call"]] = []
        elif event["type"] == events.ToolFinished.type:
            before = open_calls.pop(event["call"], [])
            if not event["text"].startswith(STOPPED):
                found.append(_result(event, before, answers.get(event["call"]), stored.whole))
            else:
                found.append(_unfinished(event["call"], event["name"], before))
        elif open_calls and event["type"] == events.Usage.type and ASKS & {names[one] for one in open_calls}:
            next(those for one, those in open_calls.items() if names[one] in ASKS).append(event)
        elif open_calls and event["type"] not in OWN and event.get("code") not in OF_GUARDS:
            inside.add(at)
            open_calls[call if call in open_calls else next(reversed(open_calls))].append(event)
    return [*found, *(_unfinished(call, names[call], before) for call, before in open_calls.items())], inside


def _unfinished(call: str, name: str, before: list[Event]) -> ResultPart:
    return ResultPart(call, name, ok=False, text="", before=before, stopped=True)


def _result(event: Event, before: list[Event], answer: Message | None, whole: Mapping[str, str]) -> ResultPart:
    text = whole.get(event["call"], event["text"]).removeprefix(f"{UNSCREENED}\n")
    return ResultPart(
        event["call"],
        event["name"],
        ok=event["ok"],
        text=text,
        exit_code=event.get("exit_code"),
        untrusted=answer is not None and answer.untrusted,
        labels=list(answer.labels) if answer else [],
        before=before,
    )


def _answers(logged: Sequence[Event], inside: set[int]) -> list[AnswerPart]:
    resolved = (one for at, one in enumerate(logged) if one["type"] == "approval.resolved" and at not in inside)
    fields = (({name: value for name, value in one.items() if name != "type"}) for one in resolved)
    return [msgspec.convert(one, AnswerPart) for one in fields]


def _steering(logged: Iterable[Event], own: Sequence[Message]) -> Iterator[SteeringPart]:
    number = requests = 0
    sent = [one for one in own if one.role == "user"]
    for event in logged:
        match event["type"]:
            case events.RoundStarted.type:
                number, requests = event["round"], 0
            case events.Usage.type:
                requests += 1
            case events.MessageAdded.type if number:
                at = next((at for at, one in enumerate(sent) if one.text == event["text"]), None)
                message = _plain(sent.pop(at)) if at is not None else None
                yield SteeringPart(number, event["text"], max(1, requests), message)

"""Events of a log as they are compared: without what chance, clocks and the disk decide."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from app.core import events
from app.core.document_events import DocumentDelta
from app.policy.guards import CANARY
from app.provenance.run_marks import KNOWN
from app.runs.recovery.left_off import SUSPENDED
from app.storage.runs import EventRow
from app.transcript.conversation import STOPPED

Event = dict[str, Any]
DELTAS = frozenset({events.TextDelta.type, events.ReasoningDelta.type, events.ToolDelta.type, DocumentDelta.type})
# Progress is chance; labels, files and apps are given; a document of code blocks repeats the text, in random pieces.
LEFT_OUT = frozenset(
    {
        events.ToolProgress.type,
        events.ToolTask.type,
        events.LabelsAdded.type,
        events.DocumentUpdated.type,
        events.ToolApp.type,
    }
)
# Fields that depend on times, on the machine, or on what was used before.
VOLATILE: Mapping[str, tuple[str, ...]] = {
    events.RunStarted.type: ("limits", "profiles"),
    events.ToolFinished.type: ("duration_s", "lines", "bytes", "advice", "structured"),
    events.ApprovalRequired.type: ("expires_at", "origins", "proposals"),  # they decide nothing; earlier logs have none
    events.ToolRejected.type: ("code", "advice"),  # the reason says them; earlier logs have none
    events.Notice.type: ("retry_at", "wanted", "reason", "attempt", "attempts"),  # which the failover adds
    events.Usage.type: (
        "timing", "total_prompt_tokens", "total_completion_tokens", "total_cost",
        "prompt_bytes", "prefix_bytes", "prefix_break",  # of requests to a server: a replay makes none
    ),
}  # fmt: skip
NOT_FOR_LANES = frozenset({"timing", "expires_at", "retry_at", "duration_s", "origins"})
# Notices of what happened around a run, and of estimates of a server's state.
AROUND = frozenset({"queued", "undone", "recalled", "documents", "no_checkpoint", "files", KNOWN, SUSPENDED})


def compared(logged: Iterable[Event], *, tokens: bool) -> list[Event]:
    """Return the events in the form that two logs of the same run share. With `tokens` measured tokens count, too."""
    found, leaks = list[Event](), list[Event]()
    for event in _kept(logged):
        is_leak = event["type"] == events.Notice.type and event["code"] == CANARY  # it comes between any two pieces
        (leaks if is_leak else found).append(_without_volatile(event, tokens=tokens))
    return _in_order_of_calls([*_with_joined_deltas(found), *leaks])


def rows_for_lanes(run: str, logged: Iterable[Event]) -> list[EventRow]:
    """Return a log in the form that frames are compared of: deltas joined, without times, estimates and chance."""
    found = _with_joined_deltas(map(_for_lanes, _kept(logged)))
    return [EventRow(run, seq, one["type"], json.dumps(one)) for seq, one in enumerate(found, 1)]


def _for_lanes(event: Event) -> Event:
    one = {name: value for name, value in event.items() if name not in NOT_FOR_LANES}
    if "duration_s" in event:
        one["duration_s"] = 0.0
    if event["type"] == events.Usage.type:
        one = _only_measured(one)
    if event["type"] == events.RunFinished.type:
        usage = {name: value for name, value in event["usage"].items() if name != "timing"}
        one["usage"] = _only_measured(usage)
    return one


def _with_joined_deltas(those: Iterable[Event]) -> list[Event]:
    found = list[Event]()
    for one in those:
        if found and _continues(found[-1], one):
            found[-1] = found[-1] | {"text": found[-1]["text"] + one["text"]}
        else:
            found.append(one)
    return found


def _only_measured(usage: Event) -> Event:
    """Return usage without tokens that were estimated: they depend on what stood where a secret stands."""
    if usage.get("measured"):
        return usage
    return {name: 0 if name.endswith("_tokens") else value for name, value in usage.items()}


def _kept(logged: Iterable[Event]) -> list[Event]:
    """Return the events that count from the run's start on: what precedes it is about its turn."""
    every = list(logged)
    at = next((at for at, one in enumerate(every) if one["type"] == events.RunStarted.type), 0)
    return [one for one in every[at:] if not _is_left_out(one)]


def _is_left_out(event: Event) -> bool:
    kind = event["type"]
    if kind == events.Notice.type:
        return event["code"] in AROUND
    return kind in LEFT_OUT or (kind == events.ToolFinished.type and str(event["text"]).startswith(STOPPED))


def _without_volatile(event: Event, *, tokens: bool) -> Event:
    kind = event["type"]
    one = {name: value for name, value in event.items() if name not in VOLATILE.get(kind, ())}
    if kind == events.Usage.type and not (tokens and one.get("measured")):
        return {"type": kind}
    if kind == events.RunFinished.type:
        used = one.pop("usage", {})
        if tokens and used.get("measured"):
            one["usage"] = {name: used[name] for name in ("prompt_tokens", "completion_tokens") if name in used}
    return one


def _continues(last: Event, event: Event) -> bool:
    kind = event["type"]
    if kind not in DELTAS or kind != last["type"] or event.get("name") is not None:
        return False
    return all(event.get(name) == last.get(name) for name in ("call", "document"))


def _in_order_of_calls(found: list[Event]) -> list[Event]:
    """Return the events of calls that ran side by side call by call: in which order they came is chance."""
    out, group = list[Event](), dict[str, list[Event]]()
    for event in found:
        call = event.get("call")
        if call is not None and event["type"] not in DELTAS:
            group.setdefault(str(call), []).append(event)
            continue
        out += (one for those in group.values() for one in those)
        group.clear()
        out.append(event)
    return [*out, *(one for those in group.values() for one in those)]

"""The calls of a recorded run, as its log has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from app.core.events import ApprovalRequired, ToolRejected, ToolStarted
from app.policy.reapproval import given_up
from app.replay.events import Event
from app.replay.recording import Recording, ResultPart
from app.replay.tools import key_of


def events_of(recording: Recording, kind: str) -> Iterator[Event]:
    return (event for event in recording.events if event["type"] == kind)


def calls_of(recording: Recording, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the calls in events of this type, each with its name and arguments."""
    return ((event["call"], key_of(event["name"], event["arguments"])) for event in events_of(recording, kind))


def stopped_calls(recording: Recording, results: Sequence[ResultPart]) -> set[str]:
    """Return the calls that were stopped while they ran."""
    ended = {one.call for one in results if not one.stopped}
    return {call for call, _ in calls_of(recording, ToolStarted.type) if call not in ended}


def changes_of_targets(recording: Recording) -> Counter[str]:
    """Return how often the targets of calls changed while a person decided: so often they were asked for again."""
    asked = list(calls_of(recording, ApprovalRequired.type))
    rejected = events_of(recording, ToolRejected.type)
    last = {one["call"] for one in rejected if one["reason"] == given_up(str(one.get("name")))}
    return Counter([key for call, key in asked if "~" in call or call in last])


def calls_in(logged: Iterable[Event]) -> Iterator[str]:
    """Yield the ids of calls in the order in which they came."""
    calls = (event.get("call") for event in logged if event["type"].startswith("tool."))
    yield from dict.fromkeys(call for call in calls if isinstance(call, str))

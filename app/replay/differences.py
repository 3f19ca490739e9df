"""The differences between a run and its replay, in words a person reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

import msgspec
from msgspec import Struct

from app.replay.events import Event, compared
from app.replay.playing import Played
from app.replay.recording import Recording
from app.replay.words import short
from app.runs.recording.parts import Decided, Held, RequestPart

MOST = 40  # differences of a run that are named
LONGEST = 160  # characters of a value in words
NEEDS_RECORDING = frozenset(
    {"usage", "document.started", "document.delta", "document.finished"}
    | {"context.trimmed", "context.summarised", "tool.delta", "text.reclassified"}
)
OF_SERVERS = frozenset({"retry", "fallback", "waiting", "context", "repaired", "model_down", "judge", "screen", "cut"})
MOST_COMPARED = 2000  # entries, one with each
Pair = tuple[int | None, int | None]
"""The places of two entries, one in each list, or None where it has none."""
Kind = Literal["event", "decision", "request", "frame"]


class Difference(Struct, frozen=True):
    """One difference: its kind, where it is, and what was then and is now; an empty text is nothing."""

    kind: Kind
    where: str
    then: str
    now: str

    @property
    def words(self) -> str:
        if not self.then:
            return f"{self.where}: now there is {self.now}, which was not there"
        if not self.now:
            return f"{self.where}: {self.then} is not there any more"
        return f"{self.where}: was {self.then}, is {self.now}"

    @property
    def fields(self) -> dict[str, Any]:
        """As JSON has it, with the words."""
        return {**msgspec.to_builtins(self), "words": self.words}


def differences(recording: Recording, played: Played, frames: Sequence[str] | None = None) -> list[Difference]:
    """Return the differences, decisions first: as a rule they explain the others. At most MOST of them."""
    found = [*_decisions(recording, played), *_events(recording, played), *_requests(recording, played)]
    if frames is not None and recording.frames and recording.frames != frames:
        found.append(_frame(recording, frames))
    if played.unknown:
        end = "the replay ends there, because it is not known what it would have answered"
        found.append(Difference("event", "A call that was not made then", "", f"{_short(played.unknown)} ({end})"))
    return found[:MOST]


def _decisions(recording: Recording, played: Played) -> Iterator[Difference]:
    then, now = recording.decided, played.decided
    if not recording.is_recorded:
        return
    pairs = _paired([_decision_key(one) for one in then], [_decision_key(one) for one in now])
    for old, new in pairs if recording.is_whole else _without_rest(pairs, len(then), len(now)):
        before, after = (then[old] if old is not None else None), (now[new] if new is not None else None)
        one = before or after
        if one:
            yield Difference("decision", f"Decision on {one.name} ({one.call})", _decision(before), _decision(after))


def _decision_key(one: Decided) -> str:
    return json.dumps([one.call, one.name, one.decision, one.by])


def _decision(one: Decided | None) -> str:
    if one is None:
        return ""
    by = f" by {one.by}" if one.by else ""
    return f"{one.decision}{by}{f' ({_short(one.why)})' if one.why else ''}"


def _events(recording: Recording, played: Played) -> Iterator[Difference]:
    tokens = recording.is_recorded
    then = [one for one in compared(recording.events, tokens=tokens) if _counts(one, recording)]
    now = [one for one in compared(played.events, tokens=tokens) if _counts(one, recording)]
    pairs = _paired([*map(_key, then)], [*map(_key, now)])
    for old, new in pairs if recording.is_whole else _without_rest(pairs, len(then), len(now)):
        before, after = (then[old] if old is not None else None), (now[new] if new is not None else None)
        yield _event(before, after)


def _counts(event: Event, recording: Recording) -> bool:
    """Return False for what cannot be the same without a recording."""
    if recording.is_recorded:
        return True
    return event["type"] not in NEEDS_RECORDING and event.get("code") not in OF_SERVERS


def _key(event: Event) -> str:
    return json.dumps(event, sort_keys=True)


def _event(before: Event | None, after: Event | None) -> Difference:
    one = before or after or {}
    of = f" of {one['call']}" if "call" in one else ""
    where = f"{one.get('type', 'event')}{of}"
    if before and after and before["type"] == after["type"]:
        changed = [name for name in (before | after) if before.get(name) != after.get(name)]
        texts = [_parting(str(before.get(name, "")), str(after.get(name, ""))) for name in changed]
        where = f"{where}, {', '.join(changed)}"
        return Difference("event", where, ", ".join(one for one, _ in texts), ", ".join(one for _, one in texts))
    return Difference("event", where if not (before and after) else "The event", _shown(before), _shown(after))


def _shown(event: Event | None) -> str:
    if event is None:
        return ""
    fields = ", ".join(f"{name} {_short(json.dumps(one))}" for name, one in event.items() if name != "type")
    return f"{event['type']}{f' with {fields}' if fields else ''}"


def _parting(before: str, after: str) -> tuple[str, str]:
    """Return both texts from shortly before the place where they part."""
    same = next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), None)
    at = max(0, (min(len(before), len(after)) if same is None else same) - 30)
    lead = "..." if at else ""
    return f"`{_short(lead + before[at:])}`", f"`{_short(lead + after[at:])}`"


def _requests(recording: Recording, played: Played) -> Iterator[Difference]:
    if not recording.is_recorded:
        return
    then, now = ([one for one in those if not one.side] for those in (recording.requests, played.requests))
    if len(then) != len(now) and recording.is_whole:
        yield Difference("request", "The requests to the model", f"{len(then)}", f"{len(now)}")
    before, after = list[tuple[str, int, str]](), list[tuple[str, int, str]]()
    for number, (old, new) in enumerate(zip(then, now, strict=False), 1):
        before, after = _held(before, old.held), _held(after, new.held)
        yield from _request(number, old, new, before, after)


def _held(before: list[tuple[str, int, str]], held: Held) -> list[tuple[str, int, str]]:
    return [*before[: held.same], *held.messages]


def _request(
    number: int, old: RequestPart, new: RequestPart, then: list[tuple[str, int, str]], now: list[tuple[str, int, str]]
) -> Iterator[Difference]:
    where = f"Request {number}"
    if old.held.tools != new.held.tools:
        yield Difference("request", f"{where}, tools", _names(old.held), _names(new.held))
    if old.held.most != new.held.most:
        yield Difference("request", f"{where}, limit of tokens", str(old.held.most), str(new.held.most))
    if len(then) != len(now):
        yield Difference("request", where, f"{len(then)} messages", f"{len(now)} messages")
    elif other := next((at for at, pair in enumerate(zip(then, now, strict=True)) if pair[0] != pair[1]), None):
        (role, size, _), (its, now_size, _) = then[other], now[other]
        place = f"{where}, message {other + 1} of {len(then)}"
        yield Difference("request", place, f"{role}, {size:,} characters", f"{its}, {now_size:,} characters")


def _names(held: Held) -> str:
    return "those of before" if held.tools is None else _short(", ".join(held.tools) or "none")


def _frame(recording: Recording, frames: Sequence[str]) -> Difference:
    lane = (recording.run.lane or {}).get("name", "the lane")
    pairs = enumerate(zip(recording.frames, frames, strict=False))
    at = next((at for at, (old, new) in pairs if old != new), min(len(recording.frames), len(frames)))
    return Difference(
        "frame",
        f"Frames of {lane}, from event {at + 1} on",
        f"{len(recording.frames)} events with digest {_at(recording.frames, at)}",
        f"{len(frames)} events with digest {_at(frames, at)}",
    )


def _at(frames: Sequence[str], at: int) -> str:
    return frames[at] if at < len(frames) else "none"


def _paired(then: Sequence[str], now: Sequence[str]) -> Iterator[Pair]:
    """Yield the places that differ, side by side where one replaces the other."""
    if then == now:
        return
    start = next((at for at, (one, other) in enumerate(zip(then, now, strict=False)) if one != other), None)
    start = min(len(then), len(now)) if start is None else start
    if max(len(then), len(now)) - start > MOST_COMPARED:  # far apart: a matcher would take long
        yield from zip(range(start, len(then)), range(start, len(now)), strict=False)
        return
    for kind, a, b, c, d in SequenceMatcher(None, then[start:], now[start:], autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        old, new = [*range(a + start, b + start)], [*range(c + start, d + start)]
        for at in range(max(len(old), len(new))):
            yield (old[at] if at < len(old) else None), (new[at] if at < len(new) else None)


def _without_rest(pairs: Iterable[Pair], then: int, now: int) -> list[Pair]:
    """Leave out what only one of both has at its end, where it is not known how the other goes on."""
    kept = list(pairs)
    while kept and kept[-1] in ((then - 1, None), (None, now - 1)):
        old, _ = kept.pop()
        then, now = (then - 1, now) if old is not None else (then, now - 1)
    return kept


def _short(text: str) -> str:
    return short(text, LONGEST)

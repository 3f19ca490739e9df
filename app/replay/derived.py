"""Recordings of runs that were not recorded: what their log and their history say of the rest.

The model's words are those of the history, markup included, in one piece; its native calls are as they were read. The
settings are those of now, and the definitions of servers' tools are not known. What cannot be compared so is said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.config.settings import Settings
from app.core import events
from app.core.messages import AskedCall, Message
from app.core.provider import CallForm
from app.models.wire.native_calls import NATIVE
from app.policy.grants import grant_of
from app.policy.guards import CANARY
from app.provenance.quotation import IN_TEXT
from app.replay.calls import calls_in
from app.replay.events import Event
from app.replay.loading import Stored, log_of
from app.replay.playing import STOPS
from app.replay.recording import Recording, UnusableRecording
from app.runs.discipline.reminders import BEGINS, CONTINUED, GOES_ON, SWITCHES
from app.runs.recording import parts
from app.runs.recording.values import grant_fields
from app.runs.recording.world import OWN, principal_part, settings_in_force
from app.storage.principals import Principal
from parsing import parse
from parsing.dialects import FENCED
from tools.base.rights import Risk, Role
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.sandbox import WAYS_OUT

MISSING = (
    "The model's stream was not recorded: its replies are those of the history, each in one piece.",
    "Requests, trimming, summaries, token counts and the decisions' reasons are not compared.",
    "The settings are those of now, but for the limits and the mode that the log names.",
)
NO_START = "The run ended before it began: there is nothing to replay."
NEEDS_RECORDING = "The run asked its model beside its rounds (a judge, a summary, a check): only a recording has that."
NEEDS_CODE = "The model repeated the code of its prompt, which was blocked: only a recording has that place."
OF_REPLIES = frozenset(
    {events.TextDelta.type, events.ReasoningDelta.type, events.ToolDelta.type, events.ToolRejected.type}
)
WINDOW = 10**9  # tokens: nothing is trimmed
OFF: dict[str, Any] = {"judge_output": False, "screen_results": False, "canary": False, "verify": False}
OFF |= {"utility": None, "summarise_at": 1}
OPTIONS = ("max_rounds", "max_calls", "max_tokens", "time_limit_s", "approval")
ANYTHING = {"type": "object", "properties": {}}


def derived(stored: Stored, settings: Settings, principal: Principal) -> Recording:
    """Return what a run was made of, as far as its log says it. Raises UnusableRecording."""
    recording = log_of(stored)
    started = next((one for one in recording.events if one["type"] == events.RunStarted.type), None)
    if started is None:
        raise UnusableRecording(NO_START)
    rounds = _rounds(recording.events)
    if any(one.get("code") == CANARY for one in recording.events):
        raise UnusableRecording(NEEDS_CODE)
    if any(sum(one["type"] == events.Usage.type for one in those) > 1 for those in rounds):
        raise UnusableRecording(NEEDS_RECORDING)
    replies = [message for message in stored.own if message.role == "assistant"]
    calls = [call for reply in replies for call in reply.calls]
    recording.begin = _begin(started, calls, settings, principal, recording)
    rejected = {one["call"]: one["reason"] for one in recording.events if one["type"] == events.ToolRejected.type}
    recording.requests = list(_requests(rounds, replies, rejected, recording.run.state))
    if rounds and not recording.is_whole and not any(one["type"] == events.Usage.type for one in rounds[-1]):
        recording.requests.pop()  # its answer never came to its end
    given = [grant_fields(grant_of(row)) for row in stored.grants]
    answered = [given for one in recording.answers if one.scope == "session"]
    recording.rest = parts.Since(ids=list(calls_in(recording.events)), grants=answered)
    recording.begin.grants = [one for one in given if one.get("created", 0.0) < stored.row.created]
    options = {name: started["limits"][name] for name in OPTIONS if name in started["limits"]}
    recording.run.policy = recording.run.policy | options
    recording.missing += MISSING
    recording.is_recorded = False
    return recording


def _begin(
    started: Event, calls: Sequence[AskedCall], settings: Settings, principal: Principal, recording: Recording
) -> parts.Begin:
    names, sandbox = list(started["tools"]), str(started["limits"].get("sandbox", "off"))
    asked = {event["name"] for event in recording.events if event["type"] == events.ApprovalRequired.type}
    native = any(call.dialect == NATIVE for call in calls)
    fenced = any(call.dialect == FENCED.name for call in calls)
    form = CallForm.FENCED if fenced else CallForm.NATIVE if native else CallForm.TAGGED
    return parts.Begin(
        made_by=recording.made_by,
        principal=principal_part(principal),
        settings=settings_in_force(settings) | OFF,
        workspace=str(settings.workspace),
        sandbox=sandbox,
        boxed=sandbox == Bubblewrap.level and not settings.sandbox_network,
        networked=settings.sandbox_network,
        way_out=WAYS_OUT.get(sandbox, ""),
        model=parts.ModelPart(started["model"], native_tools=native, call_form=form),
        tools=[_unknown(name, asks=name in asked) for name in names if name not in OWN],
        built_in=[name for name in names if name in OWN],
        hidden=[],
        listed=names,
        sources=[],
        tainted=any(one.get("untrusted") for one in recording.history),
    )


def _unknown(name: str, *, asks: bool) -> parts.ToolPart:
    """Return a tool of which only the name is known, and if it asked."""
    return parts.ToolPart(
        name, "", ANYTHING, role=Role.GUEST, risk=Risk.READ, approval="always" if asks else "never", untrusted=True
    )


def _requests(
    rounds: Sequence[Sequence[Event]], replies: Sequence[Message], rejected: Mapping[str, str], state: str
) -> Iterator[parts.RequestPart]:
    """Yield the request of each round, with the next reply if it had one, and with what broke it off."""
    is_stopped, is_spent = state in STOPS, state == "budget"
    left = deque(replies)
    for number, seen in enumerate(rounds, 1):
        if is_spent and number == len(rounds) and not any(_used(seen)):
            return  # its request was not made
        has_reply = any(one["type"] in OF_REPLIES for one in seen)
        reply = left.popleft() if has_reply and left else None
        items = [*(_items(reply, rejected) if reply else ()), *_used(seen)]
        stopped = is_stopped and number == len(rounds) and (reply is None or reply.cut)
        failed = parts.Failed("cancelled") if stopped else next(filter(None, map(_failure, seen)), None)
        yield _request(reply, [*items, failed or parts.Ended(_reason(reply))])


def _rounds(logged: Iterable[Event]) -> list[list[Event]]:
    found = list[list[Event]]()
    for event in logged:
        if event["type"] == events.RoundStarted.type:
            found.append([])
        elif found:
            found[-1].append(event)
    return found


def _used(seen: Iterable[Event]) -> Iterator[parts.Used]:
    for event in seen:
        if event["type"] == events.Usage.type and event["measured"]:
            yield parts.Used(event["prompt_tokens"], event["completion_tokens"], event.get("cached_tokens"))


def _failure(event: Event) -> parts.Failed | None:
    if event["type"] == events.RunFailed.type:
        return parts.Failed(event["code"], event["message"], event["retryable"])
    if event["type"] == events.Notice.type and event["code"] == CONTINUED:
        message = str(event["message"])
        if other := event.get("answered_by"):
            switch = parts.StoodIn(event["wanted"], other, event["reason"])
            begins = (words.format(model=other, why="") for words in (SWITCHES, BEGINS))
            why = message[len(next(filter(message.startswith, begins), "")) :]
            return parts.Failed(switch.reason, why, retryable=True, successor=switch)
        return parts.Failed("model_cut", message.removeprefix(GOES_ON.format(why="")), retryable=True)
    return None


def _reason(reply: Message | None) -> str:
    if reply and any(call.dialect == NATIVE for call in reply.calls):
        return "tool_calls"
    return "length" if reply and reply.cut else "stop"


def _request(reply: Message | None, items: list[parts.Item]) -> parts.RequestPart:
    dialects = {call.dialect for call in reply.calls} if reply else set()
    in_fences = FENCED.name in dialects or (IN_TEXT in dialects and reply is not None and "```" in reply.text)
    form = CallForm.FENCED if in_fences else CallForm.NATIVE if NATIVE in dialects else CallForm.TAGGED
    return parts.RequestPart(0.0, parts.Held(), items, parts.Since(), counting=parts.Counting(WINDOW), form=form)


def _items(reply: Message, rejected: Mapping[str, str]) -> Iterator[parts.Item]:
    if apart := reply.reasoning.removesuffix(parse(reply.text, {}).reasoning):
        yield parts.Reasoning(apart, [len(apart)], [0])
    if reply.text:
        yield parts.Words(reply.text, [len(reply.text)], [0])
    for index, call in enumerate(call for call in reply.calls if call.dialect == NATIVE):
        yield parts.Opened(index, call.name)
        if not call.arguments and call.id in rejected:  # it could not be read
            yield parts.Unreadable(index, "", rejected[call.id])
        else:
            yield parts.Made(index, call.name, call.arguments, NATIVE)

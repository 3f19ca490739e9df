"""The doors by which a waiting call is decided, each as its real client uses it, and the outcome that each reports."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from app.policy.doors import DOORS
from routes.terminal.event_client import Choices, Link
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Upstream, stream, upstream
from tests.support.replicas.servers import AGAIN_S, passed
from tests.support.server.receivers import Receiver

AGAIN = frozenset({429, 502, 503, 504})
AT_ONCE = 24  # requests
OUTCOMES = {"approve": "approved", "deny": "denied"}
DOOR_OF = {words: door for door, words in DOORS.items()}
SENTENCE = re.compile(rf"(approved|denied) by \S+ ({'|'.join(DOOR_OF)})", re.IGNORECASE)
MCP = {"type": "mcp", "server_label": "dragoman", "server_url": "http://localhost/mcp"}
ON = ("--private-hosts", "127.0.0.1", "--public-url", "http://localhost", "--decision-link-time-limit-s", "36000")
RACING = (*ON, "--approval-admin", "ask")

Outcome = tuple[str | None, str]
"""The decision, where the door says it, and the door by which it came."""
NewClient = Callable[[], httpx2.AsyncClient]
"""A client of a server that may be about to die, or of any of several."""


@asynccontextmanager
async def calling_once() -> AsyncGenerator[Upstream, None]:
    """A model that calls `bash` with what the message names, and then answers."""
    holder = list[Upstream]()

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = holder[0].asked[-1].json["messages"]
        number = re.findall(r"number (\d+),", json.dumps(asked))[-1]
        is_first = f"number {number}," in json.dumps(asked[-1])
        words = f"```bash\necho {number} >> ran\n```\n" if is_first else "Done."
        await stream(says(words), chunk(finish="stop"), DONE)(reader, writer)

    async with upstream(act, repeat=True, chats=True) as model:
        holder.append(model)
        yield model


@dataclass(slots=True)
class WaitingCall:
    """A call that waits, begun at a lane; `outcomes` are those that each door reports."""

    number: int
    lane: str
    run: str = ""
    call: str = ""
    seq: int = 0
    token: str = ""
    wanted: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/runs/{self.run}/approvals/{self.call}"


async def posted(client: NewClient, path: str, **request: Any) -> httpx2.Response:
    """The answer of any server, however often one dies in between; the caller bounds it."""
    while True:
        with suppress(httpx2.TransportError):
            answer = await client().post(path, **request)
            if answer.status_code not in AGAIN:
                return answer
        await passed(AGAIN_S)


def outcome_in(text: str) -> Outcome:
    found = SENTENCE.search(text)
    assert found, text
    return found[1].lower(), DOOR_OF[found[2]]


def by_client(door: str) -> Callable[[NewClient, WaitingCall, str], Awaitable[Outcome]]:
    async def decide(client: NewClient, one: WaitingCall, decision: str) -> Outcome:
        answer = await posted(client, one.path, json={"decision": decision, "door": door})
        fields = answer.json()
        fields = fields.get("error", fields)
        assert answer.status_code in (200, 409), answer.text
        return fields.get("decision", fields.get("state")), fields["door"]

    return decide


async def by_terminal(client: NewClient, one: WaitingCall, decision: str) -> Outcome:
    while True:
        link = Link(client(), Choices())
        link.run = one.run
        refused = await link.decide(one.call, {"decision": decision})
        if refused is None:
            return OUTCOMES[decision], "terminal"
        if refused.final:
            return outcome_in(refused.message)
        await passed(AGAIN_S)


async def by_link(client: NewClient, one: WaitingCall, decision: str) -> Outcome:
    page = await posted(
        client, "/decide", data={"token": one.token, "decision": decision}, headers={"accept-language": "en"}
    )
    assert page.status_code in (200, 409), page.text
    return outcome_in(page.text)


async def by_lane(client: NewClient, one: WaitingCall, decision: str) -> Outcome:
    return await LANES[one.lane].decided(client, one, approved=decision == "approve")


@dataclass(frozen=True, slots=True)
class LaneDoor:
    """How a run begins at a lane, and how its client decides: bodies, and the outcome in its stream."""

    path: str
    begun: Callable[[WaitingCall, str], dict[str, Any]]
    verdict: Callable[[WaitingCall, bool], dict[str, Any]]
    outcome: Callable[[Sequence[dict[str, Any]]], Outcome]
    ends: frozenset[str]

    async def decided(self, client: NewClient, one: WaitingCall, *, approved: bool) -> Outcome:
        """Return the outcome in a whole stream; one that a kill has cut is requested again."""
        while True:
            answer = await posted(client, self.path, json=self.verdict(one, approved))
            assert answer.status_code == 200, answer.text
            lines = [line.removeprefix("data: ") for line in answer.text.split("\n")]
            events = [json.loads(line) for line in lines if line.startswith("{")]
            if events and events[-1]["type"] in self.ends:
                return self.outcome(events)


def ag_ui_outcome(events: Sequence[dict[str, Any]]) -> Outcome:
    found = [one["value"] for one in events if one["type"] == "CUSTOM" and one["name"] == "approval.resolved"]
    assert len(found) == 1, events
    [value] = found
    return value["decision"], value["door"]


def ui_outcome(events: Sequence[dict[str, Any]]) -> Outcome:
    notices = [one["data"] for one in events if one["type"] == "data-notice"]
    found = [one for one in notices if one["code"] == "approval.resolved"]
    assert len(found) == 1, events
    [value] = found
    return value["decision"], value["door"]


def responses_outcome(events: Sequence[dict[str, Any]]) -> Outcome:
    output = events[-1]["response"]["output"]
    decided = [one for one in output if one["type"] == "mcp_approval_response"]
    return outcome_in(decided[0]["reason"]) if decided else (None, "responses")


def ui_answer(one: WaitingCall, approved: bool) -> dict[str, Any]:
    approval = {"id": one.call, "approved": approved}
    part = {"type": "dynamic-tool", "toolName": "bash", "toolCallId": one.call, "input": {}}
    parts = [{"type": "step-start"}, part | {"state": "approval-responded", "approval": approval}]
    answer = {"id": f"a{one.number}", "role": "assistant", "parts": parts}
    begun = ui_begun(one, "Go.")
    return begun | {"messages": [*begun["messages"], answer], "messageId": answer["id"]}


def ui_begun(one: WaitingCall, text: str) -> dict[str, Any]:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": f"c{one.number}", "messages": [message], "trigger": "submit-message"}


def ag_ui_body(one: WaitingCall, **more: Any) -> dict[str, Any]:
    known = {"threadId": f"t{one.number}", "runId": f"r{one.number}", "state": {}, "context": [], "tools": []}
    return known | {"messages": [], "forwardedProps": {}} | more


RESPONSES = {"model": "dragoman/agent", "stream": True, "tools": [MCP]}
LANES = {
    "ag-ui": LaneDoor(
        "/ag-ui",
        lambda one, text: ag_ui_body(one, messages=[{"id": "u1", "role": "user", "content": text}]),
        lambda one, approved: ag_ui_body(
            one, resume=[{"interruptId": one.call, "status": "resolved", "payload": {"approved": approved}}]
        ),
        ag_ui_outcome,
        frozenset({"RUN_FINISHED", "RUN_ERROR"}),
    ),
    "ui-messages": LaneDoor("/ui-message-stream", ui_begun, ui_answer, ui_outcome, frozenset({"finish"})),
    "responses": LaneDoor(
        "/v1/responses",
        lambda _, text: RESPONSES | {"input": text},
        lambda one, approved: (
            RESPONSES
            | {
                "input": [
                    {
                        "type": "mcp_approval_response",
                        "approval_request_id": f"mcpr_{one.run.removeprefix('run_')}_{one.seq}_{one.call}",
                        "approve": approved,
                    }
                ]
            }
        ),
        responses_outcome,
        frozenset({"response.completed", "response.failed"}),
    ),
}
RACERS: dict[str, Callable[[NewClient, WaitingCall, str], Awaitable[Outcome]]] = {
    "page": by_client("page"),
    "push": by_client("push"),
    "api": by_client("api"),
    "terminal": by_terminal,
    "link": by_link,
    "lane": by_lane,
}


async def begin(client: NewClient, one: WaitingCall) -> None:
    """Begin the run at its lane, whose stream ends with the question."""
    lane = LANES[one.lane]
    answer = await posted(client, lane.path, json=lane.begun(one, f"Run number {one.number}, please."))
    assert answer.status_code == 200, answer.text
    one.run = answer.headers["x-run-id"]
    *_, asked = await log_of(client, one.run, to_end=False)
    assert asked["type"] == "approval.required", (one.lane, asked)
    one.call, one.seq = asked["call"], asked["seq"]


async def log_of(client: NewClient, run: str, *, to_end: bool = True) -> list[dict[str, Any]]:
    """The log of a run to its end, or to its question."""
    while True:
        with suppress(httpx2.TransportError, ValueError):
            events = list[dict[str, Any]]()
            async with client().stream("GET", f"/runs/{run}/events") as response:
                if response.status_code == 200:
                    async for message in httpx2.EventSource(response):
                        events.append(json.loads(message.data) | {"seq": int(message.id)})
                        if events[-1]["type"] in ("run.finished", "run.failed"):
                            return events
                        if not to_end and events[-1]["type"] == "approval.required":
                            return events
        await passed(AGAIN_S)


async def waiting_calls(client: NewClient, there: Receiver, count: int) -> list[WaitingCall]:
    """So many calls that wait, each with its link."""
    added = await posted(client, "/webhooks", json={"url": there.url, "events": ["approval.required"], "decides": True})
    assert added.status_code == 201, added.text
    lanes = itertools.cycle(LANES)
    calls = [WaitingCall(number, next(lanes)) for number in range(1, count + 1)]
    places = asyncio.Semaphore(AT_ONCE)

    async def begun(one: WaitingCall) -> None:
        async with places:
            await begin(client, one)

    async with asyncio.TaskGroup() as group:
        for one in calls:
            group.create_task(begun(one))
    links = await links_in(there, count)
    for one in calls:
        one.token = links[one.run, one.call]
    return calls


async def links_in(there: Receiver, count: int) -> dict[tuple[str, str], str]:
    """The tokens by run and call, once there are so many: some messages come twice."""
    found, read = dict[tuple[str, str], str](), 0
    while len(found) < count:
        async with there.news:
            while len(there.requests) == read:
                await there.news.wait()
        for data in (json.loads(request.body)["data"] for request in there.requests[read:]):
            found[data["run"], data["call"]] = data["decide"].rpartition("/")[2]
            read += 1
    return found


async def race(
    client: NewClient,
    calls: Sequence[WaitingCall],
    chance: random.Random,
    kill: Callable[[], Awaitable[None]],
    kills: int,
) -> None:
    """Let all doors decide all calls, in any order; `kill` a server in between, so many times."""
    entries = [(one, door) for one in calls for door in RACERS]
    # Doors of one call race: they stand together, and those of a few calls are mixed.
    entries.sort(key=lambda entry: entry[0].number // 4 + chance.random())
    places = asyncio.Semaphore(AT_ONCE)
    at = {len(entries) * number // (kills + 1) for number in range(1, kills + 1)}

    async def decided(one: WaitingCall, door: str) -> None:
        decision = one.wanted[door] = chance.choice(("approve", "deny"))
        async with places:
            one.outcomes[door] = await RACERS[door](client, one, decision)

    async with asyncio.TaskGroup() as group:
        for one, door in entries:
            group.create_task(decided(one, door))
        while at:
            await passed(AGAIN_S / 10)
            done = sum(len(one.outcomes) for one in calls)
            if done >= min(at):
                at.remove(min(at))
                await kill()


async def check_decided(client: NewClient, calls: Sequence[WaitingCall], folder: Path) -> Counter[str]:
    """Each call was decided once and run at most once, and every door knows how; return the doors that won."""
    won, ran = Counter[str](), Counter[str]()
    logs = {one.number: await log_of(client, one.run) for one in calls}
    for text in await asyncio.to_thread(lambda: [file.read_text() for file in folder.rglob("ran")]):
        ran.update(text.split())
    for one in calls:
        log = logs[one.number]
        kinds = Counter(event["type"] for event in log)
        [resolved] = [event for event in log if event["type"] == "approval.resolved"]
        decision, door = resolved["decision"], resolved["door"]
        assert kinds["approval.required"] == 1 and kinds["tool.started"] <= 1, (one, kinds)
        racer = "lane" if door == one.lane else door
        assert OUTCOMES[one.wanted[racer]] == decision, (one, resolved)
        assert one.outcomes.keys() == RACERS.keys(), one
        assert all(known in ((decision, door), (None, door)) for known in one.outcomes.values()), (one, resolved)
        whole = any(event["type"] == "tool.finished" and event["ok"] for event in log)
        most = ran[str(one.number)]
        assert most <= (decision == "approved") and (most == 1 or not whole), (one, kinds, most)
        won[racer] += 1
    return won

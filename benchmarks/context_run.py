"""A run of 40 rounds on the embedded model, with a window of 2,048 tokens: does it fit, and what stays in the cache?

So small a model does not work on by itself: a person tells it what to do next, round by round. Nor can it write notes
that end: those are written for it. All else is real: server, model, tools, store. The floor is the same conversation,
trimmed to the budget anew for each request.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from msgspec.structs import replace

from app.config.settings import Settings, load_settings
from app.context.compaction.replay import CompactedHistory, WindowBudget
from app.context.compaction.steps import Measure
from app.context.compaction.trim import trim
from app.context.view import TO_FIND, View, answer_room
from app.core.events import ContextSummarised, ContextTrimmed, Notice, RoundStarted, RunFinished, Usage
from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, Piece, Provider, TextChunk
from app.models.capabilities.abilities import AbilityOverrides
from app.models.embedded.supervisor import SMOLLM2, EmbeddedModel
from app.models.http.client import model_client
from app.models.http.json_body import encode
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.history import wire_messages
from app.models.wire.openai.provider import BareChat
from app.storage.principals import LOCAL_USER
from app.storage.runs import EventRow
from app.transcript.run_request import RunOver, RunRequest
from routes.protocol.requests import ChatRequest
from routes.services import Services, open_services

ROUNDS, WINDOW, ANSWER = 40, 2048, 64  # rounds; tokens
LIMIT_S = 900
TOOLS = ["bash", "write_file", "read_file", "recall_history"]
GOAL = "Keep the harbour's notes here, a file for each tide; the pilot boat is the Halcyon. Show the files first."
ASKS = (
    "Write the file tide{n}.txt, which says: at tide {n} the Halcyon went out.",
    "Show what is in tide{n}.txt.",
    "Show the first 12 lines of log.txt.",
    "What have you done so far? Answer in one sentence.",
    "Show the files.",
    "Which line of log.txt has berth {n}? Use grep.",
    "Count the words of all files.",
)
NOTES = "What was done: files were shown and written. Current state: all commands ran. Pending: the next tide."
BOATS = ("barge", "ferry", "trawler")
LOG = "".join(f"{at:02}:00 berth {at}: a {BOATS[at % 3]} from the north, draught {at % 7}.4 m\n" for at in range(24))
TAIL = 8  # tokens that a chat template puts behind the messages


@dataclass(slots=True)
class Wire:
    """The requests that the model's server has answered, and how: a 200, or a refusal."""

    answered: list[tuple[dict[str, Any], int]] = field(default_factory=list)

    async def saw(self, response: httpx2.Response) -> None:
        if response.request.url.path.endswith("/chat/completions"):
            self.answered.append((json.loads(response.request.content), response.status_code))


class Noting(BareChat):
    """Only rounds go to the server. What else is asked says how long the answer may be, and is answered here."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        if request.max_tokens is not None:
            yield TextChunk(NOTES)
            yield Finished("stop")
            return
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                yield piece


@dataclass(slots=True)
class Told:
    """What was told: of each round that the server has counted its usage, and what else happened in which round."""

    rounds: int = 0
    runs: int = 0
    calls: int = 0
    usages: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    happened: dict[int, list[str]] = field(default_factory=dict)

    def saw(self, row: EventRow) -> None:
        fields = json.loads(row.data)
        match row.type:
            case RoundStarted.type:
                self.rounds += 1
            case Usage.type if fields["measured"]:
                self.usages.append((self.rounds, fields))
            case RunFinished.type:
                self.runs += 1
                self.calls += fields["calls"]
            case ContextTrimmed.type | ContextSummarised.type:
                self.note(row.type.removeprefix("context."))
            case Notice.type:
                self.note(fields["code"])

    def note(self, what: str) -> None:
        self.happened.setdefault(self.rounds, []).append(what)


@asynccontextmanager
async def opened(folder: Path, wire: Wire) -> AsyncGenerator[Services, None]:
    """A server's services on a real model whose server has no more room than the window."""
    model = EmbeddedModel(replace(SMOLLM2, context=WINDOW))
    client = model_client("http://127.0.0.1")
    client.event_hooks = {"response": [wire.saw]}
    flags = {"data_dir": f"{folder}/data", "workspace": f"{folder}/work", "window": WINDOW, "max_rounds": ROUNDS}
    settings = load_settings(flags, {"HOME": str(folder)}, folder=folder).settings

    async def chosen(_: Settings) -> tuple[Provider, str]:
        url, defaults = await model.start(), RequestDefaults(max_tokens=ANSWER, temperature=0.0)
        known = client, url, SMOLLM2.name, model.key
        return Noting(*known, overrides=AbilityOverrides("fenced"), defaults=defaults), "the embedded model"

    try:
        async with open_services(settings, chosen) as services:
            yield services
    finally:
        await model.close()


async def played(services: Services, told: Told) -> str:
    """The session in which all rounds were played: in one run, if it does not end of itself before."""
    session = None
    while told.rounds < ROUNDS:
        message = ask(told.rounds)
        wish = ChatRequest(message=message, tools=TOOLS, max_rounds=ROUNDS - told.rounds)
        run = await services.runs.start(
            await services.factory.agent(LOCAL_USER, wish), LOCAL_USER, RunRequest(message, session)
        )
        session = run.session
        async with aclosing(services.runs.watch(run.id, 0)) as pages:
            async for page in pages:
                for row in page:
                    told.saw(row)
                    if row.type == RoundStarted.type and told.rounds < ROUNDS:
                        with suppress(RunOver):
                            await services.runs.steer(run.id, ask(told.rounds))
    assert session
    return session


def ask(number: int) -> str:
    return ASKS[number % len(ASKS)].format(n=number) if number else GOAL


def told_bytes(messages: Sequence[Message]) -> bytes:
    return encode({"messages": wire_messages(messages, native=False, bare=True)})


def fitted(messages: Sequence[Message], head: Sequence[Message], measure: Measure) -> tuple[list[bytes], list[bytes]]:
    """What these rounds' requests would say without summaries: with the room that trimming leaves, and without."""
    budget = WINDOW - answer_room(WINDOW) - measure(Message("user", TO_FIND))
    room, compacted = WindowBudget(head, budget, measure), CompactedHistory()
    roomy, tight = list[bytes](), list[bytes]()
    for at in (at for at, message in enumerate(messages) if message.role == "assistant"):
        compacted.advance(messages[:at], room)
        compacted.fit(room)
        roomy.append(told_bytes([*compacted.opening(head), *compacted.kept]))
        tight.append(told_bytes(trim([*head, *messages[:at]], budget, measure, opening=len(head)).messages))
    return roomy, tight


def in_common(bodies: Sequence[bytes]) -> float:
    """Share of what the requests say with which the one before had begun."""
    shared = sum(sum(1 for _ in takewhile(bool, map(eq, *two))) for two in pairwise(bodies))
    return shared / sum(map(len, bodies[1:]))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a round, as it went over the wire and as the server counted it."""

    round: int
    messages: list[dict[str, Any]]
    prompt: int
    cached: int


def asked_by(wire: Wire, told: Told) -> list[Asked]:
    taken = [body["messages"] for body, status in wire.answered if status == 200]
    return [
        Asked(number, messages, usage["prompt_tokens"], usage["cached_tokens"])
        for messages, (number, usage) in zip(taken, told.usages, strict=True)
    ]


def read_again(asked: Sequence[Asked], told: Told) -> Iterator[str]:
    """The rounds in which the server had to read again what it had read, and why."""
    for earlier, later in pairwise(asked):
        if later.cached >= earlier.prompt - TAIL:
            continue
        why = told.happened.get(later.round, [])
        if later.messages[0] != earlier.messages[0]:
            why = ["another prompt"]  # a last round offers no tools
        elif "nudge" in told.happened.get(earlier.round, []):
            why = [*why, "the note before is gone"]
        elif not why and len(later.messages) <= len(earlier.messages):
            why = ["messages left out"]
        yield f"round {later.round:2}: {later.cached:5,} of {later.prompt:5,} tokens ({', '.join(why) or 'unknown'})"


def report(wire: Wire, told: Told, roomy: Sequence[bytes], tight: Sequence[bytes]) -> None:
    asked = asked_by(wire, told)
    refused = sum(status != 200 for _, status in wire.answered)
    held = any(GOAL in str(message["content"]) for message in asked[-1].messages)
    summaries = sum("summarised" in what for what in told.happened.values())
    found = sum(one.cached for one in asked) / sum(one.prompt for one in asked)
    mean = sum(one.cached / one.prompt for one in asked) / len(asked)
    print(f"{told.rounds} rounds in {told.runs} run(s), {told.calls} calls, {summaries} summaries")
    print(f"{len(wire.answered)} requests, {refused} refused; the longest {max(one.prompt for one in asked):,} tokens")
    print(f"the goal, word for word, in the last request: {'yes' if held else 'NO'}")
    print(f"found in the server's cache, as it says: {found:.0%} of all prompts, {mean:.0%} of the mean one; but in")
    print("\n".join(f"  {line}" for line in read_again(asked, told)))
    rows = {
        "this run": [encode({"messages": one.messages}) for one in asked],
        "without summaries": roomy,
        "and without slack": tight,
    }
    print("begins as the request before it, share of all:")
    for name, bodies in rows.items():
        print(f"  {name:20}{in_common(bodies):5.0%}")


async def run() -> None:
    wire, told = Wire(), Told()
    with TemporaryDirectory() as folder:
        async with asyncio.timeout(LIMIT_S), opened(Path(folder), wire) as services:
            (services.settings.workspace / "log.txt").write_text(LOG)
            messages = await services.store.messages(await played(services, told))
            agent = await services.factory.agent(LOCAL_USER, ChatRequest(message=GOAL, tools=TOOLS))
            assert isinstance(agent.view, View)
            head, measure = agent.view.opening(agent.toolbox.offered), services.models.default.counter.measure
    report(wire, told, *fitted(messages, head, measure))


def main() -> None:
    started = time.perf_counter()
    asyncio.run(run())
    print(f"in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()

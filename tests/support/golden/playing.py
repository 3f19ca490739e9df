"""Golden event logs: a story is played through a whole server, and the bytes of its streams are kept in fixtures/runs.

Kept is what clients receive, but for what chance decides: ids, times, ports and paths have one spelling, neighbouring
deltas are one (how many were written together depends on the disk), and progress that brings nothing new is left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.core.provider import Piece
from app.models.scripted import Line, Pause, Reply, Scripted
from app.replay.checking import checked, recorded_or_derived
from app.replay.recording import Recording
from parsing import Call, CallDelta, CallOpened
from routes.lanes.recorded_frames import frames_of as frames_of_lane
from routes.services import Services
from tests import ROOT
from tests.support.models.upstream import Act, upstream
from tests.support.server.serving import Served, serving
from tools.catalogue import TOOLS

RUNS = ROOT / "fixtures" / "runs"
RECORDINGS = ROOT / "fixtures" / "recordings"
LIMIT_S = 60
HOLD = Pause(asyncio.Event())  # in a script: until the stage's `gate` is opened
Event = dict[str, Any]
Frame = tuple[str, Event]  # id, data
Reaction = Callable[["Stage", Event], Awaitable[None]]
Afterwards = Callable[["Stage"], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Story:
    """One conversation. `about` says what its log shows; the last of the `messages` is recorded.

    The model is Scripted with `replies`; with `acts` it is what these send over HTTP, through the product's own client,
    one server per entry: the first is wanted, the others stand in. `reactions` are what a person does when an event of
    that type comes; `afterwards` returns further runs to be recorded. With `waits` the workspace has a pipe `go`, from
    which a command reads until the stage lets it `go_on`.
    """

    about: str
    replies: Sequence[Reply] = ()
    messages: Sequence[str] = ("Hello",)
    body: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    acts: Sequence[Sequence[Act]] = ()
    format: str = "openai"
    provider: Callable[[], Scripted] | None = None
    reactions: Mapping[str, Reaction] = field(default_factory=dict)
    waits: bool = False
    afterwards: Afterwards | None = None


@dataclass(slots=True)
class Stage:
    """A story being played."""

    served: Served
    folder: Path
    gate: asyncio.Event
    pipe: int | None = None
    run: str = ""
    session: str = ""
    last_seq: str = ""

    def go_on(self) -> None:
        """Let the command that reads from the pipe end."""
        assert self.pipe is not None
        os.write(self.pipe, b"\n")

    async def post(self, path: str, **body: object) -> None:
        answer = await self.served.client.post(f"/runs/{self.run}{path}", json=body)
        assert answer.is_success, answer.text

    async def turn(self, story: Story, message: str) -> bytes:
        """Send a message and react to the events of its run; return the bytes of the stream."""
        body = {"message": message, **story.body} | ({"session": self.session} if self.session else {})
        raw = b""
        async with self.served.client.stream("POST", "/chat", json=body) as response:
            assert response.status_code == 200, await response.aread()
            self.run, self.session = response.headers["x-run-id"], response.headers["x-session-id"]
            seen = 0
            async for block in response.aiter_bytes():
                raw += block
                frames = frames_of(raw[: raw.rfind(b"\n\n") + 2])
                for _, event in frames[seen:]:
                    if reaction := story.reactions.get(event["type"]):
                        await reaction(self, event)
                seen = len(frames)
            self.last_seq = frames[-1][0]
        return raw

    async def replay(self, run: str) -> bytes:
        answer = await self.served.client.get(f"/runs/{run}/events")
        assert answer.status_code == 200, answer.text
        return answer.content


def native(number: int, name: str, arguments: Mapping[str, object]) -> list[Piece]:
    """A call as a model server sends it, piece by piece."""
    text = json.dumps(arguments)
    pieces = [CallDelta(number, text[at : at + 8]) for at in range(0, len(text), 8)]
    return [CallOpened(number, name), *pieces, Call(number, name, dict(arguments), "native")]


async def play(story: Story, folder: Path, recordings: list[Recording] | None = None, *, record: bool = True) -> str:
    """The text that belongs in the story's fixture. Its runs are recorded, and go the same way when they are replayed.

    `recordings` takes them. Without `record` the runs are replayed as far as their logs say what they were made of.
    Raises UnusableRecording.
    """
    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack:
        gate = asyncio.Event()
        provider = None if story.acts else story.provider() if story.provider else scripted(story, gate)
        if story.acts:
            servers = [await stack.enter_async_context(upstream(*acts, chats=True)) for acts in story.acts]
            (folder / "dragoman.toml").write_text(endpoints([one.base_url for one in servers], story.format))
        served = await stack.enter_async_context(
            serving(folder, provider, time_zone="UTC", record=record, **story.flags)
        )
        for name, text in story.files.items():
            (folder / "work" / name).write_text(text)
        for secret in story.secrets:
            served.services.redactor.add(secret)
        stage = Stage(served, folder, gate, stack.enter_context(pipe(folder / "work" / "go")) if story.waits else None)
        for message in story.messages:
            raw = await stage.turn(story, message)
        names = Names(folder)
        logs = [names.normalised(raw)]
        assert Names(folder).normalised(await stage.replay(stage.run)) == logs[0], "a replay has the same events"
        further = await story.afterwards(stage) if story.afterwards else ()
        logs += [names.normalised(await stage.replay(run)) for run in further]
        for run in (stage.run, *further):
            recording = await same_again(served.services, run)
            assert recording.is_recorded is record
            if recordings is not None:
                recordings.append(recording)
    return f": {story.about}\n\n" + "".join(logs)


async def same_again(services: Services, run: str) -> Recording:
    """Replay a run, with the borders of its model's pieces and without; return its recording."""
    row = await services.store.run(run)
    assert row
    recording = await recorded_or_derived(services.store, row, services.settings)
    for exact in (True, False):
        outcome = await checked(recording, run, frames_of_lane, exact=exact)
        assert not outcome.reason, outcome.reason
        assert not outcome.differences, "\n".join(one.words for one in outcome.differences)
    return recording


@contextmanager
def pipe(path: Path) -> Iterator[int]:
    """A named pipe, open for writing. A loop that looks for a file would need processes, of which there may be none."""
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)  # which waits for no reader, and keeps what was written for one
    try:
        yield end
    finally:
        os.close(end)


def scripted(story: Story, gate: asyncio.Event) -> Scripted:
    def held(line: Line) -> Line:
        return Pause(gate) if line is HOLD else line

    replies = [reply if isinstance(reply, str) else [held(line) for line in reply] for reply in story.replies]
    return Scripted(replies)


def endpoints(urls: Sequence[str], wire: str) -> str:
    """The settings that name these servers, each as the stand-in of those before it."""
    names = [f"model{number}" for number in range(1, len(urls) + 1)]
    lines = [f"fallback = {json.dumps([f'{name}/m' for name in names[1:]])}", "summarise_at = 1"]
    for name, url in zip(names, urls, strict=True):
        fields = {"url": url, "model": "m", "format": wire, "tool_calls": "native", "window": 65_536}
        lines += [f"[endpoints.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items())]
    return "\n".join(lines)


def frames_of(raw: bytes) -> list[Frame]:
    """The events of a stream."""
    frames = []
    for block in raw.decode("ascii").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":") and line)
        if "data" in fields:
            data = json.loads(fields["data"])
            assert data["type"] == fields["event"]
            frames.append((fields["id"], data))
    return frames


def rendered(frames: Sequence[Frame]) -> str:
    blocks = (f"id: {seq}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n" for seq, event in frames)
    return "retry: 1000\n" + "".join(blocks)


PING = re.compile(rb"(?m)^: ping[^\n]*\n\n")
IDS = re.compile(r"\b(?:(run|ses|job|doc)_[0-9a-f]{10,20}|(c|q)[0-9a-f]{8})\b")
SPELLINGS = (
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:1"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ])\d\d:\d\d(:\d\d)?"), r"2026-01-02\g<1>03:04\2"),
    (re.compile(r'"(elapsed_s|duration_s)": [\d.e-]+'), r'"\1": 0.5'),
    (re.compile(r', "timing": \{[^{}]*\}'), ""),  # chance decides even which times there are
    (re.compile(r"\bin [\d.]+ s\b"), "in 0.5 s"),  # until a model is asked again, with jitter
    (re.compile(r'("type": "context.trimmed".*) "before": \d+, "after": \d+'), r'\1 "before": 2000, "after": 1000'),
    (re.compile(r"(Words of the helper \[|\[end )[a-z]{8}\]"), r"\1delimits]"),
    (re.compile(r'"(expires_at|retry_at)": [\d.]+'), r'"\1": 1767322800.0'),
)
# A further tool changes no log.
CATALOGUE = json.dumps([*(tool.name for tool in TOOLS), "manage_schedules"]).rstrip("]")
BYTES = re.compile(r'"(prompt_bytes|prefix_bytes)": [1-9]\d*')  # so do these
TOKENS = re.compile(r'"((?:total_)?prompt_tokens)": \d+(?=[^{}]*"measured": false)')  # counts the folder and the date


@dataclass(slots=True)
class Names:
    """One spelling of what chance decides, the same in all logs of a story."""

    folder: Path
    _ids: dict[str, str] = field(default_factory=dict)

    def normalised(self, raw: bytes) -> str:
        frames = frames_of(raw)
        assert rendered(frames) == PING.sub(b"", raw).decode(), "nothing but events, in the one form that they have"
        assert [seq for seq, _ in frames] == [str(number) for number in range(1, len(frames) + 1)], "without gaps"
        events = joined([event for _, event in frames])
        return self._spelled(rendered([(str(number), event) for number, event in enumerate(events, 1)]))

    def _spelled(self, text: str) -> str:
        text = text.replace(str(self.folder), "/folder")
        text = text.replace(CATALOGUE, '["the whole catalogue"')
        text = TOKENS.sub(r'"\1": 1000', text)
        text = BYTES.sub(r'"\1": 1000', text)
        for pattern, spelling in SPELLINGS:
            text = pattern.sub(spelling, text)
        return IDS.sub(self._id, text)

    def _id(self, found: re.Match[str]) -> str:
        kind = found[1] or found[2]
        number = sum(one.startswith(kind) for one in self._ids.values()) + 1
        return self._ids.setdefault(found[0], f"{kind}_{number:020}" if found[1] else f"{kind}{number:08}")


def joined(events: Sequence[Event]) -> list[Event]:
    """The events with neighbouring deltas as one, and of each call's progress only what is new."""
    out: list[Event] = []
    progress: dict[str, Event] = {}  # by call, without its time
    helped = {event["call"] for event in events if event["type"] == "helper.started"}  # shown as chance has it
    for event in events:
        if event["type"] == "tool.progress":
            news = event | {"elapsed_s": 0.0}
            if event["call"] in helped:
                continue
            if not event["lines"] or progress.get(event["call"]) == news:
                continue
            progress[event["call"]] = news
        if out and continues(out[-1], event):
            out[-1] = out[-1] | {"text": out[-1]["text"] + event["text"]}
        else:
            out.append(event)
    return out


def continues(last: Event, event: Event) -> bool:
    return (
        event["type"] in ("text.delta", "reasoning.delta", "tool.delta", "document.delta")
        and event["type"] == last["type"]
        and all(event.get(name) == last.get(name) for name in ("call", "document"))
        and "name" not in event
    )

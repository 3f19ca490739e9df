"""Recordings for the tests of replays: the golden ones, and those of lanes, secrets and small windows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pytest import MonkeyPatch

from app.core.provider import Finished
from app.models.scripted import Reply, Scripted
from app.policy.decision_table import DecisionRow
from app.replay.checking import UNUSABLE, Outcome, checked, recorded_or_derived
from app.replay.recording import Recording, UnusableRecording, read_recording, written
from app.runs.run_factory import RunFactory
from app.storage.runs import RunRow
from routes.lanes.catalogue import LANES
from routes.lanes.recorded_frames import frames_of
from routes.services import Services, open_services
from tests.support.golden.playing import RECORDINGS, native
from tests.support.server import serving as server
from tests.support.server.serving import Served, serving

SECRET, TOKEN = "sk-verysecretvalue12", f"dgm_{'aB3' * 14}x"
Seed = Callable[[MonkeyPatch], None]
"""Puts a regression into the code."""
CALL = "I look.\n```bash\necho hi\n```\n"
WORDS = ("It printed hi, and the key is sk-very", "secret", "value12, the token ", TOKEN[:9], TOKEN[9:], ".")


@cache
def golden() -> dict[str, Recording]:
    return {path.stem: read_recording(path.read_text(), path.name) for path in sorted(RECORDINGS.glob("*.json"))}


@asynccontextmanager
async def recording(folder: Path, replies: Sequence[Reply], **flags: Any) -> AsyncGenerator[Served, None]:
    """A server that records its runs."""
    async with serving(folder, Scripted(replies), record=True, time_zone="UTC", **flags) as served:
        served.services.redactor.add(SECRET)
        yield served


async def recorded(served: Served) -> list[Recording]:
    """All runs of a server, oldest first."""
    services = served.services
    rows = await services.store.ended_runs(0)
    return [await recorded_or_derived(services.store, row, services.settings) for row in rows]


async def lanes_and_secrets(folder: Path) -> list[Recording]:
    """A run through each lane, each with a call and with secrets in several pieces."""
    async with recording(folder, [CALL, WORDS] * (len(LANES) + 1)) as served:
        await served.chat("Print hi")
        for lane in LANES:
            body: dict[str, Any] = {**lane.example, "stream": True}
            answer = await served.client.post(lane.path, json=body)
            assert answer.is_success, answer.text
        return await recorded(served)


async def limits_and_repairs(folder: Path) -> list[Recording]:
    """Runs with repaired arguments, with calls that are quotations or cut off, and with long results."""
    quoted = "```bash\necho quoted\n```"
    cut = '<tool_call>\n{"name": "bash", "arguments": {"command": "echo cut"}}\n'
    counts: list[tuple[str, list[Reply]]] = [
        (f"Count {number}", [f"```bash\nseq {number} 2000\n```", "word " * 400]) for number in range(1, 9)
    ]
    turns: list[tuple[str, list[Reply]]] = [
        ("Read the note", [native(0, "read_file", {"path": "note.txt", "offset": "2"}), "It is short."]),
        (f"What does this do? {quoted}", [quoted, "It prints a word."]),
        ("Print a word", [[cut, Finished("length")], "It was cut off."]),
        ("Read the page", [native(0, "web_fetch", {"url": "https://example.org/"}), "I may not."]),
        *counts,
    ]
    replies = [reply for _, those in turns for reply in those]
    async with recording(folder, replies, window=6000, summarise_at=1, result_characters=3000) as served:
        (folder / "work" / "note.txt").write_text("Milk,\nbread\nand salt.\n")
        session: dict[str, object] = {"when_absent": "deny"}
        for message, _ in turns:
            events = await served.chat(message, **session)
            session |= {"session": events[0]["session"]}
        return await recorded(served)


async def outcomes(recordings: Iterable[Recording], *, exact: bool = False) -> list[Outcome]:
    return [await checked(one, one.run.id, frames_of, exact=exact) for one in recordings]


def without_row(module: Any, table: str, name: str) -> Seed:
    """A row of a table of decisions is lost."""

    def seed(patch: MonkeyPatch) -> None:
        rows: Sequence[DecisionRow[Any]] = getattr(module, table)
        left = tuple(row for row in rows if row.name != name)
        assert len(left) == len(rows) - 1
        patch.setattr(module, table, left)

    return seed


def replayed_at_the_end(patch: MonkeyPatch) -> list[Outcome]:
    """Have servers of tests record their runs, and replay each from its file when they end; return the outcomes."""
    outcomes = list[Outcome]()

    @asynccontextmanager
    async def recorded_services(*given: Any, **named: Any) -> AsyncGenerator[Services, None]:
        async with open_services(*given, **named) as services:
            yield services
            for row in await services.store.ended_runs(0):
                outcomes.append(await replayed_from_file(services, row))

    patch.setattr(server, "open_services", recorded_services)
    patch.setattr(RunFactory, "records", lambda *_: True)
    return outcomes


async def replayed_from_file(services: Services, row: RunRow) -> Outcome:
    try:
        found = await recorded_or_derived(services.store, row, services.settings)
    except UnusableRecording as unusable:
        return Outcome(row.id, UNUSABLE, reason=str(unusable))
    return await checked(read_recording(written(found), row.id), row.id, frames_of)

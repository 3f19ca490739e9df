"""A call never disappears: every dialect in every position is run, asked for once more, or handed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import Message
from app.models.scripted import Reply
from app.models.wire.native_calls import NATIVE
from app.runs.discipline.doubted_calls import TEXT_CALL
from parsing import Call
from tests.support.models.scripted_models import Native
from tests.support.models.targets import Time, fails
from tests.support.nightly import at_night
from tests.support.parsing.forms import WRITERS
from tests.support.server.events import letters_of, notice_codes, of_kind, text_of
from tests.support.server.relaying import relayed
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

READ_FILE = {
    "name": "read_file",
    "description": "Reads a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
NATIVELY = Call(0, "read_file", {"path": "first.txt"}, NATIVE)
HOUR_S = 3600
LIMIT_S = 100
"""Of all dialects in one position."""


def written(dialect: str, file: str) -> str:
    return WRITERS[dialect]([("read_file", {"path": file})])


@dataclass(frozen=True)
class Position:
    """Where a call in text stands. `replies` of the model for the text of a call, `asked` once more or not."""

    name: str
    replies: Callable[[str], Sequence[Reply]]
    before: Sequence[Reply] = ()  # of a turn before
    task: str = "Go."


AFTER_NATIVE = Position("after a native call", lambda call: [[NATIVELY], [call]])
POSITIONS = (
    Position("first reply", lambda call: [[call]]),
    AFTER_NATIVE,
    Position("in a later run", lambda call: [[call]], before=([NATIVELY], "Done.")),
    Position("after a thought", lambda call: [[NATIVELY], [f"<think>I must touch it.</think>{call}"]]),
)


class Always(Native):
    """A model that writes what it is given, and whose calls in text are written again if it is asked to."""

    def __init__(self, *, leaves_calls: bool) -> None:
        super().__init__("m", leaves_calls=leaves_calls)

    def add(self, *replies: Reply) -> None:
        self._replies[len(self.requests) :] = replies


@pytest.mark.parametrize(
    ("position", "recognised"),
    [
        pytest.param(position, recognised, id=f"{position.name}, {'recognised' if recognised else 'unknown'}")
        for position in POSITIONS
        for recognised in at_night((False, True), (False, True) if position is AFTER_NATIVE else (False,))
    ],
)
async def test_every_dialect_runs_wherever_it_stands(tmp_path: Path, position: Position, recognised: bool) -> None:
    """At a server that is not recognised after the model was asked, once, to call natively."""
    wrong, doubted = dict[str, object](), not recognised and position.name != "first reply"
    model = Always(leaves_calls=recognised)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, window=32_768) as served:
        for number, dialect in enumerate(sorted(WRITERS)):
            more: dict[str, Any] = {"tools": ["read_file"], "approval": "auto"}
            if position.before:
                model.add(*position.before)
                more["session"] = (await served.chat("Begin.", **more))[0]["session"]
            call = written(dialect, f"notes-{number}.txt")
            *first, last = position.replies(call)
            model.add(*first, last, *([last] if doubted else []), "Done.")
            events = await served.chat(position.task, **more)
            came = (
                [event["arguments"] for event in of_kind(events, "tool.started") if event["dialect"] != NATIVE],
                notice_codes(events).count(TEXT_CALL),
                events[-1].get("reason"),
                text_of(events).strip(),
            )
            if came != ([{"path": f"notes-{number}.txt"}], int(doubted), "answered", "Done."):
                wrong[dialect] = came
    assert not wrong


@pytest.mark.parametrize("recognised", at_night((True, False), (False,)))
async def test_every_dialect_runs_in_a_helper(tmp_path: Path, recognised: bool) -> None:
    wrong, model = dict[str, object](), Always(leaves_calls=recognised)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, window=32_768, helpers=True) as served:
        for dialect in sorted(WRITERS):
            call = written(dialect, "notes.txt")
            again = [] if recognised else [[call]]
            model.add([Call(0, "delegate", {"task": "Read."}, NATIVE)], [NATIVELY], [call], *again, "Read.", "Done.")
            events = await served.chat("Go.", approval="auto")
            [started] = of_kind(events, "helper.started")
            below = await served.events(started["helper"])
            came = (
                [event["arguments"]["path"] for event in of_kind(below, "tool.started")],
                notice_codes(below),
                text_of(below),
            )
            if came != (["first.txt", "notes.txt"], [TEXT_CALL] * len(again), "Read."):
                wrong[dialect] = came
    assert not wrong


async def test_every_dialect_runs_where_another_model_stands_in(tmp_path: Path) -> None:
    """The first has called natively in this conversation; the other never has, and its calls are believed."""
    wrong, model, other, time = dict[str, object](), Always(leaves_calls=False), Always(leaves_calls=False), Time()
    other.model = "other"
    route = time.route(time.handle(model), time.handle(other))
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, route, window=32_768) as served:
        for dialect in sorted(WRITERS):
            time.now += HOUR_S  # the failure before is forgotten
            model.add([NATIVELY], fails(404), "Done.")
            other.add([written(dialect, "notes.txt")], "Done.")
            events = await served.chat("Go.", tools=["read_file"], approval="auto")
            came = (
                [event["arguments"]["path"] for event in of_kind(events, "tool.started")],
                notice_codes(events),
                text_of(events),
            )
            if came[0] != ["first.txt", "notes.txt"] or TEXT_CALL in came[1] or came[2].strip() != "Done.":
                wrong[dialect] = came
    assert not wrong


async def test_in_a_thought_no_dialect_is_a_call(tmp_path: Path) -> None:
    wrong, model = dict[str, object](), Always(leaves_calls=False)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, window=32_768) as served:
        for dialect in sorted(WRITERS):
            model.add([NATIVELY], [f"<think>Shall I?\n{written(dialect, 'no')}\nNo.</think>\nIt is done."])
            events = await served.chat("Go.", tools=["read_file"], approval="auto")
            came = (
                [event["dialect"] for event in of_kind(events, "tool.started")],
                notice_codes(events),
                text_of(events).strip(),
            )
            if came != ([NATIVE], [], "It is done."):
                wrong[dialect] = came
    assert not wrong


@pytest.mark.parametrize("recognised", at_night((True, False), (False,)))
async def test_a_relay_hands_over_every_dialect(tmp_path: Path, recognised: bool) -> None:
    """Also behind a native call of the same reply, where the model is known to call natively."""
    wrong, model = dict[str, object](), Always(leaves_calls=recognised)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, window=32_768) as served:
        for dialect in sorted(WRITERS):
            for first in ([], [NATIVELY]):
                model.add([*first, written(dialect, "notes.txt")])
                events = await relayed(served, [Message("user", "Go.", at=1.0)], READ_FILE)
                came = [one["arguments"] for one in of_kind(events, "tool.handed") if one["dialect"] != NATIVE]
                if came != [{"path": "notes.txt"}] or text_of(events).strip() or notice_codes(events):
                    wrong[f"{dialect} behind {len(first)}"] = came, text_of(events), notice_codes(events)
    assert not wrong


async def test_a_relay_leaves_a_quotation_in_the_text_where_it_stood(tmp_path: Path) -> None:
    wrong, model = dict[str, object](), Always(leaves_calls=False)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, window=32_768) as served:
        for dialect in sorted(WRITERS):
            call = written(dialect, "notes.txt")
            says = f"The page says:\n{call}\nand no more."
            model.add([NATIVELY, *(says[at : at + 7] for at in range(0, len(says), 7))])
            events = await relayed(served, [Message("user", f"Translate: {says}", at=1.0)], READ_FILE)
            handed = [one["arguments"] for one in of_kind(events, "tool.handed") if one["dialect"] != NATIVE]
            if handed or notice_codes(events) not in ([TEXT_CALL], []) or letters_of(events) != "".join(says.split()):
                wrong[dialect] = handed, notice_codes(events), text_of(events)
    assert not wrong


async def test_text_behind_a_call_that_came_twice_reaches_the_client_of_a_relay(tmp_path: Path) -> None:
    model = Native("m", [NATIVELY, "I read ", written("hermes", "first.txt"), "it now."])
    async with serving(tmp_path, model, window=32_768) as served:
        events = await relayed(served, [Message("user", "Go.", at=1.0)], READ_FILE)
    assert [one["dialect"] for one in of_kind(events, "tool.handed")] == [NATIVE]
    assert text_of(events) == events[-1]["text"] == "I read it now."

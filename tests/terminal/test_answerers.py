"""What stands between a run's events and whoever answers: the order of what is shown, and when asking ends."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable

import httpx2
import pytest
from rich.console import Console

from app.core.events import AgentEvent, ApprovalRequired, ApprovalResolved, Notice, RunFinished
from routes.terminal.event_client import Choices, Link
from routes.terminal.run_display import Answerer, Asking, Decision, NoAnswerer
from routes.terminal.screen import Screen
from routes.terminal.view import View

FIRST, SECOND = (
    ApprovalRequired(call, name, {}, "It asks.", 2_000_000_000.0) for call, name in (("c1", "one"), ("c2", "two"))
)
ENDED = RunFinished("answered", "", 1, 1, {})


class Person:
    """Answers with a wish once it is `ready`, and says of which calls it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ready = asyncio.Event()

    async def decision(self, wanted: ApprovalRequired) -> Decision:
        self.asked.append(wanted.call)
        await self.ready.wait()
        return {"decision": "approve"}


Answers = list[int | None]  # statuses; None: the connection is lost
Steps = Callable[[Asking, io.StringIO], Awaitable[None]]


def acted(answerer: Answerer, answers: Answers, steps: Steps) -> tuple[list[str], str]:
    """The decisions that were sent, to a server that gives these answers, and what was shown."""
    sent: list[str] = []
    out = io.StringIO()

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content)["decision"])
        status = answers.pop(0)
        if status is None:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(status, json={"error": {"message": f"No: {status}."}})

    async def act() -> None:
        transport = httpx2.MockTransport(answer)
        async with httpx2.AsyncClient(base_url="http://server", transport=transport) as client, asyncio.timeout(30):
            asking = Asking(Link(client, Choices()), Screen(Console(file=out), View(summary=False)), answerer)
            await steps(asking, out)
            await asking.close()

    asyncio.run(act())
    return sent, out.getvalue()


async def turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


def shows(*events: AgentEvent, ready: asyncio.Event | None = None) -> Steps:
    """Each event in turn; at the end the person answers, if there is one."""

    async def steps(asking: Asking, out: io.StringIO) -> None:
        for event in events:
            asking.show(event)
            await turns()
        if ready:
            ready.set()
            await turns()

    return steps


def test_what_comes_while_a_question_is_open_is_shown_after_it() -> None:
    person = Person()

    async def steps(asking: Asking, out: io.StringIO) -> None:
        await shows(FIRST, Notice("x", "Meanwhile."))(asking, out)
        assert "Meanwhile" not in out.getvalue() and person.asked == ["c1"]
        await shows(ApprovalResolved("c1", "expired", "nobody"))(asking, out)

    sent, shown = acted(person, [], steps)
    assert sent == [] and shown.index("Meanwhile") < shown.index("one did not run")


def test_one_question_after_the_other() -> None:
    person = Person()
    sent, shown = acted(person, [200, 200], shows(FIRST, SECOND, ready=person.ready))
    assert person.asked == ["c1", "c2"] and sent == ["approve", "approve"]
    assert shown.index("one wants") < shown.index("two wants")


def test_what_was_settled_before_its_turn_is_not_asked() -> None:
    person = Person()
    events = (FIRST, SECOND, ApprovalResolved("c2", "denied", "ann"), ApprovalResolved("c1", "denied", "ann"))
    assert acted(person, [], shows(*events))[0] == []
    assert person.asked == ["c1"]


def test_the_end_of_the_run_ends_its_question() -> None:
    person = Person()
    sent, _ = acted(person, [], shows(FIRST, ENDED, ready=person.ready))
    assert (person.asked, sent) == (["c1"], [])


@pytest.mark.parametrize(
    ("answers", "asked"), [([409], 1), ([410], 1), ([404], 1), ([422, 200], 2), ([None, 503, 200], 3)]
)
def test_an_answer_that_is_not_taken_is_asked_for_again_where_that_is_of_use(answers: Answers, asked: int) -> None:
    person = Person()
    person.ready.set()
    told = [f"! No: {status}." for status in answers if status and status != 200]
    sent, shown = acted(person, answers, shows(FIRST))
    assert len(sent) == len(person.asked) == asked and answers == []
    assert [line for line in shown.splitlines() if line.startswith("! No")] == told


def test_nobody_does_not_insist(capsys: pytest.CaptureFixture[str]) -> None:
    sent, shown = acted(NoAnswerer(), [None, 200], shows(FIRST, SECOND))
    assert sent == ["deny", "deny"] and "Your answer did not arrive" in shown
    assert capsys.readouterr().err.count("--approval") == 1

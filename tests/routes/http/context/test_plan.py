"""The model's plan: shown whole each time, bounded, and read again once the conversation was trimmed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.context.current_plan import REMINDER, latest_call, reminder
from app.core.messages import AskedCall, Message
from app.models.scripted import Scripted
from routes.terminal.view import View, read_event
from tests.support.server.events import of_kind
from tests.support.server.serving import serving
from tools.builtin.plan import KEPT, MAX_STEP, MAX_STEPS, with_plain_steps

pytestmark = pytest.mark.anyio
LIMIT_S = 60
STEPS = [{"step": "Look", "state": "done"}, {"step": "Write", "state": "active"}, {"step": "Test", "state": "pending"}]


def planning(steps: object) -> str:
    return f"<tool_call>{json.dumps({'name': 'update_plan', 'arguments': {'steps': steps}})}</tool_call>"


FORMS = {
    "as described": STEPS,
    "texts": ["Look", "Write", "Test"],
    "the words of other agents": [
        {"content": "Look", "status": "completed", "activeForm": "Looking"},
        {"title": "Write", "status": "in progress"},
        {"step": "Test", "status": "todo"},
    ],
}


async def test_each_usual_form_becomes_one_event_with_all_steps(tmp_path: Path) -> None:
    script = [reply for steps in FORMS.values() for reply in (planning(steps), "So far.")]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script)) as served:
        for name in FORMS:
            events = await served.chat("x")
            expected = [one | {"state": "pending"} for one in STEPS] if name == "texts" else STEPS
            assert [event["steps"] for event in of_kind(events, "plan")] == [expected], name
            [finished] = of_kind(events, "tool.finished")
            assert finished["ok"] and KEPT in finished["text"]
            kinds = [event["type"] for event in events]
            assert kinds.index("tool.started") < kinds.index("plan") < kinds.index("tool.finished")


WRONG: dict[str, tuple[object, str]] = {
    "none": ([], "steps is empty"),
    "too many": (["x"] * (MAX_STEPS + 1), f"keep it to {MAX_STEPS}"),
    "too long": (["x" * (MAX_STEP + 1)], "Step 1 is too long"),
    "empty": ([STEPS[0], {"step": " "}], "Step 2 is empty"),
    "no list": ("Look", "steps"),
    "an unknown state": ([{"step": "Look", "state": "lost"}], "state"),
    "numbers": ([3], "steps"),
}


async def test_plans_that_cannot_be_kept_are_answered_and_not_shown(tmp_path: Path) -> None:
    script = [*(planning(steps) for steps, _ in WRONG.values()), "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script)) as served:
        events = await served.chat("x", max_rounds=20)
    assert not of_kind(events, "plan")
    answers = [event.get("text") or event["reason"] for event in events if event["type"] in ANSWERED]
    for (name, (_, expected)), answer in zip(WRONG.items(), answers, strict=True):
        assert expected in answer, name


ANSWERED = ("tool.finished", "tool.rejected")


@pytest.mark.parametrize("steps", [*FORMS.values(), *(steps for steps, _ in WRONG.values())])
def test_the_normal_form_is_reached_at_once(steps: Any) -> None:
    once = with_plain_steps({"steps": steps})
    assert with_plain_steps(once) == once


async def test_the_plan_is_read_again_once_the_conversation_was_trimmed(tmp_path: Path) -> None:
    chatter = "And then she wrote of engines, of numbers and of music. " * 30
    provider = Scripted([planning(STEPS), *[chatter] * 20])
    flags = {"window": "3072", "summarise_at": "1"}
    body: dict[str, Any] = {"tools": ["update_plan"]}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, None, **flags) as served:
        trimmed = False
        session: dict[str, str] = {}
        while not trimmed:
            events = await served.chat("Go on.", **body, **session)
            session = {"session": events[0]["session"]}
            trimmed = bool(of_kind(events, "context.trimmed"))
        await served.chat("Go on.", **body, **session)
    before, last = provider.requests[1].messages, provider.requests[-1].messages
    assert not any(REMINDER in message.text for message in before), "it stands in the history"
    assert last[-1].text.startswith(REMINDER) and "2. [active] Write" in last[-1].text, "and comes last afterwards"


def history(steps: object, *, text: str = KEPT) -> list[Message]:
    call = AskedCall("c1", "update_plan", {"steps": steps}, "native")
    return [Message("assistant", "", calls=(call,)), Message("tool", text, call="c1", name="update_plan")]


def test_only_a_plan_that_was_kept_and_is_not_done_is_repeated() -> None:
    kept = history(STEPS)
    assert reminder(kept, ()) and not reminder(kept, kept)
    assert not reminder(history([{"step": "Look", "state": "done"}]), ())
    assert latest_call(history(STEPS, text="Step 1 is empty.")) is None
    foreign: list[object] = ["Look", [{}], [{"step": "x", "state": "lost"}], None, ["x"] * (MAX_STEPS + 1)]
    assert not any(latest_call(history(steps)) for steps in foreign), "messages that a client brings may be anything"
    assert latest_call([*kept, *history([])]) == kept[0].calls[0]


def test_the_terminal_prints_it_with_marks() -> None:
    event = read_event("plan", json.dumps({"type": "plan", "steps": [*STEPS, {"step": "\x1b[2J"}]}))
    assert event
    lines = [text.plain for text in View(summary=False).apply(event, 0.0)]
    assert "".join(lines) == "  ☑ Look\n  ▶ Write\n  ☐ Test\n  ☐ \n"


async def test_a_small_model_is_offered_the_plan_only_by_name(tmp_path: Path) -> None:
    """More tools in its prompt make the smallest model repeat its calls."""
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi.", "Hi."]), window="8192") as served:
        few, named = await served.chat(), await served.chat(tools=["update_plan", "ask_user"])
    assert not {"update_plan", "ask_user"} & {*few[0]["tools"]} and "bash" in few[0]["tools"]
    assert sorted(named[0]["tools"]) == ["ask_user", "update_plan"]

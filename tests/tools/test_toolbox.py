"""The one dispatcher: both layers of the gate, the schema, and exactly one result whatever happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tools.base.outcome import Progress, Result, ToolFailed
from tools.base.rights import Risk
from tools.tool import Context, Tool, answering
from tools.toolbox import OTHERWISE, Allow, Decision, Refuse, Toolbox

Seen = list[Progress | Result]
ANY = {"type": "object", "properties": {"text": {"type": "string"}}}


async def _echo(arguments: dict[str, Any], _: Context) -> str:
    return str(arguments.get("text", ""))


async def _failing(_: dict[str, Any], __: Context) -> str:
    raise ToolFailed("There is no such thing: try another.")


async def _breaking(_: dict[str, Any], __: Context) -> str:
    raise KeyError("inner")


async def _silent(_: dict[str, Any], __: Context) -> AsyncGenerator[Progress | Result, None]:
    yield Progress(1.0)


async def _talkative(_: dict[str, Any], __: Context) -> AsyncGenerator[Progress | Result, None]:
    yield Progress(1.0)
    yield Result(True, "first")
    yield Result(True, "second")


async def _breaking_while_closing(_: dict[str, Any], __: Context) -> AsyncGenerator[Progress | Result, None]:
    try:
        yield Result(True, "done")
    finally:
        raise OSError("could not tidy up")


TOOLS = [
    Tool("echo", "", ANY, Risk.READ, answering(_echo)),
    Tool("failing", "", ANY, Risk.READ, answering(_failing)),
    Tool("breaking", "", ANY, Risk.READ, answering(_breaking)),
    Tool("silent", "", ANY, Risk.READ, _silent),
    Tool("talkative", "", ANY, Risk.READ, _talkative),
    Tool("untidy", "", ANY, Risk.READ, _breaking_while_closing),
    Tool("admin_echo", "", ANY, Risk.ADMIN, answering(_echo)),
]
ALL = "There are: echo, failing, breaking, silent, talkative, untidy."


def no_admin(tool: Tool, _: dict[str, Any] | None) -> Decision:
    return Refuse("It belongs to admins.") if tool.risk is Risk.ADMIN else Allow()


def seen_of(name: str, arguments: dict[str, Any], toolbox: Toolbox) -> Seen:
    async def main() -> Seen:
        async with asyncio.timeout(30), aclosing(toolbox.run(name, arguments, Context(Path("/")))) as news:
            return [seen async for seen in news]

    return asyncio.run(main())


@pytest.fixture
def toolbox() -> Toolbox:
    return Toolbox(TOOLS, no_admin)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("echo", [Result(True, "hello")]),
        ("failing", [Result(False, "There is no such thing: try another.")]),
        (
            "breaking",
            [Result(False, "breaking broke: KeyError('inner'). Try another way.", advice=OTHERWISE)],
        ),
        (
            "silent",
            [
                Progress(1.0),
                Result(False, "silent ended without a result. Try another way.", advice=OTHERWISE),
            ],
        ),
        ("talkative", [Progress(1.0), Result(True, "first")]),
        (
            "untidy",
            [Result(False, "untidy broke: OSError('could not tidy up'). Try another way.", advice=OTHERWISE)],
        ),
    ],
)
def test_every_call_ends_with_exactly_one_result(toolbox: Toolbox, name: str, seen: Seen) -> None:
    assert seen_of(name, {"text": "hello"}, toolbox) == seen


def test_a_tool_that_breaks_is_logged_with_its_traceback(toolbox: Toolbox, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        seen_of("breaking", {}, toolbox)
        seen_of("failing", {}, toolbox)
    (record,) = caplog.records
    assert record.getMessage() == "the tool breaking broke" and record.exc_info


def test_what_is_refused_is_not_offered(toolbox: Toolbox) -> None:
    assert [tool.name for tool in toolbox.offered] == [tool.name for tool in TOOLS if tool.risk is not Risk.ADMIN]
    assert toolbox.schemas == {tool.name: ANY for tool in toolbox.offered}


def test_what_is_refused_does_not_run_although_the_model_names_it(toolbox: Toolbox) -> None:
    assert seen_of("admin_echo", {"text": "ran"}, toolbox) == [
        Result(False, f"admin_echo may not be used: It belongs to admins. {ALL}")
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ehco", "No tool is called 'ehco'. There are: echo."),
        ("Echo", "No tool is called 'Echo'. There are: echo."),
        ("zzz", f"No tool is called 'zzz'. {ALL}"),
        ("", f"No tool is called ''. {ALL}"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(toolbox: Toolbox, name: str, text: str) -> None:
    assert seen_of(name, {}, toolbox) == [Result(False, text)]


MCP = [
    Tool(name, "", ANY, Risk.READ if rights else Risk.ADMIN, answering(_echo))
    for name, rights in (
        ("mcp__demo__add", True),
        ("mcp__calendar__create-event", True),
        ("mcp__cal_x__move_event_0123456789", True),
        ("mcp__vault__add", False),
        ("web_search", True),
        ("mcp__wiki__search", True),
    )
]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("add", "mcp__demo__add"),
        ("demo.add", "mcp__demo__add"),
        ("Demo__Add", "mcp__demo__add"),
        ("mcp__other__add", "mcp__demo__add"),
        ("mcp__calendar__create_event", "mcp__calendar__create-event"),
        ("createEvent", "mcp__calendar__create-event"),
        ("move_event", "mcp__cal_x__move_event_0123456789"),
        ("search", "mcp__wiki__search, web_search"),
        ("browse", "mcp__demo__add, mcp__calendar__create-event, mcp__cal_x__move_event_0123456789"),
    ],
)
def test_a_tool_of_a_server_is_named_by_the_part_behind_it(name: str, near: str) -> None:
    (result,) = seen_of(name, {}, Toolbox(MCP, no_admin))
    assert isinstance(result, Result) and result.text.startswith(f"No tool is called {name!r}. There are: {near}")
    assert "mcp__vault__add" not in result.text


def test_very_many_tools_are_looked_through_without_end() -> None:
    """Letter by letter only some of them are compared."""
    tools = [Tool(f"mcp__many__tool_number_{n}_of_all", "", ANY, Risk.READ, answering(_echo)) for n in range(5000)]
    (result,) = seen_of("tool number 4999 of all", {}, Toolbox(tools, no_admin))
    assert isinstance(result, Result) and "There are: mcp__many__tool_number_4999_of_all" in result.text


@pytest.mark.parametrize("name", ["admin_ech", "admin", "admin_echo2", "x" * 100_000, "\ud800\0"])
def test_no_answer_names_what_is_not_offered(toolbox: Toolbox, name: str) -> None:
    (result,) = seen_of(name, {}, toolbox)
    assert isinstance(result, Result) and not result.ok and len(result.text) < 300
    assert "admin_echo" not in result.text.replace(repr(name), "")


def test_of_very_many_tools_only_some_are_named() -> None:
    toolbox = Toolbox([Tool(f"tool_{n}", "", ANY, Risk.READ, answering(_echo)) for n in range(500)], no_admin)
    (result,) = seen_of("zzz", {}, toolbox)
    assert isinstance(result, Result) and result.text.endswith("tool_18, tool_19 and 480 more.")


def test_without_any_tool_the_answer_says_so() -> None:
    toolbox = Toolbox(TOOLS, lambda *_: Refuse("No."))
    (result,) = seen_of("bash", {}, toolbox)
    assert isinstance(result, Result) and "There are no tools" in result.text


def test_the_gate_is_asked_again_when_a_call_runs() -> None:
    answers: Iterator[Decision] = iter([*[Allow()] * len(TOOLS), *[Refuse("Not any more.")] * 100])
    toolbox = Toolbox(TOOLS, lambda *_: next(answers))
    assert "echo" in toolbox.schemas
    (result,) = seen_of("echo", {"text": "ran"}, toolbox)
    assert isinstance(result, Result) and "Not any more." in result.text


def test_arguments_are_checked_before_the_tool_runs(toolbox: Toolbox) -> None:
    (result,) = seen_of("breaking", {"text": 3}, toolbox)
    assert isinstance(result, Result) and not result.ok and "text was given 3, wanted string" in result.text


def test_leaving_closes_the_tool() -> None:
    closed = []

    async def endless(_: dict[str, Any], __: Context) -> AsyncGenerator[Progress | Result, None]:
        try:
            while True:
                yield Progress(0.0)
        finally:
            closed.append(True)

    async def main() -> None:
        toolbox = Toolbox([Tool("endless", "", ANY, Risk.READ, endless)], no_admin)
        async with aclosing(toolbox.run("endless", {}, Context(Path("/")))) as news:
            await anext(news)

    asyncio.run(main())
    assert closed == [True]


@pytest.mark.parametrize(
    ("server_tool", "text"),
    [
        ("web_fetch", "No tool is called 'web_search'. Set it up."),
        ("mcp__pages__web_search", "No tool is called 'web_search'. There are: mcp__pages__web_search."),
    ],
)
def test_a_tool_that_the_settings_could_add_is_named_so_unless_a_server_has_it(server_tool: str, text: str) -> None:
    toolbox = Toolbox([Tool(server_tool, "", ANY, Risk.READ, answering(_echo))], no_admin)
    toolbox.lacking = {"web_search": "Set it up."}
    assert seen_of("web_search", {}, toolbox) == [Result(False, text)]

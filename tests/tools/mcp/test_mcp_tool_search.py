"""Tool search: tools that do not fit into the context are found by words, and called with their own rights."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from parsing import Arguments
from tools.base.outcome import Result
from tools.base.rights import Risk
from tools.mcp import tool_search
from tools.mcp.tool_index import Index
from tools.mcp.tool_search import CALL, FEW, MOST_SESSIONS, SEARCH, ToolChoices, toolbox_within
from tools.tool import Context, Tool, ToolList, answering, tokens_of
from tools.toolbox import Allow, Ask, Decision, Refuse, Toolbox, offered_by

pytestmark = pytest.mark.anyio


async def _echo(arguments: Arguments, _: Context) -> str:
    return f"ran {arguments}"


def tool(name: str, description: str = "Does it.", **properties: Mapping[str, Any]) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name, description, schema, Risk.ADMIN, answering(_echo))


BASH = tool("bash", "Run a command.")
NUMBER = {"type": "integer"}
MCP = [
    tool("mcp__git__git_commit", "Records changes to the repository"),
    tool("mcp__git__git_log", "Shows the commit history", max_count=NUMBER),
    tool("mcp__hub__createPullRequest", "Opens a request to merge"),
    tool("mcp__time__get_current_time", "Current time in a timezone", timezone={"type": "string"}),
    tool("mcp__vault__read_secret", "Reads a secret; commit nothing"),
]
SOURCES = {
    name: [one.name for one in MCP if one.name.startswith(f"mcp__{name}__")] for name in ("git", "hub", "time", "vault")
}


def gate(one: Tool, _: Arguments | None) -> Decision:
    if one.name.startswith("mcp__vault"):
        return Refuse("it is not for you.")
    return Ask("It asks.") if one.name == "mcp__git__git_commit" else Allow()


def boxed(limit: float) -> Toolbox:
    return toolbox_within(limit, [BASH, *MCP], gate, "ann", SOURCES)


def names(toolbox: Toolbox) -> list[str]:
    return [one.name for one in toolbox.offered]


async def said(toolbox: Toolbox, name: str, arguments: Arguments) -> Result:
    name, arguments = toolbox.normalise_call(name, arguments)
    async with aclosing(toolbox.run(name, arguments, Context(Path()))) as seen:
        [result] = [step async for step in seen if isinstance(step, Result)]
    return result


def test_they_give_way_when_they_are_more_than_the_limit() -> None:
    usable = MCP[:4]
    assert names(boxed(tokens_of(usable))) == ["bash", *(one.name for one in usable)]
    small = boxed(tokens_of(usable) - 1)
    assert names(small) == ["bash", SEARCH, CALL]
    assert "git, hub, time" in small.offered[1].description
    assert "vault" not in small.offered[1].description, "what may not be used is not told of"


def test_no_definition_is_told_of_tools_that_nobody_may_use() -> None:
    toolbox = toolbox_within(0, [BASH, MCP[4]], gate, "ann", SOURCES)
    assert names(toolbox) == ["bash"]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("commit", "mcp__git__git_commit"),
        ("commit history", "mcp__git__git_log"),
        ("open a pull request", "mcp__hub__createPullRequest"),
        ("what time is it", "mcp__time__get_current_time"),
        ("timezones", "mcp__time__get_current_time"),
        ("repo", "mcp__git__git_commit"),
        ("mcp__git__git_log", "mcp__git__git_log"),
        ('max_count" OR NEAR(', "mcp__git__git_log"),
    ],
)
def test_what_is_sought_comes_first(query: str, best: str) -> None:
    assert Index(MCP[:4]).best(query, 3)[0].name == best


@pytest.mark.parametrize("query", ["", "   ", "zebra", '"', "*", "NOT", "a" * 10_000, "\ud800", "日本語"])
def test_what_cannot_be_found_breaks_nothing(query: str) -> None:
    assert Index(MCP[:4]).best(query, 3) == []


async def test_a_search_tells_only_what_may_be_used() -> None:
    found = await said(boxed(0), SEARCH, {"query": "commit secret time"})
    assert found.ok
    assert "mcp__git__git_commit: Records changes" in found.text
    assert '"max_count":{"type":"integer"}' in (await said(boxed(0), SEARCH, {"query": "history"})).text
    assert "vault" not in found.text


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("git_log", "mcp__git__git_log (call it with call_tool)"),
        ("git__git_log", "mcp__git__git_log (call it with call_tool)"),
        ("mcp__git__git-log", "mcp__git__git_log (call it with call_tool)"),
        ("mcp__hub__create_pull_request", "mcp__hub__createPullRequest (call it with call_tool)"),
        ("mcp__github__create-pull-request", "mcp__hub__createPullRequest (call it with call_tool)"),
        ("shell", "bash"),
        ("grep", "bash"),
        ("read_secret", None),
        ("mcp__vault__read-secret", None),
    ],
)
async def test_an_unknown_name_is_answered_with_a_tool_that_is_not_listed(name: str, near: str | None) -> None:
    """But never with one that may not be used."""
    result = await said(boxed(40), name, {})
    hint = result.text.removeprefix(f"No tool is called {name!r}. There are: ")
    assert not result.ok and "mcp__vault__read_secret" not in hint
    assert hint == (f"{near}." if near else "bash, search_tools, call_tool.")


async def test_a_search_follows_the_gate_of_the_moment() -> None:
    refused: set[str] = set()
    toolbox = toolbox_within(0, MCP, lambda one, _: Refuse("no.") if one.name in refused else Allow(), "ann", SOURCES)
    assert "git_commit" in (await said(toolbox, SEARCH, {"query": "commit"})).text
    refused.add("mcp__git__git_commit")
    assert "git_commit" not in (await said(toolbox, SEARCH, {"query": "commit"})).text


async def test_a_call_through_the_door_is_the_call_itself() -> None:
    toolbox = boxed(0)
    asked = {"name": "mcp__git__git_log", "arguments": {"max_count": 3}}
    assert toolbox.normalise_call(CALL, asked) == ("mcp__git__git_log", {"max_count": 3})
    assert (await said(toolbox, CALL, asked)).text == "ran {'max_count': 3}"
    assert (await said(toolbox, "mcp__git__git_log", {"max_count": 3})).ok, "without the door, too"
    assert toolbox.normalise_call(CALL, {"name": "mcp__git__git_log", "max_count": 3})[1] == {"max_count": 3}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": "mcp__vault__read_secret", "arguments": {}}, "may not be used"),
        ({"name": "mcp__git__git_commit", "arguments": {}}, "is not approved"),
        ({"name": "mcp__git__git_log", "arguments": {"max_count": "many"}}, "max_count"),
        ({"name": "nothing", "arguments": {}}, "No tool is called 'nothing'"),
        ({"name": CALL, "arguments": {"name": "mcp__vault__read_secret", "arguments": {}}}, "Give the name"),
        ({"name": "bash", "arguments": "x"}, "do not fit"),
        ({"arguments": {}}, "do not fit"),
        ({"name": ["bash"], "arguments": {}}, "do not fit"),
    ],
)
async def test_the_door_opens_nothing_that_is_closed(arguments: dict[str, Any], told: str) -> None:
    result = await said(boxed(0), CALL, arguments)
    assert told in result.text
    assert "ran" not in result.text


async def test_the_door_itself_runs_nothing() -> None:
    toolbox = boxed(0)
    asked = {"name": "mcp__git__git_log", "arguments": {"max_count": 3}}
    async with aclosing(toolbox.run(CALL, asked, Context(Path()))) as seen:
        [result] = [step async for step in seen]
    assert isinstance(result, Result)
    assert "ran" not in result.text


async def test_what_is_listed_does_not_depend_on_what_was_found() -> None:
    toolbox = boxed(0)
    before = [(one.name, one.description, one.parameters) for one in toolbox.offered]
    assert (await said(toolbox, SEARCH, {"query": "history"})).ok
    assert [(one.name, one.description, one.parameters) for one in toolbox.offered] == before
    assert "mcp__git__git_log" in toolbox.schemas, "a call of what was found is understood in every dialect"


async def chosen(
    choices: ToolChoices, session: str, message: str, limit: float = 40, principal: str = "ann"
) -> list[str]:
    """The MCP tools that a session is shown: each run has a toolbox of its own."""
    toolbox = toolbox_within(limit, [BASH, *MCP], gate, principal, SOURCES, choices=choices)
    await toolbox.choose(session, message)
    assert {"bash", SEARCH, CALL} <= {*names(toolbox)}
    return [name for name in names(toolbox) if name.startswith("mcp__")]


async def test_a_session_is_shown_the_few_that_fit_its_first_message() -> None:
    choices = ToolChoices()
    assert await chosen(choices, "s1", "What time is it in Rome?") == ["mcp__time__get_current_time"]
    assert await chosen(choices, "s1", "Show the commit history.") == ["mcp__time__get_current_time"], "in all its runs"
    assert await chosen(choices, "s2", "Show the commit history.") == ["mcp__git__git_log"]
    assert await chosen(choices, "s3", "Hello!") == []
    assert await chosen(choices, "s4", "secrets of the vault") == [], "what may not be used is not shown"
    assert await chosen(choices, "s5", "Show the commit history.", limit=5) == [], "nor what does not fit"
    assert await chosen(ToolChoices(), "s1", "Show the commit history.") == ["mcp__git__git_log"], "after a restart"


class Known:
    """Knows the order in which tools fit any text."""

    def __init__(self, *nearest: str) -> None:
        self.order = nearest

    async def nearest(self, _: str, others: Mapping[str, str]) -> list[str]:
        assert others["mcp__git__git_log"] == "git log: Shows the commit history"
        return [f"mcp__{one}" for one in self.order]


async def test_what_words_cannot_find_is_found_by_meaning() -> None:
    choices = ToolChoices(Known("time__get_current_time", "git__git_log"))
    assert await chosen(choices, "s1", "Wie spät ist es?") == ["mcp__time__get_current_time"]
    assert "mcp__git__git_commit" in await chosen(choices, "s2", "commit changes"), "words that are known go first"
    toolbox = toolbox_within(0, MCP, gate, "ann", SOURCES, choices=choices)
    assert "time__get_current_time" in (await said(toolbox, SEARCH, {"query": "Uhrzeit"})).text
    nothing_yet = ToolChoices(Known())
    assert await chosen(nothing_yet, "s1", "Show the commit history.") == ["mcp__git__git_log"]


VERBS = [
    tool("mcp__disk__remove_directory", "Takes it away."),
    tool("mcp__disk__create_directory", "Makes one."),
    tool("mcp__disk__list_directory", "Names what is in it."),
]


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("Show me my folders", "list"),
        ("What is in the directory /tmp?", "list"),
        ("Get rid of this folder, and show me the others", "remove"),
        ("delete directories", "remove"),
        ("Make a folder called invoices", "create"),
        ('Add a folder "remove"', "create"),
    ],
)
def test_verbs_and_nouns_are_found_by_others_that_mean_the_same(text: str, best: str) -> None:
    assert Index(VERBS).best(text, 3)[0].name == f"mcp__disk__{best}_directory"


def test_what_a_text_is_about_counts_as_its_kind() -> None:
    index = Index([tool("mcp__a__open_url"), tool("mcp__b__send_email"), tool("mcp__c__remove_file"), *VERBS])
    for text, name in (
        ("https://example.org/remove/file", "open_url"),
        ("ann@example.org", "send_email"),
        ("look at plan.xlsx", "remove_file"),
    ):
        assert index.best(text, 1)[0].name.endswith(name)


async def test_each_server_has_a_share_of_what_is_shown() -> None:
    many = [tool(f"mcp__big__report_{number}", "A report of sales") for number in range(9)]
    few = tool("mcp__small__sales", "Sends a report")
    sources = {"big": [one.name for one in many], "small": [few.name]}
    room = tokens_of([*many[:FEW], few])
    toolbox = toolbox_within(room, [*many, few], gate, "ann", sources, choices=ToolChoices())
    await toolbox.choose("s", "sales report 1 of the big one")
    listed = [name for name in names(toolbox) if name.startswith("mcp__")]
    assert few.name in listed and len(listed) == FEW
    alone = toolbox_within(room, many, gate, "ann", {"big": sources["big"]}, choices=ToolChoices())
    await alone.choose("s", "sales report 1")
    assert len([name for name in names(alone) if name.startswith("mcp__")]) == FEW


async def test_what_was_used_lately_is_shown_to_its_principal() -> None:
    choices = ToolChoices()
    toolbox = toolbox_within(0, [BASH, *MCP], gate, "ann", SOURCES, choices=choices)
    assert (await said(toolbox, "mcp__hub__createPullRequest", {})).ok
    assert await chosen(choices, "s1", "Hello!") == ["mcp__hub__createPullRequest"]
    assert await chosen(choices, "s2", "Hello!", principal="bob") == []
    lost = toolbox_within(40, [BASH, *MCP[:2]], gate, "ann", {"git": SOURCES["git"]}, choices=choices)
    await lost.choose("s3", "Hello!")
    assert names(lost) in (["bash", *(one.name for one in MCP[:2])], ["bash", SEARCH, CALL]), "it may be gone"


async def test_no_other_run_waits_while_tools_are_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[int]()

    class Recording(Index):
        def __init__(self, tools: Sequence[Tool]) -> None:
            threads.append(threading.get_ident())
            super().__init__(tools)

    monkeypatch.setattr(tool_search, "Index", Recording)
    await said(boxed(1), SEARCH, {"query": "commit"})
    assert len(threads) == 1 and threads[0] != threading.get_ident()


async def test_the_choice_of_a_session_stays_in_its_order() -> None:
    choices = ToolChoices()
    toolbox = toolbox_within(60, [BASH, *MCP], gate, "ann", SOURCES, choices=choices)
    await toolbox.choose("s", "commit history")
    before = names(toolbox)
    assert before == ["bash", "mcp__git__git_commit", "mcp__git__git_log", SEARCH, CALL], (
        "in the order of the catalogue"
    )
    await toolbox.choose("s", "time")
    assert names(toolbox) == before


async def test_only_so_many_sessions_are_remembered() -> None:
    async def first() -> list[Tool]:
        return MCP[:1]

    async def none() -> list[Tool]:
        return []

    choices = ToolChoices()
    for number in range(MOST_SESSIONS + 5):
        await choices.choose(f"s{number}", "ann", 100, MCP, first)
    assert await choices.choose("s0", "ann", 100, MCP, none) == frozenset()
    assert await choices.choose(f"s{MOST_SESSIONS}", "ann", 100, MCP, none) == {MCP[0].name}


async def test_an_accepted_plan_lists_no_more_than_there_is_room_for() -> None:
    """Before, hardly any of the tools may be used, so that all of them would fit."""
    planning, choices = True, ToolChoices()

    def plan_gate(one: Tool, arguments: Arguments | None) -> Decision:
        return Refuse("plan first.") if planning and one.name.startswith("mcp__") else gate(one, arguments)

    later = offered_by(gate)(ToolList(MCP))
    toolbox = toolbox_within(40, [BASH, *MCP], plan_gate, "ann", SOURCES, choices=choices, later=later)
    await toolbox.choose("s", "Show the commit history.")
    assert names(toolbox) == ["bash", SEARCH, CALL]
    assert not (await said(toolbox, CALL, {"name": "mcp__git__git_log", "arguments": {}})).ok
    planning = False
    assert names(toolbox) == ["bash", "mcp__git__git_log", SEARCH, CALL]
    assert (await said(toolbox, "mcp__time__get_current_time", {"timezone": "Rome"})).ok

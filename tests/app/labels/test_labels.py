"""Labels in parts: patterns of paths, the words of commands, the limits of calls, settings, and routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.settings import load_settings
from app.config.sources import SettingsError
from app.core.labels import Clearance, LabelRule, LabelSource, joined, policy_of
from app.core.provider import ProviderFailed
from app.labels.paths import LabelledPaths
from app.labels.run_labels import OWN, known_tools
from app.labels.shell_reads import files_read
from app.policy.gate import decide
from app.policy.label_limits import limits_of
from app.policy.policy_context import PolicyContext
from app.storage.principals import Principal
from tests.support.models.targets import Time, model
from tests.support.models.targets import heard as heard_in
from tools.base.rights import Origin, OutboundEffect, Risk, Role
from tools.catalogue import TOOLS
from tools.tool import Tool, answering
from tools.toolbox import Allow, Ask, Refuse

pytestmark = pytest.mark.anyio
ROOT = Path("/w")

MATCHES = {
    "customers/**": ["customers/a", "customers/b/c", "CUSTOMERS/A", "people/bob/customers/a"],
    "customers": ["customers", "customers/a", "x/customers/b"],
    "*.secret": ["a.secret", "x/y/b.SECRET", "c.secret/inside"],
    "a/*/c.txt": ["a/b/c.txt", "people/ann/a/b/c.txt"],
    "a/**/c.txt": ["a/c.txt", "a/b/d/c.txt"],
    "**/notes": ["notes", "x/notes/y"],
    "caf\u00e9/**": ["cafe\u0301/menu"],
    "a?c/**": ["abc/x"],
    "a[1]/**": ["a[1]/x"],
}
OTHERS = {
    "customers/**": ["customers", "customer/a", "x/customers/a", "customersx/a"],
    "customers": ["customers2", "mycustomers/a"],
    "*.secret": ["secret", "a.secrets"],
    "a/*/c.txt": ["a/c.txt", "a/b/d/c.txt", "x/a/b/c.txt"],
    "a[1]/**": ["a1/x"],
}


def labels_in(pattern: str, path: str) -> frozenset[str]:
    return LabelledPaths(ROOT, [LabelSource(label="x", paths=(pattern,))]).labels(path)


def test_patterns_match_files_and_all_below_a_folder() -> None:
    for pattern, paths in MATCHES.items():
        assert [path for path in paths if labels_in(pattern, path) != {"x"}] == [], pattern
    for pattern, paths in OTHERS.items():
        assert [path for path in paths if labels_in(pattern, path)] == [], pattern


READ = {
    "echo a; pwd": [],
    "cat a b | head -n 3": ["a", "b", "3"],
    "ls": ["."],
    "ls -la x": ["x"],
    "date": [],
}
DOUBTFUL = (
    *("cat *", "cat $x", "cat <a", "cat `ls`", "cat $(ls)", "cd a; cat b", "grep x a", "python x.py", "date -f a"),
    *("wc --files0-from=a", "ls -R", "cat ~/a", "cat {a,b}", "eval cat a", ". a", "cp a b", "hostname -F a", "tar c ."),
    *(
        "c\\at a",
        "'cat' a",
        "cat a &",
        "(cat a)",
        "if true; then cat a; fi",
        "x=cat; $x a",
        "cat a\x00",
        "tail -f a #\x01",
    ),
)


def test_what_a_command_reads_is_known_of_plain_words_only() -> None:
    for command, paths in READ.items():
        reads = files_read(command)
        assert reads is not None and [one.path for one in reads] == paths, command
    assert [command for command in DOUBTFUL if files_read(command) is not None] == []


@given(st.lists(st.frozensets(st.sampled_from("abc"))), st.frozensets(st.sampled_from("abc")))
def test_joining_loses_no_label(parts: list[frozenset[str]], more: frozenset[str]) -> None:
    whole = joined(*parts, more)
    assert all(part <= whole for part in parts) and more <= whole
    assert whole == joined(more, *reversed(parts)) == joined(whole, whole)


def test_every_built_in_tool_has_a_place_in_the_table() -> None:
    assert {tool.name for tool in TOOLS if tool.risk is not Risk.ADMIN} - known_tools() <= UNLISTED
    assert known_tools() >= OWN


UNLISTED = frozenset[str]()  # tools of the catalogue that count as showing everything


def tool(name: str, risk: Risk = Risk.NETWORK, **more: Any) -> Tool:
    return Tool(name, "", {"type": "object"}, risk, answering(said), Role.USER, **more)


async def said(arguments: object, context: object) -> str:
    return ""


SENDS = tool("sends", confined=True, leaves=lambda _, __: OutboundEffect("It sends text.", carries_text=True))
CRM = tool("mcp__crm__find", origin=Origin("crm", "find"))
OTHER = tool("mcp__web__find", origin=Origin("web", "find"))


def test_calls_that_leave_ask_or_are_refused() -> None:
    ann = Principal("ann", Role.ADMIN)
    source = LabelSource(label="customer", servers=("crm",))

    def decided(one: Tool, **rule: Any) -> type[object]:
        policy = policy_of([source], [LabelRule(label="customer", **rule)] if rule else [])
        context = PolicyContext(boxed=True, labels=limits_of(policy, {"customer"}, 1.0))
        return type(decide(ann, one, {"url": "http://a.example/"}, context))

    assert decided(SENDS) is decided(OTHER) is Ask
    assert decided(SENDS, outward="refuse") is decided(OTHER, outward="refuse") is Refuse
    assert decided(CRM, outward="refuse") is Ask  # as without the label: its server has the data anyway
    assert decided(OTHER, refuse_tools=("mcp__web__*",)) is Refuse
    quiet = tool("quiet", confined=True, risk=Risk.WRITE)
    assert decided(quiet) is decided(quiet, outward="refuse") is Allow


MALFORMED = (
    'labels = [{label = "A"}]',
    'labels = [{name = "a"}]',
    'labels = "a"',
    'label_rules = [{label = "a", otherwise = "x"}]',
)


def test_settings_that_contradict_each_other_stop_the_start(tmp_path: Path) -> None:
    wrong = """
labels = [{label = "a", paths = ["/etc/*", "b/../c", "x**y"]}, {label = "b"}]
label_rules = [{label = "c"}, {label = "b"}, {label = "b"}]
[endpoints.hosted]
url = "http://127.0.0.1:9/v1"
labels = ["d"]
"""
    (tmp_path / "dragoman.toml").write_text(wrong)
    with pytest.raises(SettingsError) as error:
        load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path)
    said = "\n".join(error.value.problems)
    for words in (
        "names the label c, which labels does not define. It defines a, b.",
        "has 2 rules for the label b",
        "endpoints.hosted.labels names d",
        "'/etc/*' of a is absolute",
        "'b/../c' of a has an empty part, . or ..",
        "'x**y' of a has ** inside of a name",
    ):
        assert words in said, words
    for line in MALFORMED:
        (tmp_path / "dragoman.toml").write_text(line)
        with pytest.raises(SettingsError):
            load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path)


async def test_a_route_asks_only_who_may_have_the_labels_and_nobody_while_they_are_unknown() -> None:
    policy = policy_of([LabelSource(label="a")], [LabelRule(label="a", endpoints=("local",))])
    time, hosted, local = Time(), model("hosted"), model("local")
    handles = time.handle(hosted, time.server("hosted")), time.handle(local, time.server("local"))
    for labels, wanted in ((frozenset[str](), "hosted"), (frozenset("a"), "local"), (None, "local")):
        route = time.route(*handles)
        route.clearance = Clearance(policy, labels)
        assert route.current.endpoint == wanted and route.counter is route.current.counter
    alone = time.route(handles[0])
    alone.clearance = Clearance(policy)
    for ask in (lambda: alone.counter, lambda: alone.check_labels()):
        with pytest.raises(ProviderFailed, match="may not have a"):
            ask()
    with pytest.raises(ProviderFailed, match="may not have a"):
        await heard_in(alone)
    with pytest.raises(ProviderFailed, match="may not have a"):
        await alone.count_tokens(["secret"])
    assert hosted.requests == []

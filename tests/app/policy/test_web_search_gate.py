"""web_search under the gate, as web_fetch; and its settings: which engine they name, and what is contradictory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.config.search_backend import search_tools
from app.config.search_settings import KINDS
from app.core.messages import AskedCall
from app.core.rules import ToolRule
from app.policy.canary import Canary
from app.policy.classification import Classification
from app.policy.gate import decide
from app.policy.grants import Grant
from app.policy.guards import CANARY, Guards
from app.policy.policy_context import PolicyContext
from app.storage.principals import Principal
from tests import ROOT
from tests.support.settings import load, problems
from tools.base.permit import fingerprint
from tools.base.rights import Origin, Risk, Role
from tools.builtin.web_search import SearchBackend, with_backend
from tools.catalogue import TOOLS, WEB_SEARCH
from tools.tool import Tool
from tools.toolbox import Allow, Ask, Refuse

ANN = Principal("ann", Role.USER)
FETCH = next(one for one in TOOLS if one.name == "web_fetch")
SEARCH = with_backend(WEB_SEARCH, SearchBackend(WEB_SEARCH.run, "search.example", "mcp__web__search"))
CALLS = [(FETCH, {"url": "https://example.org/?secret"}), (SEARCH, {"query": "the secret"})]
POLICIES = [
    PolicyContext(boxed=True),
    PolicyContext(boxed=True, tainted=True),
    PolicyContext(boxed=True, planning=True),
    PolicyContext(),
]


def kinds_of(tool: Tool, arguments: dict[str, Any]) -> list[type]:
    """What is decided on this call, in each policy and classification that there is."""
    rules = [
        ToolRule(match="*", risk=risk, approval=approval) for risk in Risk for approval in ("mode", "never", "always")
    ]
    grants = [
        (),
        (Grant(tool.name, fingerprint("ann", tool.name, arguments)),),
        (Grant(tool.name, fingerprint("ann", tool.name, arguments), tainted=True),),
        (Grant(tool.name, pattern=dict.fromkeys(arguments, "*"), tainted=True),),
    ]
    return [
        type(decide(ANN, rule.applied(tool), arguments, replace_policy(policy, given)))
        for policy in POLICIES
        for rule in rules
        for given in grants
    ]


def replace_policy(policy: PolicyContext, grants: tuple[Grant, ...]) -> PolicyContext:
    return PolicyContext(boxed=policy.boxed, tainted=policy.tainted, planning=policy.planning, grants=grants)


def test_a_query_is_decided_on_as_an_address_is() -> None:
    fetched, searched = (kinds_of(tool, arguments) for tool, arguments in CALLS)
    assert fetched == searched and {Allow, Ask, Refuse} == set(fetched)
    assert (SEARCH.risk, SEARCH.role, SEARCH.untrusted) == (FETCH.risk, FETCH.role, FETCH.untrusted)


def test_the_question_names_the_engine_and_the_taint() -> None:
    asked = decide(ANN, SEARCH, {"query": "tea"}, PolicyContext(boxed=True, tainted=True))
    assert isinstance(asked, Ask)
    assert asked.reason.startswith("search.example would get the query, with all that stands in it. This conversation")


@pytest.mark.parametrize("pattern", ["web_search", "mcp__web__*", "*"])
def test_it_is_disabled_with_the_mcp_tool_that_it_calls(pattern: str) -> None:
    in_session = PolicyContext(boxed=True, disabled=(pattern,))
    assert isinstance(decide(ANN, SEARCH, {"query": "tea"}, in_session), Refuse)
    for_ann = Principal("ann", Role.USER, disabled=(pattern,))
    assert isinstance(decide(for_ann, SEARCH, None), Refuse)
    assert isinstance(decide(ANN, SEARCH, None, PolicyContext(boxed=True, disabled=("mcp__other__*",))), Ask)
    assert isinstance(decide(ANN, replace(SEARCH, role=Role.ADMIN), None), Refuse)


def test_a_query_with_the_canary_is_blocked() -> None:
    canary = Canary()
    code = canary.line.rsplit(" ", 1)[-1].strip(".")
    blocked = Guards("ann", canary).objection(
        AskedCall("c", "web_search", {"query": f"x {code}"}, "native"), effect=True
    )
    assert blocked is not None and blocked.by == CANARY


SET = [
    # settings, the search engine, the host or tool that gets the queries
    ({}, None, ""),
    ({"search_url": "http://127.0.0.1:8888/"}, "searxng", "127.0.0.1:8888"),
    ({"search_kind": "Searxng", "search_url": "http://searx.example/sub"}, "searxng", "searx.example"),
    ({"search_kind": "brave", "search_key": "k"}, "brave", "api.search.brave.com"),
    ({"search_kind": "exa", "search_key": "k", "search_url": "https://proxy.example"}, "exa", "proxy.example"),
    ({"search_tool": "mcp__web__search"}, "mcp", "The MCP tool mcp__web__search"),
    ({"search_api": '{"url": "https://api.example/v1", "results": "items"}'}, "custom", "api.example"),
    (
        {"search_api": '{"key_parameter": "key"}', "search_url": "https://api.example", "search_key": "k"},
        "custom",
        "api.example",
    ),
]


@pytest.mark.parametrize(("flags", "kind", "place"), SET)
def test_the_settings_name_a_search_engine(
    tmp_path: Path, flags: dict[str, object], kind: str | None, place: str
) -> None:
    settings = load(tmp_path, flags).settings
    assert settings.search_engine == kind
    tools = search_tools(settings, tuple)
    assert [tool.name for tool in tools] == ([] if kind is None else ["web_search"])
    for tool in tools:
        left = tool.leaves({"query": "tea"}, tmp_path)
        assert left is not None and left.what.startswith(f"{place} would get the query")
        assert bool(tool.through) is (kind == "mcp")


def test_a_tool_that_a_server_invents_under_the_name_of_the_search_is_held(tmp_path: Path) -> None:
    settings = load(tmp_path, {"search_tool": "mcp__web__search"}).settings
    eased_by = Classification(search_tool=settings.search_tool or "").eased_by
    assert eased_by("mcp__web__search", Origin("web", "search")) == "the setting search_tool"
    assert not eased_by("mcp__web__other", Origin("web", "other"))


CONTRADICTIONS = [
    ({"search_key": "k"}, "search_key belongs to no search engine: set search_kind (searxng, brave, "),
    ({"search_kind": "searxng"}, "there is no address for it: set search_url"),
    ({"search_kind": "custom"}, "there is no address for it"),
    (
        {"search_kind": "tavily"},
        "search_kind is tavily, which needs a key: set search_key, best as DRAGOMAN_",
    ),
    ({"search_kind": "mcp"}, "set search_tool to the name of the tool"),
    ({"search_tool": "mcp__a__b", "search_url": "http://a"}, "search_url and search_key are not for search_kind mcp"),
    (
        {"search_kind": "searxng", "search_url": "http://a", "search_tool": "mcp__a__b"},
        "search_tool is for search_kind",
    ),
    (
        {"search_url": "http://a", "search_kind": "searxng", "search_api": '{"query": "q"}'},
        "search_api is for search_ki",
    ),
    ({"search_api": '{"url": "http://a", "result": "x"}'}, "search_api cannot be used: Object contains unknown field"),
    ({"search_api": '{"url": "http://a", "method": "PUT"}'}, "search_api cannot be used: Invalid enum value 'PUT'"),
    ({"search_api": '{"url": "http://a"}', "search_key": "k"}, "search_key is not used: name its place in search_api"),
    ({"search_api": '{"url": "http://a", "key_header": "X"}'}, "search_kind is custom, which needs a key"),
    ({"search_api": '{"url": "http://a", "key_header": "X: y", "keyless": true}'}, "key_header is no name of a header"),
    ({"search_api": '{"url": "http://a", "fixed": {"a": [1]}}'}, "fixed holds lists or tables, which only a POST"),
    ({"search_api": '["a"]'}, "search_api (flag --search-api) is"),
    ({"search_kind": "altavista"}, f"Allowed: {', '.join(KINDS)}."),
    ({"search_url": "ftp://a"}, "Allowed: an http or https URL"),
    ({"search_url": "embedded:"}, "Allowed: an http or https URL"),
    ({"search_kind": "exa", "search_key": "two words"}, "search_key (flag --search-key) is a value that is not shown"),
]


@pytest.mark.parametrize(("flags", "told"), CONTRADICTIONS)
def test_settings_that_name_no_engine_stop_the_start(tmp_path: Path, flags: dict[str, object], told: str) -> None:
    assert told in problems(tmp_path, flags)


def test_the_key_is_shown_nowhere(tmp_path: Path) -> None:
    environ = {"DRAGOMAN_SEARCH_KEY": "sk-hidden", "DRAGOMAN_SEARCH_KIND": "exa", "HOME": str(tmp_path)}
    assert "sk-hidden" not in repr(load(tmp_path, environ=environ).settings)
    command = [sys.executable, "-m", "routes.cli.main", "config"]
    shown = subprocess.run(
        command,
        env=environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "search_kind" in shown.stdout and "sk-hidden" not in shown.stdout + shown.stderr

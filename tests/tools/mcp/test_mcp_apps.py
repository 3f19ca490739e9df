"""Apps of servers: pages are read behind results within limits, pinned, and get only what an admin has allowed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp.faulty_servers import FIXTURES, PATIENT, managing, ready, result_of, tool
from tools.mcp import apps
from tools.mcp.apps import App
from tools.mcp.config.entries import parse_config
from tools.mcp.definitions import definition
from tools.mcp.model import MemoryPinStore, ServerConfig

pytestmark = pytest.mark.anyio
PAGE = "ui://clock/app.html"
NONE: dict[str, list[str]] = {"connectDomains": [], "resourceDomains": [], "frameDomains": [], "baseUriDomains": []}


def clock(fault: str = "none", *args: str, **more: Any) -> ServerConfig:
    return ServerConfig(
        "s", command=sys.executable, args=(str(FIXTURES / "apps.py"), fault, *args), **{"timeouts": PATIENT, **more}
    )


async def shown(name: str = "show", config: ServerConfig | None = None) -> App:
    async with managing(config or clock()) as manager:
        await ready(manager)
        result = await result_of(tool(manager, f"mcp__s__{name}"))
    assert result.ok and "has run" in result.text, "an app never fails a call"
    assert isinstance(result.app, App)
    return result.app


@pytest.mark.parametrize("name", ["show", "legacy"])
async def test_a_page_is_read_with_the_result_and_asks_in_vain(name: str) -> None:
    app = await shown(name)
    assert (app.server, app.uri, app.html, app.border) == ("s", PAGE, "<!doctype html><p>Page</p>", True)
    assert app.csp == NONE and not app.problem
    assert app.result["_meta"] == {"of": name} and app.result["structuredContent"]["tool"] == name
    declared = app.result["structuredContent"]["declared"]["io.modelcontextprotocol/ui"]
    assert declared == {"mimeTypes": ["text/html;profile=mcp-app"]}


async def test_an_admin_allows_domains() -> None:
    app = await shown(config=clock(app_domains=("https://*.example.com", "https://api.example.com")))
    assert app.csp == NONE | {
        "connectDomains": ["https://api.example.com", "wss://live.example.com"],
        "resourceDomains": ["https://*.example.com"],
    }


@pytest.mark.parametrize(
    ("asked", "glob", "passes"),
    [
        ("https://a.example.com", "https://*.example.com", True),
        ("https://a.example.com:8443", "https://*.example.com", False),
        ("https://a.example.com:8443", "https://*.example.com:8443", True),
        ("https://*.example.com", "https://a.example.com", False),
        ("https://example.com.example.net", "https://example.com", False),
        ("wss://a.example.com", "https://a.example.com", True),
    ],
)
def test_a_domain_is_matched_as_a_whole(asked: str, glob: str, passes: bool) -> None:
    app = App("s", PAGE, csp={"connectDomains": [asked]})
    assert app.allowed([glob]) == {"connectDomains": [asked] if passes else []}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("type", "the type of its page is text/html, not text/html;profile=mcp-app"),
        ("other", "its server has no such page"),
        ("huge", "can be shown"),
        ("empty", "its page has 0 characters"),
        ("missing", "no such resource"),
        ("dies", "went away|ended|closed"),
        ("silent", "its page did not come within 0.2 s"),
    ],
)
async def test_a_page_that_cannot_be_shown_leaves_a_reason(
    fault: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "silent":
        monkeypatch.setattr(apps, "PAGE_S", 0.2)
    app = await shown(config=clock(fault))
    assert app.problem and not app.html
    assert any(words in app.problem for words in why.split("|")), app.problem


async def test_odd_wishes_are_none_and_a_page_may_be_a_blob() -> None:
    odd = await shown(config=clock("meta"))
    assert (odd.html, odd.csp, odd.border) == ("<!doctype html><p>Page</p>", NONE, None)
    assert (await shown(config=clock("blob"))).html == "<p>blob</p>"


async def test_tools_without_an_app_and_those_that_are_not_for_models() -> None:
    async with managing(clock()) as manager:
        status = await ready(manager)
        seen = {one.origin.tool: one.visibility for one in manager.tools() if one.origin}
        assert (await result_of(tool(manager, "mcp__s__plain"))).app is None
        assert (await result_of(tool(manager, "mcp__s__odd"))).app is None
    assert seen == {
        "show": ("model", "app"),
        "tick": ("app",),
        "think": ("model",),
        "plain": ("model", "app"),
        "legacy": ("model", "app"),
        "odd": ("model", "app"),
        "nobody": (),
        "resources/read": ("model", "app"),
    }
    assert f"{PAGE} was left out: it has the name of a request." in status.notes


async def test_a_page_that_changes_is_held_until_it_is_approved(tmp_path: Path) -> None:
    pins, switch = MemoryPinStore(), tmp_path / "changed"
    async with managing(clock("none", str(switch)), pins=pins) as manager:
        await ready(manager)
        show = tool(manager, "mcp__s__show")
        assert (await result_of(show)).app.html == "<!doctype html><p>Page</p>"
        switch.touch()
        held = (await result_of(show)).app
        assert held and not held.html and "an admin has to accept it" in held.problem
        await manager.reconnect("s")
        await ready(manager)
        (one,) = manager.status()[0].held
        assert one.tool == PAGE and '"characters"' in one.diff
        assert await manager.approve("s", PAGE, one.digest) == [PAGE]
        assert "Page two" in (await result_of(tool(manager, "mcp__s__show"))).app.html
    async with managing(clock("none", str(switch)), pins=pins) as manager:
        assert "Page two" in (await result_of(tool(manager, "mcp__s__show"))).app.html
        switch.unlink()
        assert (await result_of(tool(manager, "mcp__s__show"))).app.problem
        switch.touch()
        assert "Page two" in (await result_of(tool(manager, "mcp__s__show"))).app.html
        assert not manager.status()[0].held


def test_an_app_belongs_to_what_is_pinned_of_a_tool() -> None:
    plain = {"name": "t", "inputSchema": {"type": "object"}}
    digests = {
        definition(plain | more).digest
        for more in (
            {},
            {"_meta": {"ui": {"resourceUri": PAGE}}},
            {"_meta": {"ui": {"resourceUri": PAGE, "visibility": ["app"]}}},
            {"_meta": {"ui": {"visibility": ["app"]}}},
        )
    }
    assert len(digests) == 4
    assert definition(plain | {"_meta": {"ui": {"other": 1}, "more": 2}}).digest == definition(plain).digest
    pinned = definition(plain | {"_meta": {"ui/resourceUri": PAGE}}).pinned
    assert definition(pinned, trusted=True).ui == {"resourceUri": PAGE}, "as it is read again from the store"


def test_an_entry_lists_the_domains_of_its_apps(tmp_path: Path) -> None:
    for domains, problem in ((["https://*.example.com"], ""), ("https://a.example.com", "appDomains must be a list")):
        written = json.dumps({"mcpServers": {"s": {"command": "c", "appDomains": domains}}})
        [config] = parse_config(written, {}, tmp_path / "mcp.json").configs
        assert config.problem.startswith(problem) and bool(config.problem) == bool(problem)
        assert problem or config.app_domains == ("https://*.example.com",)

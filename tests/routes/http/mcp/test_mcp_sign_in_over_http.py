"""A person signs in to an MCP server through the browser, and a restart asks nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.mcp.oauth import closed_server
from tests.support.mcp.served import READS, settled, write_list
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
LIMIT_S = 60
CALL = '```mcp__closed__double\n{"number": 21}\n```'


async def came_back(page: str) -> str:
    """Where the browser is sent, path and query."""
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as browser:
        location = urlsplit((await browser.get(page)).headers["location"])
    assert (location.netloc, location.path) == ("localhost:8724", "/mcp/callback")
    return f"{location.path}?{location.query}"


async def ready(served: Served) -> None:
    while not served.services.mcp.named("closed").tools:
        await served.services.mcp.manager.changed()


async def test_signing_in_through_the_browser(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), closed_server() as resource:
        write_list(tmp_path, closed={"url": resource.url})
        provider = Scripted([CALL, "42."])
        async with serving(tmp_path, provider, tools=READS, port="8724") as served:
            admin = await bearer(served, "root", "admin")
            status = await settled(served, "closed")
            assert status.state == "needs_auth"
            shown = (await served.client.get("/mcp/servers/closed", headers=admin)).json()
            back = await came_back(shown["auth_url"])
            answer = await served.client.get(back)  # the browser has no token of ours
            assert (answer.status_code, answer.text) == (200, "You are signed in to closed. You can close this page.\n")
            assert answer.headers["content-type"].startswith("text/plain")
            await ready(served)
            assert "42" in await called(served, admin)
            again = await served.client.get(back)
            assert (again.status_code, again.json()["error"]["code"]) == (400, "sign_in_failed")
        tokens = [*resource.issuer.tokens, *resource.issuer.refreshers]
        provider = Scripted([CALL, "42."])
        async with serving(tmp_path, provider, tools=READS, port="8724") as served:
            assert "42" in await called(served, admin)
            assert resource.issuer.granted[0] == "authorization_code"
            assert "authorization_code" not in resource.issuer.granted[1:], "nobody was asked again"
        kept = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("dragoman.db*"))
        assert not [token for token in tokens if token.encode() in kept]


async def called(served: Served, headers: dict[str, str]) -> str:
    """What the tool said."""
    served.client.headers |= headers
    events = await served.chat("x")
    [text] = [event["text"] for event in events if event["type"] == "tool.finished"]
    return str(text)


async def test_a_person_who_refuses(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), closed_server() as resource:
        write_list(tmp_path, closed={"url": resource.url})
        async with serving(tmp_path, Scripted([]), port="8724") as served:
            page = (await settled(served, "closed")).auth_url
            state = httpx2.URL(page).params["state"]
            refused = {"state": state, "error": "access_denied", "error_description": "<b>No</b>\u202e, thanks"}
            answer = await served.client.get("/mcp/callback", params=refused)
            assert answer.status_code == 403
            assert answer.text == "You are not signed in to closed: <b>No</b>, thanks\n"
            assert answer.headers["content-type"].startswith("text/plain")
            assert served.services.mcp.named("closed").tools == ()

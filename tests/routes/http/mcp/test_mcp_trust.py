"""Trust in MCP servers: declared and withdrawn by admins, for what they saw, and what it changes in runs."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.mcp.served import FIXTURES, helper, serving_mcp, settled, write_list
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio
LOOK, CHANGE, PLAIN = (f"```mcp__h__{name}\n{name}\n```" for name in ("look", "change", "plain"))


def hinting(*args: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(FIXTURES / "hinting.py"), *args], **more}


def faulty(fault: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(FIXTURES / "faulty.py"), fault, *args], **more}


async def act(served: Served, name: str, action: str, **body: Any) -> dict[str, Any]:
    answer = await served.client.post(f"/mcp/servers/{name}/{action}", json=body)
    assert answer.status_code == 200, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


async def code_of(served: Served, name: str, action: str, headers: dict[str, str] | None = None, **body: Any) -> object:
    answer = await served.client.post(f"/mcp/servers/{name}/{action}", json=body, headers=headers)
    return answer.status_code, answer.json()["error"]["code"]


def rights(server: dict[str, Any]) -> dict[str, tuple[str, str, bool]]:
    return {one["tool"]: (one["role"], one["risk"], one["untrusted"]) for one in server["classified"]}


async def ran(served: Served) -> tuple[list[str], list[str]]:
    """The server's tools that are offered in a run that no person answers, and those that ran in it."""
    events = await served.chat("x", approval="deny")
    offered = [name.removeprefix("mcp__h__") for name in events[0]["tools"] if name.startswith("mcp__h__")]
    return offered, [one["text"] for one in events if one["type"] == "tool.finished"]


async def test_hints_count_for_a_server_that_is_trusted(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([LOOK, LOOK, "Done.", PLAIN, "Done.", LOOK]), {"h": hinting()}) as served:
        assert await ran(served) == ([], []), "it states that it reads only, and nobody trusts it"
        [before] = (await served.client.get("/mcp/servers")).json()["servers"]
        assert before["trust"] == {"declared": None, "file": None, "stale": []}
        assert set(rights(before).values()) == {("admin", "admin", True)}
        trusted = await act(served, "h", "trust")
        assert rights(trusted) == {
            "look": ("admin", "read", True),
            "change": ("admin", "admin", True),
            "browse": ("admin", "network", True),
            "plain": ("admin", "admin", True),
        }
        assert [one["hints"] for one in trusted["classified"] if one["tool"] == "look"] == [{"read_only": True}]
        assert [one["sources"]["risk"] for one in trusted["classified"]] == ["hint", "default", "hint", "default"]
        assert await ran(served) == (["browse", "look"], ["answered look"]), "browse may be called with own values"
        assert rights(await act(served, "h", "trust", tool="plain", risk="read"))["plain"] == ("admin", "read", True)
        assert await ran(served) == (["browse", "look", "plain"], ["answered plain"])
        await act(served, "h", "distrust", tool="plain")
        assert rights(await act(served, "h", "distrust")) == rights(before)
        assert await ran(served) == ([], [])
        audit = (await served.client.get("/audit")).json()["audit"]
        decided = [(row["decision"], row["why"]) for row in audit if row["action"] == "mcp h"]
        assert sorted(decided) == [
            ("trust withdrawn", ""),
            ("trust withdrawn", "plain"),
            ("trusted", "its hints count"),
            ("trusted", "plain: risk read"),
        ]


async def test_what_is_withdrawn_counts_for_the_next_call_of_a_run(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([LOOK, CHANGE, LOOK, "Done."]), {"h": hinting()}) as served:
        await act(served, "h", "trust", untrusted=False)
        async with aclosing(served.turn(message="x")) as turn:
            session = (await until(turn, "run.started"))["session"]
            asked = await until(turn, "approval.required")
            assert asked["name"] == "mcp__h__change", "the first look needed no approval"
            await act(served, "h", "distrust")
            url = f"/approvals/{asked['call']}"
            run = (await served.client.get("/approvals")).json()["approvals"][0]["run"]
            await served.client.post(f"/runs/{run}{url}", json={"decision": "approve"})
            again = await until(turn, "approval.required")
            assert again["name"] == "mcp__h__look"
            await served.client.post(f"/runs/{run}/approvals/{again['call']}", json={"decision": "deny"})
            await until(turn, "run.finished")
        results = [one for one in await served.services.store.messages(session) if one.role == "tool"]
        assert [one.untrusted for one in results] == [False, True, False], "trusted, then not, then denied"


async def test_trusted_results_do_not_taint_and_trusted_roles_may_call(tmp_path: Path) -> None:
    fetch = '```web_fetch\n{"url": "http://127.0.0.1:9/"}\n```'
    provider = Scripted([LOOK, fetch, "Done.", LOOK, fetch, "Done."])
    async with serving_mcp(tmp_path, provider, {"h": hinting()}) as served:
        bob, gus = await bearer(served, "bob"), await bearer(served, "gus", "guest")
        served.client.headers.update(await bearer(served, "root", "admin"))

        async def listed(who: dict[str, str]) -> list[tuple[str, str]]:
            tools = (await served.client.get("/tools", headers=who)).json()["tools"]
            return [(tool["role"], tool["risk"]) for tool in tools if tool["name"] == "mcp__h__look"]

        assert not await listed(bob)
        await act(served, "h", "trust", role="user")
        assert (await listed(bob), await listed(gus)) == ([("user", "read")], [])
        for untrusted in (True, False):
            await act(served, "h", "trust", tool="look", role="user", untrusted=untrusted)
            events = await served.chat("x", approval="auto", when_absent="deny")
            began = [one["name"] for one in events if one["type"] == "tool.started"]
            assert began == (["mcp__h__look"] if untrusted else ["mcp__h__look", "web_fetch"]), "taint takes that away"
        await act(served, "h", "trust", role="admin")
        assert await listed(bob), "what is declared for the tool stands"
        await act(served, "h", "distrust", tool="look")
        assert not await listed(bob)


async def test_a_declaration_is_for_what_was_seen(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    servers: dict[str, object] = {"g": faulty("grows", str(sign)), "shop": faulty("rugpull", str(sign))}
    user = ("user", "admin", True)
    async with serving_mcp(tmp_path, Scripted([]), servers) as served:
        await act(served, "g", "trust", role="user")
        await act(served, "shop", "trust", role="guest", risk="read")
        sign.touch()
        for name, held in (("g", "late"), ("shop", "pay")):
            await act(served, name, "reconnect")
            await settled(served, name)
            server = (await served.client.get(f"/mcp/servers/{name}")).json()
            [one] = server["held"]
            assert one["tool"] == held and held not in rights(server)
            assert ("the trust that is declared for g" in one["why"]) is (name == "g")
        assert rights(await act(served, "g", "approve"))["late"] == user, "somebody has looked"
    async with serving_mcp(tmp_path, Scripted([]), servers) as served:
        assert rights((await served.client.get("/mcp/servers/g")).json())["echo"] == user, "it survives a restart"
        write_list(tmp_path, **servers | {"g": faulty("grows", str(sign), "another command")})
        await served.services.mcp.reload()
        await settled(served, "g")
        other = (await served.client.get("/mcp/servers/g")).json()
        assert (other["trust"]["declared"], rights(other)["echo"]) == (None, ("admin", "admin", True))
        write_list(tmp_path, **servers)
        await served.services.mcp.reload()
        assert [(row.server, row.tool) for row in await served.services.store.mcp_trust()] == [("shop", "")]
        write_list(tmp_path, g=servers["g"])
        await served.services.mcp.reload()
        assert await served.services.store.mcp_trust() == [], "what is removed is forgotten"


async def test_what_cannot_be_declared_says_why(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper(), "crash": faulty("crash")}) as served:
        admin, bob = await bearer(served, "root", "admin"), await bearer(served, "bob")
        for action in ("trust", "distrust"):
            assert await code_of(served, "helper", action, bob) == (403, "forbidden")
        served.client.headers.update(admin)
        assert await code_of(served, "none", "trust") == (404, "not_found")
        assert await code_of(served, "helper", "trust", tool="nothing") == (404, "not_found")
        assert await code_of(served, "crash", "trust") == (409, "server_unseen")
        assert await code_of(served, "helper", "distrust") == (404, "not_found")
        for body in ({"risk": "none"}, {"role": "root"}, {"untrusted": "no"}, {"trusted": True}):
            assert await code_of(served, "helper", "trust", **body) == (422, "invalid_request"), body
        trusted = await act(served, "helper", "trust", tool="mcp__helper__echo", risk="read")
        assert rights(trusted)["echo"] == ("admin", "read", True), "by its public name, too"
        await served.client.post("/pause")
        assert await code_of(served, "helper", "trust") == (503, "paused")
        await act(served, "helper", "distrust", tool="echo")


async def test_the_file_declares_below_people_and_settings(tmp_path: Path) -> None:
    entry = hinting(trust={"role": "user"}, toolTrust={"plain": {"untrusted": False}}, alwaysAllow=["plain"])
    rules = json.dumps([{"match": "mcp__h__change", "role": "admin"}])
    async with serving_mcp(tmp_path, Scripted([]), {"h": entry}, tools=rules) as served:
        server = (await served.client.get("/mcp/servers/h")).json()
        assert rights(server) == {
            "look": ("user", "read", True),
            "change": ("admin", "admin", True),
            "browse": ("user", "network", True),
            "plain": ("user", "admin", False),
        }
        undeclared = {"risk": None, "untrusted": None, "arguments": None}
        assert server["trust"]["file"] == {"role": "user", **undeclared}
        assert any("alwaysAllow is ignored" in note for note in server["notes"])
        over = await act(served, "h", "trust", role="guest", untrusted=True)
        assert rights(over)["plain"] == ("guest", "admin", True)
        await act(served, "h", "distrust")
        pid = (await settled(served, "h")).pid
        write_list(tmp_path, h={**entry, "trust": False, "toolTrust": {}})
        await served.services.mcp.reload()
        after = (await served.client.get("/mcp/servers/h")).json()
        assert set(rights(after).values()) == {("admin", "admin", True)}
        assert (after["pid"], after["state"]) == (pid, "ready"), "it did not start again for that"


async def test_what_comes_over_http_declares_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        for field in ("trust", "toolTrust"):
            body = {"name": "a", "url": "https://a.test/mcp", field: {"role": "guest"}}
            answer = await served.client.post("/mcp/servers", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_request")

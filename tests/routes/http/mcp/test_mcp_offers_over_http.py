"""Resources and prompts of MCP servers over HTTP and in runs, for those who may use the server's tools."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.mcp.faulty_servers import FIXTURES
from tests.support.mcp.served import READS, helper, serving_mcp
from tests.support.server.serving import Served

pytestmark = pytest.mark.anyio
NOTES = "/mcp/servers/notes"


def offering(*args: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(FIXTURES / "offering.py"), *args]}


async def got(served: Served, path: str, **more: Any) -> Any:
    answer = await served.client.get(f"{NOTES}{path}", **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_people_list_and_read_resources_and_use_prompts(tmp_path: Path) -> None:
    servers: dict[str, object] = {"notes": offering(), "plain": helper()}
    async with serving_mcp(tmp_path, Scripted([]), servers, max_attachment_bytes="50000") as served:
        listed = await got(served, "/resources")
        assert [one["uri"] for one in listed["resources"]] == ["note://one", "note://blob", "note://picture"]
        assert listed["templates"][0]["uri_template"] == "note://by/{name}"
        assert (await served.client.get("/mcp/servers/plain/resources")).json()["resources"] == []
        one = await got(served, "/resources/read", params={"uri": "note://one"})
        assert one == {"contents": [{"uri": "note://one", "mime_type": "text/plain", "text": "hello from one"}]}
        [blob] = (await got(served, "/resources/read", params={"uri": "note://blob"}))["contents"]
        assert (blob["mime_type"], base64.b64decode(blob["data"])) == ("application/zip", b"\0\1\2")
        for params, status, code in (
            ({}, 422, "invalid_request"),
            ({"uri": "x" * 5000}, 422, "invalid_request"),
            ({"uri": "note://nowhere"}, 502, "mcp_failed"),
            ({"uri": "note://huge"}, 413, "too_long"),
        ):
            answer = await served.client.get(f"{NOTES}/resources/read", params=params)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)

        offered = await got(served, "/prompts")
        prompts = offered["prompts"]
        assert offered["notes"] == [], "what is left out of resources is of no concern here"
        assert [one["name"] for one in prompts] == ["greet", "talk"]
        assert prompts[0]["arguments"] == [{"name": "who", "description": "", "required": True}]
        greet = await served.client.post(f"{NOTES}/prompts/greet", json={"arguments": {"who": "Ada"}})
        assert greet.json() == {
            "description": "A greeting",
            "messages": [{"role": "user", "text": "Greet Ada."}],
            "text": "[From the prompt greet of the MCP server notes]\n\nGreet Ada.",
        }
        talk = (await served.client.post(f"{NOTES}/prompts/talk")).json()["text"]
        assert "assistant: [image: image/png, " in talk
        assert talk.endswith("user: [resource note://one]\nhello from one")
        for body, status in (({}, 502), ({"arguments": {"who": 1}}, 422), ({"arguments": {"who": "x" * 30_000}}, 422)):
            assert (await served.client.post(f"{NOTES}/prompts/greet", json=body)).status_code == status
        assert (await served.client.get("/mcp/servers/nothing/resources")).status_code == 404


RULES = json.dumps([{"match": "mcp__notes__resources", "role": "user", "risk": "read"}])


async def test_the_rules_for_a_servers_tools_hold_for_its_resources_and_prompts(tmp_path: Path) -> None:
    read = '```mcp__notes__resources\n{"uri": "note://one"}\n```'
    provider = Scripted([read, "Done.", "Hi."])
    async with serving_mcp(tmp_path, provider, {"notes": offering()}, tools=RULES) as served:
        user, guest = await bearer(served, "bob"), await bearer(served, "eve", role="guest")
        assert (await got(served, "/resources", headers=user))["resources"]
        for path, who in (("/prompts", user), ("/resources", guest), ("/resources/read?uri=note://one", guest)):
            answer = await served.client.get(f"{NOTES}{path}", headers=who)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        refused = await served.client.post(f"{NOTES}/prompts/greet", headers=user, json={"arguments": {"who": "x"}})
        assert refused.status_code == 404
        answer = await served.client.post("/chat", json={"message": "x"}, headers=user)
        assert "hello from one" in answer.text and "approval.required" not in answer.text
        [result] = [one for one in provider.requests[1].messages if one.role == "tool"]
        assert result.untrusted and result.name == "mcp__notes__resources"
        answer = await served.client.post("/chat", json={"message": "x"}, headers=guest)
        assert "mcp__notes" not in answer.text


async def test_trust_that_is_declared_holds_for_resources(tmp_path: Path) -> None:
    trusted = offering() | {"toolTrust": {"resources/read": {"role": "user", "risk": "read"}}}
    read = '```mcp__notes__resources\n{"uri": "note://one"}\n```'
    async with serving_mcp(tmp_path, Scripted([read, "Done."]), {"notes": trusted}) as served:
        user = await bearer(served, "bob")
        assert (await got(served, "/resources", headers=user))["resources"]
        assert (await served.client.get(f"{NOTES}/prompts", headers=user)).status_code == 404
        answer = await served.client.post("/chat", json={"message": "x"}, headers=user)
        assert "hello from one" in answer.text and "approval.required" not in answer.text
        assert "mcp__notes__publish" not in answer.text


async def test_models_ask_before_they_read_what_nobody_classified(tmp_path: Path) -> None:
    read = '```mcp__notes__resources\n{"uri": "note://one"}\n```'
    async with serving_mcp(tmp_path, Scripted([read, "Done."]), {"notes": offering()}) as served:
        events = await served.chat("x", when_absent="deny")
        assert "mcp__notes__resources" not in events[0]["tools"], "nobody could approve it"
    async with serving_mcp(tmp_path, Scripted(["Hi."]), {"notes": offering()}, tools=READS) as served:
        assert "mcp__notes__resources" in (await served.chat("x"))[0]["tools"]

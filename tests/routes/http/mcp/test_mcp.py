"""MCP servers over HTTP: listed, added, switched, approved; their tools in runs, under the gate."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from app.core.provider import TextChunk
from app.core.rules import ToolRule
from app.models.scripted import Line, Scripted
from app.policy.classification import Classification
from tests import ROOT
from tests.support.access.people import bearer
from tests.support.mcp.faulty_servers import files_in
from tests.support.mcp.served import HELPFUL, READS, helper, serving_mcp, settled, until_gone, write_list
from tests.support.server.serving import Served, serving, until
from tools.base.rights import Origin, Role
from tools.mcp.config.entries import config_of
from tools.mcp.config.variables import Variables

pytestmark = pytest.mark.anyio
FAULTY = ROOT / "fixtures/mcp/faulty.py"
KEY = "sesame-open-4711"
AWAY = "https://mcp.example.com/mcp"  # nobody is asked: its test adds it disabled, or never waits for it


def faulty(fault: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(FAULTY), fault, *args], **more}


async def servers_of(served: Served) -> dict[str, dict[str, Any]]:
    answer = await served.client.get("/mcp/servers")
    assert answer.status_code == 200, answer.text
    return {server["name"]: server for server in answer.json()["servers"]}


def finished(events: list[dict[str, Any]]) -> list[str]:
    return [event["text"] for event in events if event["type"] == "tool.finished"]


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_servers_tools_are_offered_and_run(tmp_path: Path) -> None:
    provider = Scripted(["```mcp__helper__echo\nhello\n```", '```mcp__helper__steps\n{"count": 3}\n```', "Done."])
    async with serving_mcp(tmp_path, provider, {"helper": helper()}, tools=READS) as served:
        listed = (await served.client.get("/tools")).json()["tools"]
        assert "mcp__helper__echo" in [tool["name"] for tool in listed]
        events = await served.chat("x")
        assert finished(events) == ["echo: hello", "counted"]
        assert "mcp__helper__echo" in events[0]["tools"]
        assert [event["tail"] for event in events if event["type"] == "tool.progress"], "progress is seen"
        [server] = (await servers_of(served)).values()
        assert (server["state"], server["transport"], server["from_api"]) == ("ready", "stdio", False)
        assert server["pid"]
        assert server["token_estimate"] > 0


@pytest.mark.usefixtures("replayed")
async def test_unclassified_tools_belong_to_admins_and_ask(tmp_path: Path) -> None:
    provider = Scripted(["```mcp__helper__echo\nhello\n```", "Done."])
    async with serving_mcp(tmp_path, provider, {"helper": helper()}) as served:
        async with aclosing(served.turn(message="x")) as turn:
            started = await until(turn, "run.started")
            assert "mcp__helper__echo" in started["tools"]
            asked = await until(turn, "approval.required")
            assert (asked["name"], asked["arguments"]) == ("mcp__helper__echo", {"text": "hello"})
            url = f"/runs/{started['run']}/approvals/{asked['call']}"
            assert (await served.client.post(url, json={"decision": "approve"})).status_code == 200
            assert (await until(turn, "tool.finished"))["text"] == "echo: hello"
        user = await bearer(served, "bob")
        listed = (await served.client.get("/tools", headers=user)).json()["tools"]
        assert not [tool["name"] for tool in listed if tool["name"].startswith("mcp__")]


async def test_what_a_server_is_given_in_secret_stays_secret(tmp_path: Path) -> None:
    provider = Scripted(["```mcp__helper__secret\n```", "Done."])
    entry = helper("0", "--api-key", f"{KEY}-flag", env={"HELPER_TOKEN": KEY})
    async with serving_mcp(tmp_path, provider, {"helper": entry}, tools=READS) as served:
        events = await served.chat("x")
        assert finished(events) == ["my key is [redacted]"]
        for path in ("/mcp/servers", "/mcp/servers/helper", "/mcp/servers/helper/logs"):
            answer = await served.client.get(path)
            assert answer.status_code == 200
            assert KEY not in answer.text
        assert "my key is" in (await served.client.get("/mcp/servers/helper/logs")).text
    assert KEY.encode() not in b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())


async def test_a_bad_entry_and_a_bad_server_are_told_and_stop_nothing(tmp_path: Path) -> None:
    servers: dict[str, object] = {
        "crash": faulty("crash"),
        "typo": {"comand": "x"},
        "unset": helper(env={"A": "${NO_SUCH_VARIABLE}"}),
        "helper": helper(),
    }
    provider = Scripted(["```mcp__helper__echo\nhello\n```", "Done."])
    async with serving_mcp(tmp_path, provider, servers, tools=READS) as served:
        told = await servers_of(served)
        assert "cannot read the settings" in " ".join([told["crash"]["error"], *told["crash"]["stderr_tail"]])
        assert "command is missing" in told["typo"]["error"]
        assert "NO_SUCH_VARIABLE" in told["unset"]["error"]
        assert finished(await served.chat("x")) == ["echo: hello"]


async def test_a_server_does_not_wait_for_its_servers(tmp_path: Path) -> None:
    write_list(tmp_path, **{f"never{number}": faulty("never") for number in range(20)})
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi."])) as served:
        assert (await served.chat("x"))[-1]["reason"] == "answered"
        assert {server["state"] for server in (await servers_of(served)).values()} <= {"connecting", "stopped"}


def test_the_sdk_is_not_on_the_way_to_the_start() -> None:
    code = "import sys, routes.server; print('mcp' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "False\n"


async def test_a_broken_file_is_told_and_changes_nothing(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper()}) as served:
        (tmp_path / "mcp.json").write_text('{"mcpServers": {oops')
        await served.services.mcp.reload()
        answer = (await served.client.get("/mcp/servers")).json()
        assert "not a list of MCP servers" in answer["problem"]
        assert [server["name"] for server in answer["servers"]] == ["helper"]


async def test_what_becomes_of_the_file_is_taken_in(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper()}) as served:
        write_list(tmp_path, other=helper())
        await until_gone(served, "helper")
        await settled(served, "other")
        assert [tool.name for tool in served.services.factory.tools if tool.name.startswith("mcp__helper")] == []
        assert "mcp__other__echo" in [tool.name for tool in served.services.factory.tools]


async def test_a_command_may_not_come_over_http(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        for body, status in [
            ({"name": "a", "command": "touch", "args": ["/tmp/x"]}, (403, "forbidden")),
            ({"name": "a", "type": "stdio", "command": "x"}, (403, "forbidden")),
            ({"name": "a", "url": "file:///etc/passwd"}, (422, "unfit_server")),
            ({"name": "a", "url": "https://a.test/${HOME}"}, (422, "unfit_server")),
            ({"name": "a\n", "url": AWAY}, (422, "unfit_server")),
            ({"name": "a"}, (422, "unfit_server")),
            ({"name": "a", "url": AWAY, "envFile": "/etc/passwd"}, (422, "invalid_request")),
            ({"name": "", "url": AWAY}, (422, "invalid_request")),
        ]:
            assert code_of(await served.client.post("/mcp/servers", json=body)) == status, body
        assert await servers_of(served) == {}


async def test_a_url_that_is_added_must_be_public(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        url = f"http://127.0.0.1:{served.client.base_url.port}/mcp"
        assert (await served.client.post("/mcp/servers", json={"name": "a", "url": url})).status_code == 201
        status = await settled(served, "a")
        assert status.state == "failed"
        assert "127.0.0.1" in status.error
        assert (await served.client.delete("/mcp/servers/a")).status_code == 204


async def test_servers_that_were_added_survive_and_go(tmp_path: Path) -> None:
    allowed: dict[str, Any] = {"tools": READS, "mcp_commands_from_api": "true"}
    body = {"name": "mine", "command": sys.executable, "args": [str(HELPFUL)], "env": {"HELPER_TOKEN": KEY}}
    async with asyncio.timeout(60), serving(tmp_path, Scripted([]), **allowed) as served:
        forbidden = body | {"env": {"LD_PRELOAD": "x.so"}}
        assert code_of(await served.client.post("/mcp/servers", json=forbidden)) == (422, "unfit_server")
        for _ in range(2):  # what it is given in secret may be told again
            answer = await served.client.post("/mcp/servers", json=body)
            assert (answer.status_code, answer.json()["name"], answer.json()["from_api"]) == (201, "mine", True)
        await settled(served, "mine")
    provider = Scripted(["```mcp__mine__secret\n```", "Done."])
    async with asyncio.timeout(60), serving(tmp_path, provider, **allowed) as served:
        assert "mcp__mine__echo" in [tool.name for tool in served.services.factory.tools], "known unconnected"
        assert finished(await served.chat("x")) == ["my key is [redacted]"], "and it has its key"
        assert (await served.client.delete("/mcp/servers/mine")).status_code == 204
        assert await servers_of(served) == {}
        assert await served.services.store.mcp_pins() == []
    async with serving(tmp_path, Scripted([])) as served:
        assert await servers_of(served) == {}


async def test_a_server_of_the_file_is_changed_there(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper()}) as served:
        again = await served.client.post("/mcp/servers", json={"name": "helper", "url": AWAY})
        assert code_of(again) == (409, "server_of_file")
        assert code_of(await served.client.delete("/mcp/servers/helper")) == (409, "server_of_file")


async def test_a_name_may_have_a_slash(tmp_path: Path) -> None:
    name = "github.com/a/b"
    async with serving_mcp(tmp_path, Scripted([]), {name: helper()}) as served:
        at = f"/mcp/servers/{quote(name, safe='')}"
        assert (await served.client.get(at)).json()["name"] == name
        assert (await served.client.post(f"{at}/disable")).json()["state"] == "disabled"
        assert "lines" in (await served.client.get(f"{at}/logs")).json()
        assert code_of(await served.client.delete(at)) == (409, "server_of_file")


async def test_a_server_that_is_switched_off_stays_so(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper()}) as served:
        answer = await served.client.post("/mcp/servers/helper/disable")
        assert (answer.status_code, answer.json()["state"]) == (200, "disabled")
        assert [tool.name for tool in served.services.factory.tools if tool.name.startswith("mcp__")] == []
    async with serving(tmp_path, Scripted([])) as served:
        assert (await servers_of(served))["helper"]["state"] == "disabled"
        assert (await served.client.post("/mcp/servers/helper/enable")).status_code == 200
        await settled(served, "helper")
        assert "mcp__helper__echo" in [tool.name for tool in served.services.factory.tools]


async def test_reconnecting_starts_another_process(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper()}) as served:
        before = (await settled(served, "helper")).pid
        assert (await served.client.post("/mcp/servers/helper/reconnect")).status_code == 200
        after = (await settled(served, "helper")).pid
        assert None not in (before, after)
        assert before != after


async def test_a_changed_tool_is_held_until_somebody_approves(tmp_path: Path) -> None:
    sign = tmp_path / "changed"
    async with serving_mcp(tmp_path, Scripted([]), {"shop": faulty("rugpull", str(sign))}) as served:
        sign.touch()
        await served.client.post("/mcp/servers/shop/reconnect")
        await settled(served, "shop")
        shop = (await servers_of(served))["shop"]
        assert [held["tool"] for held in shop["held"]] == ["pay"]
        assert "Pays everything" in shop["held"][0]["diff"]
        assert "mcp__shop__pay" not in shop["tools"]
        assert "mcp__shop__safe" in shop["tools"]
        wrong = await served.client.post("/mcp/servers/shop/approve", json={"tool": "safe"})
        assert code_of(wrong) == (404, "not_found")
        other = await served.client.post("/mcp/servers/shop/approve", json={"tool": "pay", "digest": "of another one"})
        assert code_of(other) == (409, "tool_changed")
        alone = await served.client.post("/mcp/servers/shop/approve", json={"digest": "of which tool"})
        assert code_of(alone) == (422, "invalid_request")
        seen = {"tool": "pay", "digest": shop["held"][0]["digest"]}
        answer = (await served.client.post("/mcp/servers/shop/approve", json=seen)).json()
        assert answer["approved"] == ["pay"]
        assert "mcp__shop__pay" in answer["tools"]
        audit = (await served.client.get("/audit")).json()
        assert "approved" in json.dumps(audit)


READ = [{"match": "mcp__shop__*", "role": "user", "risk": "read"}]
STRICT = [{"match": "mcp__shop__*", "role": "admin", "risk": "admin", "approval": "always", "untrusted": True}]


@pytest.mark.parametrize(
    ("fields", "eases"),
    [
        ({"role": "user"}, True),
        ({"risk": "network"}, True),
        ({"approval": "never"}, True),
        ({"untrusted": False}, True),
        ({"role": "admin", "risk": "admin", "approval": "always", "untrusted": True}, False),
        ({"approval": "mode"}, False),
        ({}, False),
    ],
)
def test_what_eases_a_tool(fields: dict[str, Any], eases: bool) -> None:
    rules = [ToolRule.model_validate({"match": "mcp__a__*", **fields}), ToolRule(match="mcp__*", role=Role.GUEST)]
    eased_by = Classification(rules).eased_by
    first = eased_by("mcp__a__x", Origin("a", "x"))
    assert (first == "the rule mcp__a__*") is eases, "the first rule that matches counts"
    assert (
        eased_by("mcp__b__x", Origin("b", "x")) == "the rule mcp__*" and eased_by("other", Origin("c", "other")) == ""
    )


@pytest.mark.parametrize(
    ("rules", "held"), [(READ, True), (STRICT, False), ([], False)], ids=["eases", "strict", "none"]
)
async def test_a_tool_that_comes_later_is_held_where_a_rule_would_ease_it(
    rules: list[object], held: bool, tmp_path: Path
) -> None:
    sign, flags = tmp_path / "grown", {"tools": json.dumps(rules)}
    servers: dict[str, object] = {"shop": faulty("grows", str(sign))}
    async with serving_mcp(tmp_path, Scripted([]), servers, **flags) as served:
        assert (await servers_of(served))["shop"]["held"] == [], "what is there at first counts as seen"
        assert "mcp__shop__echo" in [tool.name for tool in served.services.factory.tools]
        sign.touch()
        await served.client.post("/mcp/servers/shop/reconnect")
        await settled(served, "shop")
        shop = (await servers_of(served))["shop"]
        assert [(one["tool"], "mcp__shop__*" in one["why"]) for one in shop["held"]] == (
            [("late", True)] if held else []
        )
        assert ("mcp__shop__late" in [tool.name for tool in served.services.factory.tools]) is not held
    async with serving_mcp(tmp_path, Scripted([]), servers, **flags) as served:  # which changes nothing
        await served.client.post("/mcp/servers/shop/reconnect")
        await settled(served, "shop")
        assert [one["tool"] for one in (await servers_of(served))["shop"]["held"]] == (["late"] if held else [])
        if held:
            answer = await served.client.post("/mcp/servers/shop/approve", json={"tool": "late"})
            assert answer.json()["approved"] == ["late"]
        assert "mcp__shop__late" in [tool.name for tool in served.services.factory.tools]


async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"helper": helper()}) as served:
        for method, path in [
            ("GET", "/mcp/servers/none"),
            ("GET", "/mcp/servers/none/logs"),
            ("DELETE", "/mcp/servers/none"),
            ("POST", "/mcp/servers/none/enable"),
            ("POST", "/mcp/servers/none/reconnect"),
            ("POST", "/mcp/servers/none/approve"),
            ("POST", "/mcp/servers/helper/explode"),
        ]:
            assert code_of(await served.client.request(method, path)) == (404, "not_found"), path
        answer = await served.client.get("/mcp/callback?state=unknown&code=x")
        assert code_of(answer) == (400, "sign_in_failed")


async def test_what_an_mcp_server_sent_lies_nowhere_in_the_workspace_and_taints_whoever_reads_it_again(
    tmp_path: Path,
) -> None:
    reads: list[Line] = []  # a call whose id is not known yet
    provider = Scripted(
        [
            '```mcp__helper__long\n{"size": 100000}\n```',
            "Long.",
            "```mcp__helper__sound\n```",
            "Played.",
            reads,
            "Read.",
        ]
    )
    rule = '[{"match": "mcp__*", "risk": "read"}]'
    async with serving_mcp(tmp_path, provider, {"helper": helper()}, tools=rule) as served:
        first = await served.chat("x")
        session = first[0]["session"]
        [call] = [event["call"] for event in first if event["type"] == "tool.finished"]
        [sound] = finished(await served.chat("y", session=session))
        url = sound.removesuffix("]").split()[-1]
        kept = await served.client.get(url)
        assert (kept.status_code, kept.content) == (200, b"RIFF$")
        assert kept.headers["content-type"] == "application/octet-stream"
        assert kept.headers["content-disposition"].startswith("attachment") and "sandbox" in str(kept.headers)
        assert files_in(tmp_path / "work") == []
        reads.append(TextChunk(f'```read_result\n{{"call": "{call}", "offset": 100000}}\n```'))
        await served.chat("z", session=session)
        messages = await served.services.store.messages(session)
        again = next(message for message in reversed(messages) if message.name == "read_result")
        assert again.untrusted and "ignore the rules" in again.text


async def test_a_secret_that_an_entry_names_is_put_there_for_each_connection(tmp_path: Path) -> None:
    """In env and headers; one that is replaced connects anew, one that is gone is named by the error."""
    provider = Scripted(["```mcp__helper__secret\n```", "Done."] * 2)
    entry = helper(env={"HELPER_TOKEN": "${secret:helper}"})
    away: dict[str, object] = {"url": AWAY, "headers": {"Authorization": "Bearer ${secret:helper}"}}
    body = {"name": "helper", "value": KEY, "hosts": ["127.0.0.1"]}
    async with serving_mcp(tmp_path, provider, {"helper": entry, "away": away}, tools=READS) as served:
        for name in ("helper", "away"):
            assert "There is no secret 'helper'" in (await settled(served, name)).error
        assert (await served.client.post("/secrets", json=body)).status_code == 201
        assert (await settled(served, "helper")).state == "ready"
        assert "is not for https://mcp.example.com" in (await settled(served, "away")).error, (
            "no host that it does not name"
        )
        first = (await settled(served, "helper")).pid
        assert finished(await served.chat("x")) == ["my key is [redacted]"]
        again = await served.client.post("/secrets", json={**body, "value": f"{KEY}-2", "replace": True})
        assert again.status_code == 201
        assert finished(await served.chat("x")) == ["my key is [redacted]"]
        assert (await settled(served, "helper")).pid != first
        for path in ("/mcp/servers", "/mcp/servers/helper", "/mcp/servers/helper/logs", "/secrets"):
            assert KEY not in (await served.client.get(path)).text
        for fields in ({"headers": away["headers"]}, {"headers": {"X-Key": "${secret:free}"}}):
            free = {"name": "free", "value": f"{KEY}-3"}
            await served.client.post("/secrets", json=free)
            await served.client.post("/mcp/servers", json={"name": "added", "url": AWAY, "eager": True, **fields})
            error = (await settled(served, "added")).error
            assert "is not for https://mcp.example.com" in error or "names no hosts" in error
        assert (await served.client.delete("/secrets/helper")).status_code == 204
        assert "There is no secret 'helper'" in (await settled(served, "helper")).error
    assert KEY.encode() not in b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())


@pytest.mark.parametrize("field", ["command", "args", "url", "cwd", "oauth"])
def test_a_secret_stands_in_env_and_headers_only(field: str, tmp_path: Path) -> None:
    named = "${secret:helper}"
    written: dict[str, Any] = {"args": [named], "oauth": {"clientSecret": named}, "url": f"http://{named}/"}
    entry = {"command": "x"} | {field: written.get(field, named)} if field != "url" else {"url": written["url"]}
    for one in (entry, {"command": "x", "env": {"A_TOKEN": "${secret:helper:-none}"}}):
        config = config_of("one", one, Variables({}, tmp_path))
        assert "can stand in env and headers only, without a default" in config.problem

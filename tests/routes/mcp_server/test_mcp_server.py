"""dragoman as an MCP server, with the SDK's own client in both eras of the protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult, ToolListChangedNotification

from app.models.scripted import Pause, Scripted
from app.storage.tokens import TokenRevoked
from routes.access.token_text import fingerprint
from routes.mcp_server.calls import TASKS
from routes.mcp_server.run_log import LONGEST, form_of
from tests import ROOT
from tests.support.access.people import bearer
from tests.support.mcp.served import READS, helper, serving_mcp, write_list
from tests.support.models.pictures import png
from tests.support.server.dragoman_process import server
from tests.support.server.killing import TERMINAL
from tests.support.server.serving import NO_TLS, Served, Silence, answer_in, serving

pytestmark = pytest.mark.anyio

ERAS = ("2026-07-28", "legacy")
ACCEPT, JSON = "application/json, text/event-stream", "application/json"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
TINY_PNG = png(1, 1)
CALL = "I look.\n```bash\necho hi\n```\n"


@asynccontextmanager
async def connected(served: Served, mode: Any, **more: Any) -> AsyncGenerator[Client, None]:
    url = f"{served.client.base_url}/mcp".replace("//mcp", "/mcp")
    async with asyncio.timeout(60), httpx2.AsyncClient(timeout=60, trust_env=False, verify=NO_TLS) as at_one_server:
        transport = streamable_http_client(url, http_client=at_one_server)
        async with Client(transport, mode=mode, **more) as client:
            yield client


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_asks_the_agent_and_calls_tools(tmp_path: Path, mode: str) -> None:
    messages = list[str]()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message or "")

    async with serving(tmp_path, Scripted([CALL, "It printed hi.", "Nothing else."])) as served:
        async with connected(served, mode) as client:
            offered = [tool["name"] for tool in (await served.client.get("/tools")).json()["tools"]]
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == ["ask_agent", *offered]
            answer = await client.call_tool("ask_agent", {"message": "Look"}, progress_callback=note)
            assert answer_in(answer.content[-1].text) == "It printed hi."  # type: ignore[union-attr]
            assert {"bash runs", "bash: done", "hi"} & {*messages}, messages
            again = {"message": "And?", "session": answer.structured_content["session"]}
            assert (await client.call_tool("ask_agent", again)).content[-1].text == "Nothing else."  # type: ignore[union-attr]
            result = await client.call_tool("bash", {"command": "echo direct"})
            assert result.content[0].text.startswith("direct") and not result.is_error  # type: ignore[union-attr]
            with pytest.raises(MCPError, match="there is no 'nothing'"):
                await client.call_tool("nothing", {})
            for wrong in ({}, {"message": 1}, {"message": "x", "approval": "auto"}):
                assert (await client.call_tool("ask_agent", wrong)).is_error


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("decision", ["approve", "deny", None])
async def test_approvals_are_forms_of_the_client(tmp_path: Path, mode: str, decision: str | None) -> None:
    shown = list[str]()

    async def decide(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        shown.append(params.message)
        if decision is None:
            return ElicitResult(action="cancel")
        return ElicitResult(action="accept", content={"decision": decision})

    async with serving(tmp_path, Scripted([]), approval_admin="ask") as served:
        async with connected(served, mode, elicitation_callback=decide) as client:
            result = await client.call_tool("write_file", {"path": "a.txt", "content": "x"})
    assert len(shown) == 1 and "a.txt" in shown[0]
    assert (tmp_path / "work/a.txt").exists() == (decision == "approve") == (not result.is_error)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_form_cannot_approve_what_it_does_not_show(tmp_path: Path, mode: str) -> None:
    shown = list[ElicitRequestParams]()
    answers = ["approve", "decide on the page"]

    async def decide(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        shown.append(params)
        return ElicitResult(action="accept", content={"decision": answers[len(shown) - 1], "scope": "session"})

    async with serving(tmp_path, Scripted([]), approval_admin="ask") as served:
        for content in ("x" * LONGEST, "\u202e" * 1_000):
            async with connected(served, mode, elicitation_callback=decide) as client:
                call = asyncio.create_task(client.call_tool("write_file", {"path": "a.txt", "content": content}))
                while len(await served.services.store.approvals("local")) == 0 or not shown:
                    await served.client.get("/livez")
                [waiting] = await served.services.store.approvals("local")
                path = f"/runs/{waiting.run}/approvals/{waiting.call}"
                assert (await served.client.post(path, json={"decision": "deny", "note": "no"})).is_success
                assert (await call).is_error
                assert not (tmp_path / "work/a.txt").exists()
                assert "can approve it" in shown[-1].message and "\u202e" not in shown[-1].message
                assert shown[-1].requested_schema["properties"]["decision"]["enum"] == ["decide on the page", "deny"]  # type: ignore[union-attr]
    assert len(shown) == 2


def test_a_form_shows_characters_that_are_not_seen() -> None:
    for hidden in ("\u202e", "\u200b", "\u2028", "\x7f", "\x9b", "\ud800", "\U000e0041", "\u3164", "\u2800", "\ufe0f"):
        asked = {"name": "bash", "reason": "It may change files.", "arguments": {"command": f"rm {hidden}x é日"}}
        message = form_of(asked)["message"]
        escape = hidden.encode("unicode_escape").decode()
        assert f'"rm {escape}x é日"' in message and hidden not in message


@pytest.mark.parametrize("mode", ERAS)
async def test_without_forms_and_page_what_needs_approval_is_denied(tmp_path: Path, mode: str) -> None:
    async with serving(tmp_path, Scripted([]), approval_admin="ask") as served, connected(served, mode) as client:
        result = await client.call_tool("write_file", {"path": "a.txt", "content": "x"})
        assert result.is_error and "approv" in result.content[0].text, result  # type: ignore[union-attr]
    assert not (tmp_path / "work/a.txt").exists()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_cancelled_call_stops_its_run(tmp_path: Path, mode: str) -> None:
    silence = Silence()
    async with serving(tmp_path, Scripted([("Wait", Pause(silence))])) as served:
        async with connected(served, mode) as client:
            call = asyncio.create_task(client.call_tool("ask_agent", {"message": "Go"}))
            await silence.noticed.wait()
            [row] = await served.services.runs.of("local")
            call.cancel()
            await served.services.runs.ended(row.id)
            assert (await served.services.store.run(row.id)).state == "cancelled"  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_of_servers_come_through_and_changes_are_announced(tmp_path: Path, mode: str) -> None:
    changed = asyncio.Event()

    async def note(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    async with serving_mcp(tmp_path, Scripted([]), {"helpful": helper()}) as served:
        async with connected(served, mode, message_handler=note) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert any(name.startswith("mcp__helpful__") for name in names)
            write_list(tmp_path)
            if mode == "legacy":
                await served.services.mcp.reload()
                await changed.wait()
            else:
                async with client.listen(tools_list_changed=True) as news:
                    await served.services.mcp.reload()
                    await anext(aiter(news))
            assert not any(tool.name.startswith("mcp__") for tool in (await client.list_tools()).tools)


@pytest.mark.parametrize("mode", ERAS)
async def test_conversations_and_documents_are_resources(tmp_path: Path, mode: str) -> None:
    async with serving(tmp_path, Scripted(["Hello, Ann."])) as served:
        events = await served.chat("I am Ann")
        async with connected(served, mode) as client:
            [resource] = (await client.list_resources()).resources
            assert resource.uri.endswith(events[0]["session"])
            [content] = (await client.read_resource(resource.uri)).contents
            text = content.text  # type: ignore[union-attr]
            assert text.startswith("# I am Ann\n\n## ") and text.endswith("Hello, Ann.\n")
            for uri in ("dragoman://sessions/ses_other", "dragoman://documents/x", "file:///etc/passwd"):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)


PICTURES = """
from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("pictures")


@server.tool()
def measure() -> dict[str, int]:
    return {"width": 2}


@server.tool()
def draw() -> list[str | Image]:
    return ["drawn", Image(data=bytes.fromhex("PNG"), format="png")]


server.run()
""".replace("PNG", TINY_PNG.hex())


@pytest.mark.parametrize("mode", ERAS)
async def test_structured_content_and_pictures_are_passed_on(tmp_path: Path, mode: str) -> None:
    (tmp_path / "pictures.py").write_text(PICTURES)
    entry = {"command": sys.executable, "args": [str(tmp_path / "pictures.py")]}
    async with serving_mcp(tmp_path, Scripted([]), {"p": entry}, tools=READS) as served:
        async with connected(served, mode) as client:
            measured = await client.call_tool("mcp__p__measure", {})
            assert measured.structured_content == {"width": 2}
            text, picture = (await client.call_tool("mcp__p__draw", {})).content
            assert text.text.startswith("drawn")  # type: ignore[union-attr]
            assert base64.b64decode(picture.data) == TINY_PNG  # type: ignore[union-attr]


async def test_a_server_asks_through_the_client(tmp_path: Path) -> None:
    asked = list[Any]()

    async def answer(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="accept", content={"colour": "red", "shade": "dark"})

    async with serving_mcp(tmp_path, Scripted([]), {"helpful": helper()}, tools=READS) as served:
        for mode in ERAS:
            async with connected(served, mode, elicitation_callback=answer) as client:
                result = await client.call_tool("mcp__helpful__ask", {})
                assert '"colour": "red"' in result.content[0].text  # type: ignore[union-attr]
    assert all("Which colour?" in one.message and "colour" in one.requested_schema["properties"] for one in asked)


class Raw:
    """A client of 2026-07-28 that sends its requests itself, without a connection that lasts."""

    def __init__(self, served: Served, headers: dict[str, str] | None = None, **capabilities: object) -> None:
        self._served, self._headers, self._id = served, headers or {}, 0
        self._meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        name = next((params[key] for key in ("name", "taskId") if key in params), None)
        body = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": {**params, "_meta": self._meta}}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Accept": ACCEPT, **self._headers}
        headers |= {"Mcp-Name": name} if name else {}
        response = await self._served.client.post("/mcp", json=body, headers=headers)
        text = response.text.rpartition("data: ")[2] if response.headers["content-type"] != JSON else response.text
        answer = json.loads(text)
        found: dict[str, Any] = answer.get("result") or answer["error"]
        return found


async def test_a_client_that_was_cut_off_takes_up_its_task(tmp_path: Path) -> None:
    script = [('```write_file\n{"path": "a.txt", "content": "x"}\n```\n',), "It is written."]
    async with serving(tmp_path, Scripted(script), approval_admin="ask") as served:
        client = Raw(served, extensions={TASKS: {}}, elicitation={})
        task = await client.send("tools/call", name="ask_agent", arguments={"message": "Write it"})
        assert (task["resultType"], task["status"]) == ("task", "working")
        again = Raw(served, extensions={TASKS: {}}, elicitation={})
        while (seen := await again.send("tasks/get", taskId=task["taskId"]))["status"] == "working":
            pass
        [(call, form)] = seen["inputRequests"].items()
        assert seen["status"] == "input_required" and "a.txt" in form["params"]["message"]
        yes = {call: {"action": "accept", "content": {"decision": "approve"}}}
        await again.send("tasks/update", taskId=task["taskId"], inputResponses=yes)
        while (seen := await again.send("tasks/get", taskId=task["taskId"]))["status"] != "completed":
            assert seen["status"] in ("working", "input_required")
        assert answer_in(seen["result"]["content"][0]["text"]) == "It is written."
        assert seen["result"]["structuredContent"]["run"] == task["taskId"]
        assert (await Raw(served).send("tasks/get", taskId=task["taskId"]))["code"] == -32021
        assert (await again.send("tasks/get", taskId="run_other"))["code"] == -32602


async def test_a_state_belongs_to_one_call_of_its_principal(tmp_path: Path) -> None:
    secret = "sk-verysecretvalue12"
    arguments = {"path": "a.txt", "content": secret}
    async with serving(tmp_path, Scripted([]), approval_user="ask") as served:
        served.services.redactor.add(secret)
        ann, bob = [Raw(served, await bearer(served, name), elicitation={}) for name in ("ann", "bob")]
        asked = await ann.send("tools/call", name="write_file", arguments=arguments)
        [(call, form)] = asked["inputRequests"].items()
        assert secret not in form["params"]["message"]
        state = asked["requestState"]
        yes = {"inputResponses": {call: {"action": "accept", "content": {"decision": "approve"}}}}
        for client, name, those, wrong in (
            (bob, "write_file", arguments, state),
            (ann, "write_file", arguments | {"path": "b.txt"}, state),
            (ann, "ask_agent", {"message": "x"}, state),
            (ann, "write_file", arguments, "run_other 3"),
            (ann, "write_file", arguments, ""),
        ):
            refused = await client.send("tools/call", name=name, arguments=those, requestState=wrong, **yes)
            assert refused["code"] == -32602, refused
        far = f"{state.partition(' ')[0]} {'9' * 5_000}"
        again = await ann.send("tools/call", name="write_file", arguments=arguments, requestState=far)
        assert again["inputRequests"] == asked["inputRequests"]
        done = await ann.send("tools/call", name="write_file", arguments=arguments, requestState=state, **yes)
        assert not done["isError"], done
        assert len((await ann.send("tools/list", cursor="9" * 5_000))["tools"]) > 1
    assert (tmp_path / "work/people/ann/a.txt").read_text() == "[redacted]", "as it was shown"


async def test_a_task_is_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([("Wait", Pause(silence := Silence()))])) as served:
        client = Raw(served, extensions={TASKS: {}})
        task = (await client.send("tools/call", name="ask_agent", arguments={"message": "Go"}))["taskId"]
        await silence.noticed.wait()
        assert await client.send("tasks/cancel", taskId=task)
        assert (await client.send("tasks/get", taskId=task))["status"] == "cancelled"


async def test_principals_have_their_own_only(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello, Ann.", ("Wait", Pause(Silence()))])) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob", "guest")
        session = await Raw(served, ann).send("tools/call", name="ask_agent", arguments={"message": "Hi"})
        uri = f"dragoman://sessions/{session['structuredContent']['session']}"
        assert "contents" in await Raw(served, ann).send("resources/read", uri=uri, name=uri)
        assert (await Raw(served, bob).send("resources/read", uri=uri, name=uri))["code"] == -32602
        assert "bash" not in [tool["name"] for tool in (await Raw(served, bob).send("tools/list"))["tools"]]
        task = await Raw(served, ann, extensions={TASKS: {}}).send(
            "tools/call", name="ask_agent", arguments={"message": "Go"}
        )
        other = Raw(served, bob, extensions={TASKS: {}})
        assert (await other.send("tasks/cancel", taskId=task["taskId"]))["code"] == -32602
        for headers in ({}, {"Authorization": "Bearer dgm_wrong"}):
            assert (await served.client.post("/mcp", json={}, headers=headers)).status_code == 401
        # A session of the older era belongs to the principal that has begun it.
        url = str(served.client.base_url)
        async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=NO_TLS) as one:
            begun = await one.post("/mcp", json=INITIALIZE, headers={**ann, "Accept": ACCEPT})
            assert begun.status_code == 200
            named = {"Mcp-Session-Id": begun.headers["mcp-session-id"], "Accept": ACCEPT}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            assert (await one.post("/mcp", json=ping, headers={**ann, **named})).status_code == 200
            assert (await one.post("/mcp", json=ping, headers={**bob, **named})).status_code == 404
            # Its streams are cut with its token.
            async with one.stream("GET", "/mcp", headers={**ann, **named}) as stream:
                assert stream.status_code == 200
                await served.services.store.write(
                    [TokenRevoked(fingerprint(ann["authorization"].removeprefix("Bearer ")), time.time())]
                )
                await served.services.presence.revoked("ann")
                with suppress(httpx2.RemoteProtocolError):
                    assert not [chunk async for chunk in stream.aiter_raw() if b"data:" in chunk]


async def test_a_call_whose_server_was_killed_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    async with asyncio.timeout(60):
        async with server(tmp_path, "http://127.0.0.1:9/v1") as (client, process):
            served = cast("Served", SimpleNamespace(client=client))
            call = Raw(served).send("tools/call", name="bash", arguments={"command": "echo x >> n; sleep 60"})
            calling = asyncio.create_task(call)
            while not (tmp_path / "work/n").exists():
                await client.get("/livez")
            process.kill()
            with pytest.raises(httpx2.TransportError):
                await calling
        async with server(tmp_path, "http://127.0.0.1:9/v1") as (client, _):
            [session] = (await client.get("/sessions")).json()["sessions"]
            [run] = (await client.get(f"/sessions/{session['id']}")).json()["runs"]
            events = [
                json.loads(line[6:])
                for line in (await client.get(f"/runs/{run['id']}/events")).text.splitlines()
                if line.startswith("data: ")
            ]
            assert [one["type"] for one in events if one["type"] in TERMINAL] == [events[-1]["type"]]
            [result] = [one for one in events if one["type"] == "tool.finished"]
            assert not result["ok"] and "outcome is unknown" in result["text"], result
    assert (tmp_path / "work/n").read_text() == "x\n"


@pytest.mark.parametrize("mode", ERAS)
async def test_the_bridge_speaks_stdio_for_it(tmp_path: Path, mode: Any) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served:
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DRAGOMAN_DATA_DIR": str(tmp_path / "data")}
        words = ["-P", "-m", "routes.cli.main", "mcp", "serve", "--server", str(served.client.base_url)]
        parameters = StdioServerParameters(command=sys.executable, args=words, env=environ, cwd=ROOT)
        shown = list[str]()

        async def decide(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            shown.append(params.message)
            return ElicitResult(action="accept", content={"decision": "deny", "note": "not now"})

        async with asyncio.timeout(60), Client(parameters, mode=mode, elicitation_callback=decide) as client:
            assert "ask_agent" in [tool.name for tool in (await client.list_tools()).tools]
            answer = await client.call_tool("ask_agent", {"message": "Hi"})
            assert answer.content[0].text == "Hello."  # type: ignore[union-attr]
            assert (await client.list_resources()).resources
            call = {"name": "later", "message": "x", "cron": "0 9 * * *", "action": "add"}
            denied = await client.call_tool("manage_schedules", call)
            assert denied.is_error and "not now" in denied.content[0].text  # type: ignore[union-attr]
        assert len(shown) == 1


async def test_calls_side_by_side_share_what_they_have_read(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": [str(tmp_path / "pictures.py")]}
    (tmp_path / "pictures.py").write_text(PICTURES)
    untrusted = '[{"match": "mcp__*", "risk": "read", "untrusted": true}]'
    async with serving_mcp(tmp_path, Scripted([]), {"p": entry}, tools=untrusted) as served:
        client = Raw(served)
        slow = asyncio.create_task(client.send("tools/call", name="bash", arguments={"command": "sleep 60"}))
        while not await served.services.runs.of("local"):
            await client.send("tools/list")
        await client.send("tools/call", name="mcp__p__measure", arguments={})
        slow.cancel()
        with suppress(asyncio.CancelledError):
            await slow
        for row in await served.services.runs.of("local"):
            await served.services.runs.ended(row.id)
        sessions = (await served.client.get("/sessions")).json()["sessions"]
        assert len(sessions) == 2
        await client.send("tools/call", name="bash", arguments={"command": "echo"})
        [*_, last] = await served.services.store.ended_runs(0)
        assert await served.services.store.tainted(last.session) is False
        [audit] = [one for _, one in await served.services.store.audit(1 << 40, 10) if one.run == last.id]
        assert json.loads(audit.facts)["tainted"]

"""dragoman as an MCP server, with the SDK's own client in both eras of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult, ToolListChangedNotification

from app.models.scripted import Pause, Scripted
from tests.support.mcp.served import helper, serving_mcp, write_list
from tests.support.server.serving import Served, Silence, answer_in, serving

pytestmark = pytest.mark.anyio

ERAS = ("2026-07-28", "legacy")
CALL = "I look.\n```bash\necho hi\n```\n"


@asynccontextmanager
async def connected(served: Served, mode: Any, **more: Any) -> AsyncGenerator[Client, None]:
    url = f"{served.client.base_url}/mcp".replace("//mcp", "/mcp")
    transport = streamable_http_client(url, http_client=served.client)
    async with asyncio.timeout(60), Client(transport, mode=mode, **more) as client:
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
            assert "bash runs" in messages and "bash: done" in messages
            again = {"message": "And?", "session": answer.structured_content["session"]}
            assert (await client.call_tool("ask_agent", again)).content[-1].text == "Nothing else."  # type: ignore[union-attr]
            result = await client.call_tool("bash", {"command": "echo direct"})
            assert result.content[0].text.startswith("direct") and not result.is_error  # type: ignore[union-attr]
            with pytest.raises(MCPError, match="there is no 'nothing'"):
                await client.call_tool("nothing", {})
            with pytest.raises(MCPError, match="message"):
                await client.call_tool("ask_agent", {})


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
            assert content.text == "# I am Ann\n\n## You\n\nI am Ann\n\n## dragoman\n\nHello, Ann.\n"  # type: ignore[union-attr]
            for uri in ("dragoman://sessions/ses_other", "dragoman://documents/x", "file:///etc/passwd"):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)

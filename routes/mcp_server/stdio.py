"""MCP over stdio for clients that start their servers, passed on to `/mcp` of a server that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import PROTOCOL_VERSION_META_KEY, JSONRPCRequest, JSONRPCResponse

VERSION = "MCP-Protocol-Version"
NAMED_BY = ("name", "uri", "taskId")  # what the header Mcp-Name repeats
LONG_S = 24 * 3600.0  # between two messages of a stream


async def pass_on(url: str, client: httpx2.AsyncClient) -> None:
    """Serve until stdin ends."""
    client.timeout = httpx2.Timeout(30.0, read=LONG_S)
    version: str | None = None  # that initialize has settled on
    async with (
        client,
        stdio_server() as (from_client, to_client),
        streamable_http_client(url, http_client=client, max_sse_event_size=None) as (from_server, to_server),
        anyio.create_task_group() as passing,
    ):

        async def answer() -> None:
            nonlocal version
            async for message in from_server:
                if isinstance(message, SessionMessage):
                    result = message.message.result if isinstance(message.message, JSONRPCResponse) else {}
                    version = result.get("protocolVersion", version)
                    await to_client.send(message)

        passing.start_soon(answer)
        async for message in from_client:
            if isinstance(message, SessionMessage):
                metadata = ClientMessageMetadata(headers=_headers(message, version))
                await to_server.send(SessionMessage(message.message, metadata))
        passing.cancel_scope.cancel()


def _headers(message: SessionMessage, settled: str | None) -> dict[str, str]:
    """Return the headers that streamable HTTP wants of a message, which stdio does without."""
    request = message.message if isinstance(message.message, JSONRPCRequest) else None
    params: Mapping[str, Any] = (request.params or {}) if request else {}
    version = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
    if request is None or version is None:
        return {VERSION: settled} if settled else {}
    name = next((params[key] for key in NAMED_BY if isinstance(params.get(key), str)), None)
    named = {"Mcp-Name": name} if name else {}
    return {VERSION: str(version), "Mcp-Method": request.method, **named}

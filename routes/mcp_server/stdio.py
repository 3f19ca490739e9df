"""MCP over stdio for clients that start their servers, passed on to `/mcp` of a server that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import PROTOCOL_VERSION_META_KEY, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

NAMED_BY = ("name", "uri", "taskId")  # what the header Mcp-Name repeats
LONG_S = 24 * 3600.0  # between two messages of a stream


async def pass_on(url: str, client: httpx2.AsyncClient) -> None:
    """Serve until stdin ends."""
    client.timeout = httpx2.Timeout(30.0, read=LONG_S)
    headers = Headers()
    async with (
        client,
        stdio_server() as (from_client, to_client),
        streamable_http_client(url, http_client=client, max_sse_event_size=None) as (from_server, to_server),
        anyio.create_task_group() as passing,
    ):

        async def answer() -> None:
            async for message in from_server:
                if isinstance(message, SessionMessage):
                    headers.note(message)
                    await to_client.send(message)

        passing.start_soon(answer)
        async for message in from_client:
            if isinstance(message, SessionMessage):
                metadata = ClientMessageMetadata(headers=headers.of(message))
                await to_server.send(SessionMessage(message.message, metadata))
        passing.cancel_scope.cancel()


class Headers:
    """The headers that streamable HTTP wants of a message, which stdio does without."""

    def __init__(self) -> None:
        self._version: str | None = None  # that initialize has settled on

    def note(self, message: SessionMessage) -> None:
        """Note the version in the answer to initialize."""
        answer = message.message
        if isinstance(answer, JSONRPCResponse) and "protocolVersion" in answer.result:
            self._version = str(answer.result["protocolVersion"])

    def of(self, message: SessionMessage) -> dict[str, str]:
        request = message.message
        if not isinstance(request, JSONRPCRequest | JSONRPCNotification):
            return self._versioned(self._version)
        params: Mapping[str, Any] = request.params or {}
        version = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
        if version is None:
            return {} if request.method == "initialize" else self._versioned(self._version)
        name = next((params[key] for key in NAMED_BY if isinstance(params.get(key), str)), None)
        named = {"Mcp-Name": name} if name else {}
        return {"Mcp-Method": request.method, **named, **self._versioned(str(version))}

    def _versioned(self, version: str | None) -> dict[str, str]:
        return {"MCP-Protocol-Version": version} if version else {}

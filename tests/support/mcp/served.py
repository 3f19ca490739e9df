"""A whole server with MCP servers in its file, for tests."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from app.core.provider import Provider
from tests import ROOT
from tests.support.server.serving import Served, serving
from tools.mcp.model import ServerState, Status

FIXTURES = ROOT / "fixtures/mcp"
HELPFUL = FIXTURES / "helpful.py"
LIMIT_S = 30
READS = '[{"match": "mcp__*", "risk": "read", "untrusted": false}]'  # so that nothing asks but the servers


def helper(*args: str, **more: Any) -> dict[str, Any]:
    """The entry of a server that does as it should."""
    return {"command": sys.executable, "args": [str(HELPFUL), *args], **more}


def write_list(folder: Path, **servers: object) -> Path:
    path = folder / "mcp.json"
    path.with_suffix(".new").write_text(json.dumps({"mcpServers": servers}))
    path.with_suffix(".new").replace(path)
    return path


@asynccontextmanager
async def serving_mcp(
    folder: Path, provider: Provider, servers: dict[str, object], **flags: Any
) -> AsyncGenerator[Served, None]:
    """With the servers known, so that their tools are there for the first run."""
    write_list(folder, **servers)
    async with asyncio.timeout(110), serving(folder, provider, **flags) as served:
        for name in servers:
            await settled(served, name)
        yield served


async def settled(served: Served, name: str) -> Status:
    """When it is connected, has failed or has stopped again."""

    async def known() -> Status:
        while True:
            for status in served.services.mcp.status():
                if (
                    status.name == name
                    and status.state is not ServerState.CONNECTING
                    and (status.tools or status.error)
                ):
                    return status
            await served.services.mcp.manager.changed()

    return await asyncio.wait_for(known(), LIMIT_S)


async def until_gone(served: Served, name: str) -> None:
    async def gone() -> None:
        while any(status.name == name for status in served.services.mcp.status()):
            await served.services.mcp.manager.changed()

    await asyncio.wait_for(gone(), LIMIT_S)

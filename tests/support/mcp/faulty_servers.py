"""What the tests of MCP share: servers that do something wrong, a manager of them, and one call."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tools.base.outcome import Progress, Result
from tools.mcp.manager import Manager
from tools.mcp.model import Hooks, PinStore, ServerConfig, ServerState, Status, Timeouts
from tools.process.kill_group import find_kill_groups
from tools.tool import Context, Tool

FIXTURES = ROOT / "fixtures/mcp"
FAULTY, HONEST = FIXTURES / "faulty.py", FIXTURES / "honest.py"
START_S = 60  # a start, or an end, on a busy machine
PATIENT = Timeouts(START_S, START_S, START_S)  # for what ends by itself, if slowly


def faulty(fault: str = "none", *args: str, name: str = "s", **more: Any) -> ServerConfig:
    """The configuration of a server with one fault."""
    words = (str(FAULTY), fault, *args)
    return ServerConfig(name, command=sys.executable, args=words, **{"timeouts": PATIENT, **more})


@asynccontextmanager
async def managing(
    *configs: ServerConfig, pins: PinStore | None = None, hooks: Hooks | None = None, **more: Any
) -> AsyncGenerator[Manager, None]:
    manager = Manager(configs, pins, hooks, **more)
    await manager.open()
    try:
        yield manager
    finally:
        async with asyncio.timeout(START_S):
            await manager.close()


async def ready(manager: Manager, name: str = "s") -> Status:
    status = await manager.settled(name, START_S)
    assert status.state is ServerState.READY, status
    return status


def tool(manager: Manager, name: str) -> Tool:
    return next(one for one in manager.tools() if one.name == name)


async def news_of(tool: Tool, workspace: Path = Path("/"), **arguments: Any) -> list[Progress | Result]:
    async with aclosing(tool.run(arguments, Context(workspace))) as news:
        return [one async for one in news]


async def result_of(tool: Tool, workspace: Path = Path("/"), **arguments: Any) -> Result:
    """The result of one call, as the model gets it."""
    last = (await news_of(tool, workspace, **arguments))[-1]
    assert isinstance(last, Result)
    return last


def is_there(*pids: int | None) -> bool:
    """Whether any of these processes runs, or is a zombie."""
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@asynccontextmanager
async def serving(*words: object) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """A server of its own that listens on the port that is its last word."""
    process = await asyncio.create_subprocess_exec(sys.executable, *map(str, words), stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", int(str(words[-1])))
                    break
                except OSError:
                    assert process.returncode is None
                    await asyncio.wait({asyncio.create_task(process.wait())}, timeout=0.05)
        writer.close()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


# What has left its parent, its session and its environment is ended by a control group only.
HIDES = pytest.param("hides", marks=pytest.mark.skipif(not find_kill_groups().folder, reason="no control groups here"))

"""Other people's MCP servers, as `make real-servers` installs them, and our manager around one of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tools.base.outcome import Progress, Result
from tools.mcp.manager import Manager
from tools.mcp.model import Hooks, ServerConfig
from tools.tool import Context

CACHE = ROOT / ".cache/mcp"
NEW, OLD = CACHE / "new", CACHE / "old"
PACKAGES = CACHE / "node/node_modules/@modelcontextprotocol"
SETTLED_S = 60


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: dict[str, Any]
    says: str  # a part of the result


@dataclass(frozen=True, slots=True)
class Real:
    """A server: how it is started in a folder of its own, how many tools it has, and what it answers."""

    name: str
    config: Callable[[Path], ServerConfig]
    protocol: str
    tools: int
    calls: Callable[[Path], list[Call]]


def needed(path: Path) -> Path:
    """The path, if it is installed. Otherwise the test is skipped and says so; CI skips none."""
    if not path.exists() or (PACKAGES in path.parents and not shutil.which("node")):
        missing = f"{path.relative_to(CACHE)} or what runs it is not installed: run `make real-servers`."
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    return path


def python_server(name: str, environment: Path, *args: str) -> ServerConfig:
    command = needed(environment / f"bin/mcp-server-{name}")
    return ServerConfig(name, command=str(command), args=args)


def node_server(name: str, *args: str, **env: str) -> ServerConfig:
    script = needed(PACKAGES / f"server-{name}/dist/index.js")
    return ServerConfig(name, command="node", args=(str(script), *args), env=env)


def git_server(folder: Path) -> ServerConfig:
    commands = (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "A first stone"))
    who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
    for words in commands if not (folder / ".git").exists() else ():
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    return python_server("git", NEW, "--repository", str(folder))


REAL = (
    Real(
        "time",
        lambda folder: python_server("time", NEW, "--local-timezone", "UTC"),
        "2026-07-28",
        2,
        lambda folder: [
            Call(
                "convert_time",
                {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
                '"time_difference": "+9.0h"',
            ),
        ],
    ),
    Real(
        "git",
        git_server,
        "2026-07-28",
        12,
        lambda folder: [Call("git_log", {"repo_path": str(folder)}, "A first stone")],
    ),
    Real(
        "sqlite",
        lambda folder: python_server("sqlite", OLD, "--db-path", str(folder / "stones.db")),
        "2025-11-25",
        7,
        lambda folder: [
            Call("create_table", {"query": "CREATE TABLE IF NOT EXISTS stones (weight INT)"}, "successfully"),
            Call("write_query", {"query": "INSERT INTO stones VALUES (7)"}, "affected_rows"),
            Call("read_query", {"query": "SELECT max(weight) AS heaviest FROM stones"}, "'heaviest': 7"),
        ],
    ),
    Real(
        "everything",
        lambda folder: node_server("everything"),
        "2025-11-25",
        14,  # with ours for its resources
        lambda folder: [
            Call("get-sum", {"a": 2, "b": 40}, "42"),
            Call("echo", {"message": "hello"}, "Echo: hello"),
            Call("simulate-research-query", {"topic": "stones"}, "stones"),  # only as a task
        ],
    ),
    Real(
        "basic-vanillajs",
        lambda folder: node_server("basic-vanillajs", "--stdio"),
        "2025-11-25",
        2,  # with ours for its resources
        lambda folder: [Call("get-time", {}, "T")],
    ),
    Real(
        "filesystem",
        lambda folder: node_server("filesystem", str(folder)),
        "2025-11-25",
        14,
        lambda folder: [
            Call("write_file", {"path": str(folder / "a.txt"), "content": "stone\n"}, "Successfully wrote"),
            Call("read_text_file", {"path": str(folder / "a.txt")}, "stone"),
        ],
    ),
    Real(
        "memory",
        lambda folder: node_server("memory", MEMORY_FILE_PATH=str(folder / "memory.jsonl")),
        "2025-11-25",
        10,
        lambda folder: [
            Call(
                "create_entities",
                {"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]},
                "",
            ),
            Call("read_graph", {}, "Ada"),
        ],
    ),
)


@asynccontextmanager
async def managed(config: ServerConfig, hooks: Hooks | None = None) -> AsyncGenerator[Manager, None]:
    """A manager with one server, whose tools are known."""
    manager = Manager([config], hooks=hooks)
    await manager.open()
    try:
        status = await manager.settled(config.name, SETTLED_S)
        assert not status.error, status
        yield manager
    finally:
        await manager.close()


async def call(
    manager: Manager,
    server: str,
    tool: str,
    arguments: dict[str, Any],
    folder: Path,
    seen: list[Progress] | None = None,
) -> Result:
    """What the model is told."""
    [found] = [one for one in manager.tools() if one.name == f"mcp__{server}__{tool}"]
    async with aclosing(found.run(arguments, Context(folder))) as news:
        async for one in news:
            if not isinstance(one, Progress):
                return one
            if seen is not None:
                seen.append(one)
    raise AssertionError("a call ends with a result")

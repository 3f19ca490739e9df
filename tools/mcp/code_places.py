"""An MCP server that is a command runs outside of the box: no part of it may lie where a tool could have written it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.containment import lies_in
from tools.mcp.model import ServerConfig
from tools.mcp.variables import BadEntry

# What a program of the list runs by its argument; other files and folders there are what it works on.
CODE = frozenset(
    {".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".php", ".lua", ".jar", ".wasm"}
    | {".so", ".dll", ".exe", ".toml"}
)
# Variables in which programs find more code, in folders or files apart by colons.
PATHS = ("PATH", "PYTHONPATH", "PYTHONHOME", "NODE_PATH", "PERL5LIB", "RUBYLIB", "LD_LIBRARY_PATH", "LD_PRELOAD")


def check_code_places(config: ServerConfig, workspace: Path | None) -> None:
    """Raises BadEntry, naming the field."""
    if workspace is None or config.transport != "stdio":
        return
    for field, path in _places(config):
        if lies_in(path, workspace):
            raise BadEntry(f"{field}: {path} is inside the workspace, where tools could change it. Move it.")


def _places(config: ServerConfig) -> Iterator[tuple[str, Path]]:
    folder = config.cwd or Path.cwd()
    if config.cwd:
        yield "cwd", config.cwd
    if found := shutil.which(config.command, path=config.env.get("PATH")):
        yield "command", folder / found
    for name, places in _paths_of(config.env):
        yield f"env.{name}", folder / places
    for number, argument in enumerate(config.args):
        if Path(argument.rpartition("=")[2]).suffix.lower() in CODE:
            yield f"args[{number}]", folder / argument.rpartition("=")[2]


def _paths_of(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, place) for name in PATHS for place in filter(None, env.get(name, "").split(os.pathsep)))

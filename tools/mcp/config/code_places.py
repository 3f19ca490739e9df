"""An MCP server that is a command runs outside of the box: no part of it may lie where a tool could have written it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.base.containment import lies_in
from tools.mcp.config.variables import BadEntry
from tools.mcp.model import ServerConfig
from tools.process.unsafe_environment import code_in_environment

# What a program of the list runs by its argument; other files and folders there are what it works on.
CODE = frozenset(
    {".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".php", ".lua", ".jar", ".wasm"}
    | {".so", ".dll", ".exe", ".toml"}
)
# What runs the first file or folder among its arguments; what follows that one is for the program.
INTERPRETERS = re.compile(
    r"(python|pypy|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|php|lua|java|sh|bash|dash|zsh|pwsh)[\d.]*(\.exe)?", re.I
)
# Code itself, or a module by its name: what follows is for it.
INLINE = re.compile(r"-[A-Za-z]*[cme]|--eval|--print")
RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx", "pipx"})  # of a package, which may be a folder


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
    for place in filter(None, config.env.get("PATH", "").split(os.pathsep)):
        yield "env.PATH", folder / place
    for name, path in code_in_environment(config.env):
        yield f"env.{name}", folder / path
    for number, argument in enumerate(config.args):
        if Path(argument.rpartition("=")[2]).suffix.lower() in CODE:
            yield f"args[{number}]", folder / argument.rpartition("=")[2]
    for number in _run_first(config.command, config.args, folder):
        yield f"args[{number}]", folder / config.args[number]


def _run_first(command: str, args: Sequence[str], folder: Path) -> Iterator[int]:
    """Which arguments may be what an interpreter or a runner runs, whatever it is called (`node server`)."""
    words = [command, *args]
    named = (at for at, word in enumerate(words) if INTERPRETERS.fullmatch(Path(word).name))
    runs = next((at for at in named if not (folder / words[at]).is_dir()), None)
    is_runner = runs is None and Path(command).name in RUNNERS
    if runs is None and not is_runner:
        return
    for number in range(runs or 0, len(args)):
        argument = args[number]
        if not is_runner and INLINE.fullmatch(argument):
            return
        if argument.startswith("-"):
            continue
        yield number
        if is_runner or _is_there(folder / argument):
            return


def _is_there(path: Path) -> bool:
    """Also with the suffix that an interpreter adds by itself."""
    return any(path.with_name(path.name + suffix).exists() for suffix in ("", ".js", ".mjs", ".cjs", ".ts"))

"""The check that the code of an MCP server, which runs unsandboxed, lies where no tool can write."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.base.containment import lies_in
from tools.base.patterns import lazy_pattern
from tools.mcp.config.variables import BadEntry
from tools.mcp.model import ServerConfig
from tools.process.unsafe_environment import code_in_environment

# Suffixes of code among arguments; other files and folders there are data.
CODE = frozenset(
    {".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".php", ".lua", ".jar", ".wasm"}
    | {".so", ".dll", ".exe", ".toml"}
)
# Programs that run the first file or folder among their arguments; later arguments are for that program.
INTERPRETERS = lazy_pattern(
    r"(python|pypy|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|php|lua|java|sh|bash|dash|zsh|pwsh)[\d.]*(\.exe)?", re.I
)
# Options with code, or the name of a module: later arguments are for it.
INLINE = lazy_pattern(r"-[A-Za-z]*[cme]|--eval|--print")
RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx", "pipx"})  # run a package, which may be a folder


def check_code_places(config: ServerConfig, workspace: Path | None) -> None:
    """Raise BadEntry, which names the field."""
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
    """Yield the arguments that an interpreter or a runner may run, whatever their suffix (`node server`)."""
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
    """Return whether the path exists, also with a suffix that an interpreter adds."""
    return any(path.with_name(path.name + suffix).exists() for suffix in ("", ".js", ".mjs", ".cjs", ".ts"))

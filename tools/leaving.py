"""What a call of a built-in tool would send out of the workspace and the sandbox, or leave for programs outside.

Each function is the `leaves` of a tool (tools.tool.Tool). The gate asks a person because of it, in these words.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from parsing import Arguments
from tools.commands import Doubt, loses_nothing, simple_commands
from tools.egress import hosts_wanted, told
from tools.left_behind import leaves_the_box
from tools.rights import Leaving
from tools.tool import ToolFailed
from tools.workspace import inside

MAX_SHOWN = 200  # characters of a name that a model has chosen; all arguments are shown beside the question


def request_sent(arguments: Arguments, _: Path) -> Leaving:
    """`web_fetch`: the host of the URL gets the address, and whatever was put into it."""
    url = arguments.get("url")
    try:
        host = urlsplit(url).netloc if isinstance(url, str) else ""
    except ValueError:
        host = ""
    return Leaving(
        f"{shown(host) or 'The host of its URL'} would get the request, with all that stands in the address."
    )


def hosts_reached(arguments: Arguments, _: Path) -> Leaving | None:
    """`bash` and `python` with `network`: they could send what they can read to these hosts."""
    hosts = hosts_wanted(arguments)
    if not hosts:
        return None
    return Leaving(f"It would run with network ({shown(told(hosts))}), and could send them what the sandbox can read.")


def file_left(arguments: Arguments, workspace: Path) -> Leaving | None:
    """`write_file` and `edit_file`: a file that the owner's own programs run or obey outside of the sandbox."""
    path = arguments.get("path")
    if not isinstance(path, str):
        return None
    try:
        parts = inside(workspace, path)
    except ToolFailed:  # then nothing is written, and the call says why
        return None
    why = leaves_the_box(parts)
    return Leaving(f"It would leave {shown('/'.join(parts))}: {why}.", always=True) if why else None


# What these are there for is the network. Their words stand at the beginning of a command.
CLIENTS = (
    *("curl", "wget", "ping", "ssh", "scp", "sftp", "gh", "npx", "uvx"),
    *("git push", "git pull", "git fetch", "git clone", "git ls-remote", "git submodule"),
    *("pip install", "pip3 install", "pip download", "python -m pip", "python3 -m pip", "pipx", "uv pip", "uv add"),
    *("npm install", "npm i", "npm ci", "npm publish", "yarn add", "yarn install", "pnpm add", "pnpm install"),
    *("apt", "apt-get", "cargo install", "cargo add", "go get", "go install", "gem install", "docker"),
)


def without_its_network(arguments: Arguments) -> str | None:
    """`bash`: why a command that is there for the network cannot succeed without it, and what to do instead."""
    command = arguments.get("command")
    if not isinstance(command, str) or hosts_wanted(arguments):
        return None
    commands = simple_commands(command)
    found = [] if isinstance(commands, Doubt) else [name for words in commands for name in CLIENTS if _is(name, words)]
    if not found:
        return None
    return (
        f"{found[0]} needs the network, and this command has none. Call bash again with network: a list of the hosts "
        "that it needs. What runs on this machine (localhost) cannot be reached from the sandbox."
    )


def _is(name: str, words: tuple[str, ...]) -> bool:
    wanted = tuple(name.split())
    return words[: len(wanted)] == wanted


def nothing_lost(arguments: Arguments) -> bool:
    """`bash`: a command that is known only to read, or to add what can be undone, and has no network."""
    command = arguments.get("command")
    return isinstance(command, str) and not hosts_wanted(arguments) and loses_nothing(command)


def call_sent(server: str, tool: str, _: Arguments, __: Path) -> Leaving:
    """A tool of an MCP server: a program of its own, which no sandbox of ours holds to what it says."""
    return Leaving(f"The MCP server {shown(server)} would get this call of its tool {shown(tool)}, with all arguments.")


def shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"

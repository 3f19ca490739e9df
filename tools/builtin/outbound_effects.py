"""Outbound effects of built-in tools: data sent out of the workspace and the sandbox, files for programs outside.

Each function is the `leaves` of a tool (tools.tool.Tool). The gate shows it in the approval.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from parsing import Arguments
from tools.base.outcome import ToolFailed
from tools.base.rights import OutboundEffect
from tools.base.texts import shortened
from tools.base.workspace import inside
from tools.sandbox.git_repository import runs_nothing
from tools.sandbox.owner_run_paths import owner_run_reason
from tools.shell_policy.network_needs import calls_only_loopback
from tools.shell_policy.plain_commands import loses_nothing
from tools.web.egress import describe_hosts, hosts_wanted

MAX_SHOWN = 200  # characters of a name that a model has chosen; the approval shows all arguments


def request_sent(arguments: Arguments, _: Path) -> OutboundEffect:
    """`web_fetch`: the host of the URL gets the address, and whatever was put into it."""
    url = arguments.get("url")
    try:
        host = urlsplit(url).netloc if isinstance(url, str) else ""
    except ValueError:
        host = ""
    return OutboundEffect(
        f"{shown(host) or 'The host of its URL'} would get the request, with all that stands in the address.",
        carries_text=True,
    )


def query_sent(place: str, _: Arguments, __: Path) -> OutboundEffect:
    """`web_search`: the search engine gets the query, and whatever was put into it."""
    return OutboundEffect(f"{shown(place)} would get the query, with all that stands in it.", carries_text=True)


def hosts_reached(arguments: Arguments, _: Path) -> OutboundEffect | None:
    """`bash` and `python` with `network`: they could send what they can read to these hosts."""
    hosts = hosts_wanted(arguments)
    if not hosts:
        return None
    return OutboundEffect(
        f"It would run with network ({shown(describe_hosts(hosts))}), and could send them what the sandbox can read."
    )


def file_left(arguments: Arguments, workspace: Path) -> OutboundEffect | None:
    """`write_file` and `edit_file`: a file that the owner's own programs run or obey outside of the sandbox."""
    path = arguments.get("path")
    if not isinstance(path, str):
        return None
    try:
        parts = inside(workspace, path)
    except ToolFailed:  # then nothing is written, and the call says why
        return None
    why = owner_run_reason(parts)
    return OutboundEffect(f"It would leave {shown('/'.join(parts))}: {why}.", always=True) if why else None


def nothing_to_reach(arguments: Arguments) -> str | None:
    """`bash`: refuse a command that only calls a service of this machine, which the sandbox cannot reach."""
    command = arguments.get("command")
    if not isinstance(command, str) or hosts_wanted(arguments) or not calls_only_loopback(command):
        return None
    return (
        "In the sandbox, localhost is the sandbox itself: what runs on this machine cannot be reached there. Start "
        "what you want to call in the same command, or go on without."
    )


def nothing_lost(arguments: Arguments, workspace: Path) -> bool:
    """`bash`: return whether a command is known only to read, or to add what can be undone, without network.

    Commands in which git could run a program that a repository names are excluded.
    """
    command = arguments.get("command")
    if not isinstance(command, str) or hosts_wanted(arguments):
        return False
    return loses_nothing(command) and runs_nothing(command, workspace)


def call_sent(server: str, tool: str, _: Arguments, __: Path) -> OutboundEffect:
    """A tool of an MCP server: a program of its own, which runs outside of the sandbox."""
    return OutboundEffect(
        f"The MCP server {shown(server)} would get this call of its tool {shown(tool)}, with all arguments."
    )


def shown(text: str) -> str:
    return shortened(text, MAX_SHOWN)

"""`dragoman mcp`: the servers in the file are changed there, and a server that runs takes that in by itself."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.config.settings import Loaded, Settings
from app.storage.audit import AuditRow
from app.storage.mcp import McpServerRemoved, McpStore
from routes.access.local_admin import read_local_token
from routes.cli.columns import aligned, failed
from routes.cli.remote import NoServer, Remote, server_flags, with_remote
from routes.cli.tokens import with_store
from routes.terminal.chat import client_of, running_server
from routes.terminal.event_client import ChatFailed, step
from routes.texts.exact import exact
from tools.base.rights import Column, Risk, Role, Trust, columns_in_words, results_in_words
from tools.mcp.config.config_file import FileUnchanged, drop_entry, entries_of, put_entry, set_enabled
from tools.mcp.config.entries import config_of, read_config, transport_of
from tools.mcp.config.variables import Variables
from tools.mcp.model import Transport

BY = "the command line"
TAKEN_IN = "A running server applies this within a second or two."
COLUMNS = ("name", "state", "transport", "tools", "held", "tokens", "pid", "protocol", "connect", "restarts", "target")
RESULTS = {False: "its results do not count as untrusted text", True: "its results count as untrusted text"}
TAIL = 3  # lines of stderr below a server that has failed


def mcp_flags(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, message: str, usage: str | None = None) -> argparse.ArgumentParser:
        child = actions.add_parser(name, help=message, description=message, usage=usage, allow_abbrev=False)
        server_flags(child, "an admin's token")
        return child

    usage = "dragoman mcp add NAME [--env K=V ...] -- COMMAND [ARG ...]\n       dragoman mcp add NAME --url URL"
    add = action("add", "add a server to the file: a command behind --, or a URL", usage)
    add.add_argument("name")
    add.add_argument("--url", help="its address, instead of a command")
    add.add_argument(
        "--sse", action="store_true", help="the URL speaks the older transport, SSE (default: if its path ends in /sse)"
    )
    add.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="sent to the URL")
    add.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the command")
    add.add_argument("--cwd", help="the folder that the command starts in")
    add.add_argument("--eager", action="store_true", help="connect at start-up, not at the first call")
    listing = action("list", "list the servers and their states")
    serving = action("serve", "be an MCP server on stdin and stdout, for a client that starts its servers")
    named = {name: action(name, message) for name, (message, _) in NAMED.items()}
    for child in named.values():
        child.add_argument("name")
    named["approve"].add_argument("tool", nargs="?", help="only this one of what is held (default: all)")
    for word in ("trust", "distrust"):
        named[word].add_argument("--tool", default="", help="only this tool of the server")
    _trust_flags(named["trust"])
    return add, listing, serving, *named.values()


def _trust_flags(trust: argparse.ArgumentParser) -> None:
    trust.add_argument("--role", choices=list(Role), help="the role that its use requires")
    trust.add_argument("--risk", choices=list(Risk), help="the strongest effect that it has")
    trust.add_argument(
        "--argument",
        action="append",
        dest="arguments",
        type=_column,
        metavar="NAME=COLUMN",
        help=f"what an argument is for: {', '.join(Column)} (repeatable; without any it is guessed by name and schema)",
    )
    results = trust.add_mutually_exclusive_group()
    results.add_argument("--trusted-results", dest="untrusted", action="store_const", const=False, help=RESULTS[False])
    results.add_argument("--untrusted-results", dest="untrusted", action="store_const", const=True, help=RESULTS[True])


def _column(text: str) -> tuple[str, Column]:
    name, _, column = text.rpartition("=")
    if not name or column not in set(Column):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COLUMN with one of {', '.join(Column)}")
    return name, Column(column)


def run_mcp(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    if args.action == "serve":
        return _serve(args, loaded, environ)

    def work(remote: Remote) -> int:
        match args.action:
            case "add":
                return _add(args, loaded.settings, environ)
            case "list":
                return _list(remote, loaded.settings, environ)
        _, act = NAMED[args.action]
        return act(args, remote, loaded)

    try:
        return with_remote(args, loaded, environ, work)
    except FileUnchanged as failure:
        return failed(failure)


def _serve(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Be a server until stdin ends. Exit code 1 if none can be reached."""
    from routes.mcp_server.stdio import pass_on  # the SDK takes a second

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that a server of our own is stopped
    url, token = args.server or environ.get("DRAGOMAN_URL"), args.token or environ.get("DRAGOMAN_TOKEN")
    try:
        with running_server(url, loaded, environ) as (target, _):
            client = client_of(target, token, read_local_token(loaded.settings.data_dir))
            asyncio.run(pass_on(f"{target}/mcp", client))
    except ChatFailed as failure:
        return failed(failure)
    return 0


def _add(args: argparse.Namespace, settings: Settings, environ: Mapping[str, str]) -> int:
    entry, path = _entry(args, args.behind), settings.mcp_config
    problem = config_of(args.name, entry, Variables(environ, path.parent, settings.workspace)).problem
    if problem and "${" not in problem:  # a variable may be there when the server starts
        raise FileUnchanged(problem)
    message = put_entry(path, args.name, entry)
    print(f"{args.name} is now in {path}. {TAKEN_IN}")
    _report(message, problem)
    return 0


def _entry(args: argparse.Namespace, command: Sequence[str]) -> dict[str, Any]:
    if bool(command) == bool(args.url):
        raise FileUnchanged("Give either a command behind --, or --url.")
    more: dict[str, Any] = {"eager": True} if args.eager else {}
    if args.url and (args.env or args.cwd):
        raise FileUnchanged("--env and --cwd are for a command; a URL takes --header.")
    if command and (args.header or args.sse):
        raise FileUnchanged("--header and --sse are for a URL; a command takes --env.")
    if args.url:
        pairs = _pairs(args.header, ":", "--header takes NAME:VALUE")
        headers = {name: value.strip() for name, value in pairs.items()}
        return {"type": _transport(args), "url": args.url} | ({"headers": headers} if headers else {}) | more
    program, *rest = command
    env = _pairs(args.env, "=", "--env takes NAME=VALUE")
    where = {"cwd": args.cwd} if args.cwd else {}
    return {"command": program, "args": rest} | ({"env": env} if env else {}) | where | more


def _transport(args: argparse.Namespace) -> Transport:
    try:
        return "sse" if args.sse else transport_of(args.url)
    except ValueError:  # no URL: what is wrong with it is said when the entry is read
        return "http"


def _pairs(words: Sequence[str], between: str, advice: str) -> dict[str, str]:
    pairs = [word.partition(between) for word in words]
    for name, found, _ in pairs:
        if not found or not name.strip():
            raise FileUnchanged(f"{advice}, not {name[:40]!a} alone.")
    return {name.strip(): value for name, _, value in pairs}


def _list(remote: Remote, settings: Settings, environ: Mapping[str, str]) -> int:
    path = settings.mcp_config
    try:
        answer = remote.call("GET", "/mcp/servers")
        servers, problem = answer["servers"], answer["problem"]
    except NoServer as none:
        configured = read_config(path, environ, settings.workspace) if path.exists() else None
        found = configured.configs if configured else ()
        servers = [
            {
                "name": config.name,
                "state": "disabled" if not config.enabled else "not running",
                "transport": config.transport,
                "target": config.url or " ".join((config.command, *config.args)),
                "error": config.problem,
            }
            for config in found
        ]
        problem = configured.problem if configured else None
        print(f"{none} This is what {path} says:" if found else f"{none}", file=sys.stderr)
    lines = aligned(COLUMNS, map(_columns, servers))
    for line, server in zip(lines, [{}, *servers], strict=True):
        print(line)
        for below in _below(server):
            print(f"    {exact(below)}")
    _report(problem or "")
    return 0


def _columns(server: Mapping[str, Any]) -> dict[str, str]:
    connect, next_try = server.get("connect_ms"), server.get("next_try")
    seconds = round(next_try - time.time()) if next_try else 0
    again = f", again in {seconds} s" if seconds > 0 else ", again at a call" if next_try else ""
    return {
        "name": exact(server["name"]),
        "state": f"{server['state']}{again}",
        "transport": server["transport"],
        "tools": str(len(server.get("tools", ()))),
        "held": str(len(server.get("held", ()))),
        "tokens": str(server.get("token_estimate", 0)),
        "pid": str(server.get("pid") or "-"),
        "protocol": exact(server.get("protocol") or "-"),
        "connect": "-" if connect is None else f"{connect:.0f} ms",
        "restarts": str(server.get("restarts", 0)),
        "target": exact(server["target"]),
    }


def _below(server: Mapping[str, Any]) -> list[str]:
    """Lines below a server's row: its problems, and what to do about them."""
    lines = [line for line in str(server.get("error") or "").splitlines() if line]
    if lines:
        lines += list(server.get("stderr_tail", ()))[-TAIL:]
    if server.get("auth_url"):
        lines.append(f"sign in at {server['auth_url']}")
    lines += [f"held: {one['tool'] or 'its instructions'}: {one['why']}" for one in server.get("held", ())]
    return [*lines, *_declarations(server)]


def _ask(remote: Remote, name: str, action: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return remote.call("POST", f"/mcp/servers/{step(name)}/{action}", body)


def _remove(args: argparse.Namespace, remote: Remote, loaded: Loaded) -> int:
    path = loaded.settings.mcp_config
    if args.name not in entries_of(path):
        remote.call("DELETE", f"/mcp/servers/{step(args.name)}")
        print(f"{args.name} is removed.")
        return 0
    message = drop_entry(path, args.name)
    print(f"{args.name} is no longer in {path}. {TAKEN_IN}")
    _report(message)
    return with_store(loaded, lambda store: _forgotten(store, args.name, "removed"))


def _switch(enabled: bool) -> Callable[[argparse.Namespace, Remote, Loaded], int]:
    word = "enabled" if enabled else "disabled"

    def switch(args: argparse.Namespace, remote: Remote, loaded: Loaded) -> int:
        path = loaded.settings.mcp_config
        if args.name not in entries_of(path):
            _ask(remote, args.name, "enable" if enabled else "disable")
            print(f"{args.name} is {word}.")
            return 0
        message = set_enabled(path, args.name, enabled=enabled)
        print(f"{args.name} is {word} in {path}. {TAKEN_IN}")
        _report(message)
        return with_store(loaded, lambda store: _forgotten(store, args.name, word))

    return switch


async def _forgotten(store: McpStore, name: str, decision: str) -> int:
    """Drop the server's state that was set over HTTP: the file decides again."""
    await store.write([McpServerRemoved(name), AuditRow(time.time(), BY, f"mcp {name}", decision, why="", by=BY)])
    return 0


def _reconnect(args: argparse.Namespace, remote: Remote, _: Loaded) -> int:
    print(f"{args.name}: {_ask(remote, args.name, 'reconnect')['state']}.")
    return 0


def _approve(args: argparse.Namespace, remote: Remote, _: Loaded) -> int:
    """Approve tools, printing each once more, so that nothing is trusted unseen."""
    servers = remote.call("GET", "/mcp/servers")["servers"]
    held: list[dict[str, str]] = next((server["held"] for server in servers if server["name"] == args.name), [])
    for one in held:
        if args.tool in (None, one["tool"]):
            print(f"{exact(one['tool']) or 'its instructions'}: {exact(one['why'])}\n{exact(one['diff'])}")
    approved = _ask(remote, args.name, "approve", {"tool": args.tool} if args.tool else {})["approved"]
    names = [exact(name) if name else "its instructions" for name in approved]
    print(f"Approved: {', '.join(names) or 'nothing, because nothing was held back'}.")
    return 0


def _trust(args: argparse.Namespace, remote: Remote, _: Loaded) -> int:
    fields: dict[str, Any] = {"tool": args.tool or None, "role": args.role, "risk": args.risk}
    fields |= {"untrusted": args.untrusted, "arguments": dict(args.arguments) if args.arguments else None}
    given = {name: value for name, value in fields.items() if value is not None}
    return _print_classified(_ask(remote, args.name, "trust", given), args.tool)


def _distrust(args: argparse.Namespace, remote: Remote, _: Loaded) -> int:
    server = _ask(remote, args.name, "distrust", {"tool": args.tool} if args.tool else {})
    return _print_classified(server, args.tool)


def _print_classified(server: Mapping[str, Any], only: str) -> int:
    """Print the classification of the server's tools, or of one of them."""
    for one in server["classified"]:
        if not only or only in (one["tool"], one["name"]):
            sources = one["sources"]
            line = f"{one['tool']}: role {one['role']} ({sources['role']}), risk {one['risk']} ({sources['risk']}), "
            print(exact(f"{line}{results_in_words(one['untrusted'])} ({sources['untrusted']})"))
            if one.get("arguments"):
                print(exact(f"  {columns_in_words(one['arguments'])} ({sources['arguments']})"))
    return 0


def _declarations(server: Mapping[str, Any]) -> list[str]:
    """Lines with what is declared of the server and of its tools."""
    rows = [("", server.get("trust") or {}), *((one["tool"], one) for one in server.get("classified", ()))]
    lines = []
    for tool, row in rows:
        of = f"trusted: {tool}" if tool else "trusted"
        if given := row.get("declared"):
            lines.append(f"{of}: {_in_words(given)} (declared by {given['by']})")
        if given := row.get("file"):
            lines.append(f"{of}: {_in_words(given)} (in the file)")
    return lines


def _in_words(given: Mapping[str, Any]) -> str:
    return Trust(given["role"], given["risk"], given["untrusted"], given.get("arguments")).words


def _logs(args: argparse.Namespace, remote: Remote, _: Loaded) -> int:
    for line in remote.call("GET", f"/mcp/servers/{step(args.name)}/logs")["lines"]:
        print(exact(line))
    return 0


def _report(*notes: str) -> None:
    for note in filter(None, notes):
        print(f"dragoman: {note}", file=sys.stderr)


Act = Callable[[argparse.Namespace, Remote, Loaded], int]
NAMED: dict[str, tuple[str, Act]] = {
    "remove": ("remove a server", _remove),
    "enable": ("enable a server", _switch(enabled=True)),
    "disable": ("disable a server", _switch(enabled=False)),
    "reconnect": ("reconnect to a server now", _reconnect),
    "approve": ("approve what is held back of a server: new or changed tools", _approve),
    "trust": ("declare a server, or a tool of it, as trusted: its hints count, and the role and risk given", _trust),
    "distrust": ("withdraw what was declared with trust", _distrust),
    "logs": ("show what a server wrote to stderr, and its states", _logs),
}

"""Rules that allow: what each has to say, so that it bounds every argument that decides something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.core.rules import OperatorRule
from app.policy.grants import PROGRAMS, is_command
from app.policy.patterns import ANY
from app.policy.permits.bounds import Bounds, matters
from app.policy.permits.permissions import OF_RULES, Permission
from tools.base.rights import CLIENT_TOOLS, names_match
from tools.shell_policy.plain_commands import refusal
from tools.web.egress import NETWORK, host_pattern_error, pattern_of

FILE_TOOLS = frozenset(("read_file", "write_file", "edit_file", "list_files"))
UNBOUNDED = "It decides where the call goes or what it does: name what it may be"


def permission_of_rule(row: OperatorRule, label: str) -> Permission:
    """Return the permission that a row without problems gives."""
    arguments = dict(row.arguments or {})
    if row.hosts:
        ways = ("http://{0}/*", "http://{0}", "https://{0}/*", "https://{0}")
        arguments["url"] = tuple(way.format(host) for host in row.hosts for way in ways)
    bounds = Bounds(
        arguments=tuple(arguments.items()),
        most=tuple(row.most.items()),
        commands=row.commands,
        network=row.network,
        paths=row.paths,
    )
    expires = row.until.timestamp() if row.until else None
    id, reason = f"{OF_RULES}{label}", row.reason
    return Permission(id, row.tool, bounds, per_day=row.per_day, expires=expires, reason=reason)


def permission_problems(row: OperatorRule) -> Iterator[str]:
    """Yield why a row that allows could be read in two ways, or bounds nothing."""
    arguments = row.arguments or {}
    if row.tool == CLIENT_TOOLS or set(row.tool) & set("*?["):
        yield f"allows {row.tool!a}, which is no single tool: give each tool an entry of its own"
    if row.per_day and not row.name:
        yield "has per_day and no name: its uses are counted by its name, so give it one"
    if row.hosts and row.tool != "web_fetch":
        yield "has hosts, which only bound web_fetch: write commands with network, or arguments"
    if row.paths and row.tool not in FILE_TOOLS:
        yield f"has paths, which only bound {', '.join(sorted(FILE_TOOLS))}: write arguments"
    if (row.commands or row.network) and row.tool != "bash":
        yield f"has commands or {NETWORK}, which only bound bash: write arguments"
    if row.network and not row.commands:
        yield f"has {NETWORK} without commands: say which commands may reach it"
    if row.network and (ANY in row.network or host_pattern_error(row.network)):
        yield f"has a host in {NETWORK} that cannot be understood or is every host: write *.example.org or example.org"
    if any((host := pattern_of(one)) and host.host == ANY for one in row.hosts):
        yield "allows every host: name those that may be reached"
    for command in row.commands:
        if why := refusal(command):
            yield f"has a command that cannot be understood. {why.removesuffix('.')}"
    yield from _argument_problems(row, arguments)
    bounded = [name for name, patterns in arguments.items() if ANY not in patterns]
    others = (row.commands, row.paths, row.hosts, row.most, bounded)
    if not any(others) and (arguments or row.arguments is None):
        yield (
            "allows calls and bounds nothing: give arguments, most, commands, paths or hosts. arguments = {} allows "
            "calls without arguments"
        )


def _argument_problems(row: OperatorRule, arguments: dict[str, tuple[str, ...]]) -> Iterator[str]:
    bounds_elsewhere = {"url": row.hosts, "path": row.paths, "command": row.commands, NETWORK: (row.tool == "bash",)}
    for name, patterns in arguments.items():
        last = name.rpartition(".")[2]
        if name in row.most or any(bounds_elsewhere.get(name, ())):
            yield f"bounds {name} twice: say it in one place"
        elif ANY in patterns and len(patterns) > 1:
            yield f"allows any {name} and some: leave the others out, or *"
        elif ANY in patterns and matters(last):
            yield f"allows any {name}. {UNBOUNDED}"
        elif is_command(last) and (why := next(filter(None, map(refusal, patterns)), None)):
            yield f"has a command that cannot be understood. {why.removesuffix('.')}"
        elif last in PROGRAMS and any(ANY in one.replace("[*]", "") for one in patterns):
            yield f"has a pattern for {name}, a program, which no pattern can bound: write it out"


def others_problems(row: OperatorRule) -> Iterator[str]:
    """Yield why a row that denies or asks has what only a row that allows can have."""
    if row.allowing:
        yield f'has {", ".join(row.allowing)}, which only rows with action = "allow" have'


def silenced(permission: Permission, open_rules: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield why it never allows anything: `open_rules`, each with its tools, deny or ask about every call of these."""
    for label, tools in open_rules:
        if names_match((permission.tool,), (tools,)):
            name = permission.id.removeprefix(OF_RULES)
            yield f"{name} can never allow anything: {label} is about every call of {tools}, and is stricter"

"""Proposals for a standing permission: what a person can allow for good from the approval of one call.

Each is bounded by the values of that very call, as the person sees them, and is offered only if it covers the call. A
permission is given for a proposal as it was shown, never for anything wider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from app.policy.grants import is_command, reaches_hosts
from app.policy.patterns import ANY, names_address
from app.policy.permits.bounds import (
    Bounds,
    Keys,
    Surroundings,
    fields_of,
    literal,
    values_of,
)
from app.policy.permits.permissions import words_of
from app.policy.values.columns import column_without_schema, is_query
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.permit import canonical
from tools.base.rights import Column, Role
from tools.shell_policy.plain_commands import Doubt, simple_commands
from tools.tool import Tool
from tools.web import egress

MOST_CHARACTERS = 4_000  # of the JSON of a proposal: what is longer is no pattern that a person reads
OPEN = frozenset((Column.CONTENT, Column.HEADING))  # columns whose texts a permission to recipients leaves open


class Proposal(Struct, frozen=True):
    """`pattern` is the JSON of the bounds, which a decision sends back; `words` say it to a person."""

    pattern: dict[str, Any]
    words: str


def proposals_of(tool: Tool | None, arguments: Arguments, principal: Principal, around: Surroundings) -> list[Proposal]:
    """Return the proposals for a waiting call, the narrowest last; none for what no permission can allow."""
    if tool is None or not may_be_permitted(tool, principal):
        return []
    if (effect := tool.leaves(arguments, around.workspace)) and effect.firm:
        return []
    found = list(dict.fromkeys(_bounds(tool, arguments)))
    return [
        Proposal(fields_of(one), words_of(one))
        for one in found
        if one.covers(tool, arguments, around) and len(canonical(fields_of(one))) <= MOST_CHARACTERS
    ]


def may_be_permitted(tool: Tool, principal: Principal) -> bool:
    """Return True if the principal can be given a permission for the tool."""
    firm = tool.approval == "always" or tool.plans or tool.needs_person or tool.handed
    return not firm and principal.role is not Role.GUEST and principal.role.rank >= tool.role.rank


def _bounds(tool: Tool, arguments: Arguments) -> Iterator[Bounds]:
    values = values_of(arguments)
    if values is None:
        return
    if tool.origin is None and reaches_hosts(tool):
        yield from _of_command(tool, arguments)
        return
    if tool.name in ("write_file", "edit_file") and tool.origin is None:
        yield Bounds(arguments=(("path", (literal(str(arguments.get("path", ""))),)),))
        return
    if not any("." in key for keys, _ in values for key in keys) and not _has_records(arguments):
        yield from _of_recipients(tool, values)
        yield from _of_addresses(values)
    yield Bounds(exact=canonical(arguments))


def _of_command(tool: Tool, arguments: Arguments) -> Iterator[Bounds]:
    """Yield the bounds for one command whose words both readers understand, with the hosts that it asks for."""
    command, hosts = arguments.get("command"), egress.hosts_wanted(arguments)
    if tool.name != "bash" or not isinstance(command, str) or hosts == egress.ANYWHERE:
        return
    read = simple_commands(command)
    if not isinstance(read, Doubt) and len(read) == 1 and "\n" not in command:
        yield Bounds(commands=(command,), network=hosts)


def _of_recipients(tool: Tool, values: list[tuple[Keys, object]]) -> Iterator[Bounds]:
    """Yield the bounds for these recipients: texts are open, amounts are the most, all else stays as it is."""
    arguments, most, columns = dict[str, list[str]](), dict[str, float](), set[Column | None]()
    for keys, value in reversed(values):
        name, column = ".".join(keys), None
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            column = column_without_schema(tool, name, value)
        columns.add(column if isinstance(value, str) else None)
        if column in OPEN and isinstance(value, str) and not is_query(keys[-1]):
            arguments[name] = [ANY]
        elif column is Column.AMOUNT and not isinstance(value, str):
            most[name] = max(most.get(name, 0.0), float(str(value)))
        elif ANY not in arguments.get(name, ()):
            arguments.setdefault(name, []).append(_pattern(keys[-1], value))
    if Column.RECIPIENT in columns and not arguments.keys() & most.keys():
        yield _bounded(arguments, most)


def _of_addresses(values: list[tuple[Keys, object]]) -> Iterator[Bounds]:
    """Yield the bounds for what is below the folder of the one address that is named."""
    urls = [(keys, value) for keys, value in values if isinstance(value, str) and names_address(keys[-1], value)]
    if len(urls) != 1 or not (below := _below(str(urls[0][1]))):
        return
    others = {".".join(keys): [_pattern(keys[-1], value)] for keys, value in values if (keys, value) != urls[0]}
    if len(others) == len(values) - 1:
        yield _bounded({".".join(urls[0][0]): [below]} | others, {})


def _bounded(arguments: Mapping[str, list[str]], most: Mapping[str, float]) -> Bounds:
    patterns = tuple((name, tuple(dict.fromkeys(given))) for name, given in arguments.items())
    return Bounds(arguments=patterns, most=tuple(most.items()))


def _pattern(name: str, value: object) -> str:
    if not isinstance(value, str):
        return canonical(value)
    return value if is_command(name) else literal(value)


def _below(url: str) -> str:
    """Return the pattern of what is below the folder of an address; empty if there is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
        return ""
    folder = parts.path.rpartition("/")[0]
    return f"{literal(f'{parts.scheme}://{parts.netloc}{folder}')}/*"


def _has_records(value: object) -> bool:
    """Return True if a list in the arguments holds objects: what belongs together could be mixed."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        if isinstance(one, list) and any(isinstance(part, dict | list) for part in one):
            return True
        waiting += inner
    return False

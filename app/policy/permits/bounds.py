"""The bounds of a permission: a call is covered only if every argument that it has is within them.

Positive evidence alone counts. An argument that the bounds do not name has to be absent or empty, one that they bound
has to be there (but for one with an empty pattern, or with any value); a value of another
type, spelling or form than the pattern's is not covered, and what cannot be read is not, either: then the call asks as
it would without the permission. Names of nested arguments are joined by dots; each element of a list has to match.

What a command runs may have been written meanwhile. Outside of the sandbox, words of a command are bounds only as long
as no tool has written anything, or if the command only reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.policy.grants import PROGRAMS, is_command, reaches_hosts
from app.policy.patterns import ANY, STAR, matches_pattern, names_address, words_of
from app.policy.rules.path_globs import ON_DISK, Links, PathGlob, Strength, spellings
from app.policy.values.columns import column_by_name
from parsing import Arguments
from tools.base.patterns import lazy_pattern
from tools.base.permit import canonical
from tools.base.rights import Column, Risk
from tools.base.workspace import home_of
from tools.shell_policy.plain_commands import allowed, reads
from tools.tool import Tool
from tools.web import egress

MOST_VALUES = 1_000  # of the arguments of a call; what has more is not covered
Keys = tuple[str, ...]  # of a value, from the name of its argument on
# Arguments of our own tools that choose nothing that is reached.
FREE: Mapping[str, frozenset[str]] = {
    "bash": frozenset(("background",)),
    "write_file": frozenset(("content",)),
    "edit_file": frozenset(("old", "new")),
    "web_fetch": frozenset(("offset",)),
    "web_search": frozenset(("count",)),
}
_MAIL = lazy_pattern(r"[^@\s]+@[A-Za-z0-9.-]+")
# Columns that no permission leaves open.
DECIDING = frozenset((Column.RECIPIENT, Column.ADDRESS, Column.PATH, Column.COMMAND, Column.AMOUNT))
HEADERS = frozenset(("subject", "title", "name"))  # a line end in one could begin another header: `Bcc:`
_ODD_PATH = lazy_pattern(r"\A-|[=,:;<>@|&\"'()%\\]")  # rules read more than one path in these


class Surroundings(Struct, frozen=True):
    """The place of a call, which decides if it is within bounds. `unchanged`: no tool has written in it."""

    workspace: Path = Path("/")
    boxed: bool = False
    unchanged: bool = False
    links: Links = ON_DISK


class Bounds(Struct, frozen=True, omit_defaults=True):
    """`arguments`: patterns by name, `most`: the largest number by name, `exact`: JSON of the whole arguments.

    `commands` are those of `bash`, with the hosts in `network`, `paths` globs of a tool's own `path`.
    """

    arguments: tuple[tuple[str, tuple[str, ...]], ...] = ()
    most: tuple[tuple[str, float], ...] = ()
    commands: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    exact: str | None = None

    def covers(self, tool: Tool, arguments: Arguments, around: Surroundings) -> bool:
        """Return True if the whole call is within the bounds. Total: the arguments are not yet checked."""
        values = values_of(arguments)
        if values is None or tool.handed or not _runs_what_is_named(tool, values, around):
            return False
        if self.exact is not None:
            return canonical(arguments) == self.exact
        hosts = egress.hosts_wanted(arguments) if reaches_hosts(tool) else ()
        if hosts and not egress.covers(self.network, hosts):
            return False
        is_whole = self._needed <= {keys for keys, _ in values}
        return is_whole and all(self._holds(tool, keys, value, around) for keys, value in values)

    @property
    def _needed(self) -> set[Keys]:
        """Keys of values that have to be there: what is bounded could mean anything where it is left out."""
        named = {_keys(name) for name, patterns in self.arguments if ANY not in patterns and "" not in patterns}
        own = {("command",) for _ in self.commands} | {("path",) for _ in self.paths}
        return named | own | {_keys(name) for name, _ in self.most}

    def _holds(self, tool: Tool, keys: Keys, value: object, around: Surroundings) -> bool:
        for name, most in self.most:
            if _keys(name) == keys:
                return _is_at_most(value, most)
        for name, patterns in self.arguments:
            if _keys(name) == keys and ANY not in patterns:
                return any(_matches(keys[-1], value, pattern) for pattern in patterns)
            if ANY in patterns and keys[: len(_keys(name))] == _keys(name):
                if any(map(matters, keys[len(_keys(name)) :])):
                    return False  # a recipient below what is open
                return _is_one_line(value) or HEADERS.isdisjoint(words_of(keys[-1]))
        if tool.origin is not None:
            return False
        if self.commands and keys == ("command",):
            return isinstance(value, str) and allowed(value, self.commands)
        if self.paths and keys == ("path",):
            return isinstance(value, str) and _is_below(value, self.paths, around)
        # The hosts are known to be within the bounds.
        return keys[0] in FREE.get(tool.name, ()) or (keys[0] == egress.NETWORK and reaches_hosts(tool))


def bounds_of(fields: Mapping[str, Any]) -> Bounds:
    """Return the bounds of such JSON as `fields_of` makes. Raises KeyError, TypeError, AttributeError, ValueError."""
    exact = fields.get("exact")
    return Bounds(
        arguments=tuple((name, tuple(map(str, patterns))) for name, patterns in fields.get("arguments", {}).items()),
        most=tuple((name, float(most)) for name, most in fields.get("most", {}).items()),
        commands=tuple(map(str, fields.get("commands", ()))),
        network=tuple(map(str, fields.get("network", ()))),
        paths=tuple(map(str, fields.get("paths", ()))),
        exact=None if exact is None else canonical(exact),
    )


def fields_of(bounds: Bounds) -> dict[str, Any]:
    """Return the bounds as JSON, without those that there are not."""
    fields: dict[str, Any] = {
        "arguments": {name: list(patterns) for name, patterns in bounds.arguments},
        "most": dict(bounds.most),
        "commands": list(bounds.commands),
        "network": list(bounds.network),
        "paths": list(bounds.paths),
    }
    exact = {} if bounds.exact is None else {"exact": json.loads(bounds.exact)}
    return {name: value for name, value in fields.items() if value} | exact


def values_of(arguments: Arguments) -> list[tuple[Keys, object]] | None:
    """Return the values in the arguments that are there at all, each with its keys; None if there are too many.

    Elements of a list have the keys of the list.
    """
    waiting: list[tuple[Keys, object]] = [((str(name),), value) for name, value in arguments.items()]
    found: list[tuple[Keys, object]] = []
    for _ in range(MOST_VALUES):
        if not waiting:
            return found
        keys, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*keys, str(key)), one) for key, one in value.items()]
        elif isinstance(value, list):
            waiting += [(keys, one) for one in value]
        elif value is not None and value != "":
            found.append((keys, value))
    return None


def matters(name: str) -> bool:
    """Return True if an argument of this name decides where something goes or what is done, by its words."""
    is_program = is_command(name) or name in PROGRAMS
    return is_program or names_address(name, "") or column_by_name(name) in DECIDING


def literal(text: str) -> str:
    """Return the pattern that matches this text alone."""
    return text.replace(ANY, STAR)


def _matches(name: str, value: object, pattern: str) -> bool:
    if not isinstance(value, str):
        return pattern == canonical(value)
    if is_command(name):
        return allowed(value, (pattern,))
    if name in PROGRAMS:
        return value == pattern.replace(STAR, ANY)
    return matches_pattern(name, _with_plain_host(value), _with_plain_host(pattern))


def _is_one_line(value: object) -> bool:
    return not isinstance(value, str) or value.isprintable()


def _with_plain_host(text: str) -> str:
    """Return a mail address with its host in lower case: case makes no difference there, but may in the name."""
    if not _MAIL.fullmatch(text.replace(STAR, "").replace(ANY, "")):
        return text
    name, _, host = text.rpartition("@")
    return f"{name}@{host.lower()}"


def _is_at_most(value: object, most: float) -> bool:
    """Return True for a number from 0 on. A text is none: `1.000` is one to some and a thousand to others."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and 0 <= value <= most


def _is_below(value: str, globs: tuple[str, ...], around: Surroundings) -> bool:
    """Return True if every meaning of a path, as written and with links resolved, matches a glob."""
    if _ODD_PATH.search(value):
        return False
    home, links = str(home_of(around.workspace)), around.links
    found, more = spellings((value,), str(around.workspace), links)
    compiled = [PathGlob(glob) for glob in globs]
    return (
        not more
        and bool(found)
        and all(any(glob.strength((one,), home, links) is Strength.CERTAIN for glob in compiled) for one in found)
    )


def _runs_what_is_named(tool: Tool, values: list[tuple[Keys, object]], around: Surroundings) -> bool:
    """Return False if the call could run, outside of the sandbox, what a tool has written meanwhile."""
    if around.unchanged or (tool.confined and (around.boxed or tool.risk is not Risk.EXECUTE)):
        return True
    run = [value for keys, value in values if is_command(keys[-1])]
    return (bool(run) or tool.risk is not Risk.EXECUTE) and all(isinstance(one, str) and reads(one) for one in run)


def _keys(name: str) -> Keys:
    return tuple(name.split("."))

"""Permissions: of operators, by their rules, and standing ones of persons, given from an approval.

A permission allows calls of one tool within its bounds, also after untrusted text and in unattended runs,
because a person has bounded the channel. It overrules no right, no rule and no `approval = "always"`. Its uses are
counted by day (UTC): a call is counted when it is cleared to run, and keeps its count however it ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from app.policy.grants import reaches_hosts
from app.policy.patterns import ANY, STAR
from app.policy.permits.bounds import Bounds, Surroundings, bounds_of
from app.storage.people.permissions import PermissionRow
from parsing import Arguments
from tools.base.patterns import lazy_pattern
from tools.tool import Tool
from tools.web import egress

OF_RULES = "rule:"  # before the name of a rule, in the place of a permission's id
_PLAIN = lazy_pattern(r"[\w@.:/+*?=&%~#-]+")
MOST_SHOWN = 2_000  # characters of the words of a permission


class Permission(Struct, frozen=True):
    """`id` begins with OF_RULES for one of an operator. `expires` is a Unix time, None for never.

    `secrets`: a call that goes with others is not covered by a person's.
    """

    id: str
    tool: str
    bounds: Bounds
    per_day: int | None = None
    expires: float | None = None
    reason: str = ""
    secrets: str = ""

    @property
    def is_rule(self) -> bool:
        return self.id.startswith(OF_RULES)

    def is_in_force(self, now: float) -> bool:
        return self.expires is None or now < self.expires

    def covers(self, tool: Tool, arguments: Arguments | None, around: Surroundings) -> bool:
        """Return True if it covers the call; without arguments (None), if it could cover one."""
        return tool.name == self.tool and (arguments is None or self.bounds.covers(tool, arguments, around))

    @property
    def words(self) -> str:
        """The permission as a person reads it, its reason in front."""
        limits = [
            f"{self.per_day} a day" if self.per_day else "",
            f"until {_moment(self.expires)}" * bool(self.expires),
        ]
        words = "; ".join([f"{self.tool}: {words_of(self.bounds)}", *filter(None, limits)])
        return f"{self.reason} ({words})" if self.reason else words


def words_of(bounds: Bounds) -> str:
    """Return bounds in words: what is bounded, then what is not."""
    found = list(_words(bounds)) or ["without arguments"]
    if free := [name for name, patterns in bounds.arguments if ANY in patterns]:
        found.append(f"any {', '.join(map(_shown, free))}")
    text = "; ".join(found)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _words(bounds: Bounds) -> Iterator[str]:
    if bounds.exact is not None:
        given = json.loads(bounds.exact)
        words = ", ".join(f"{_shown(name)} {_shown(value)}" for name, value in given.items())
        yield f"exactly {words}" if words else "without arguments"
    if bounds.commands:
        yield f"the command {' or '.join(map(_shown, bounds.commands))}"
        yield f"with network to {', '.join(bounds.network)}" if bounds.network else "without network"
    if bounds.paths:
        yield f"path {' or '.join(map(_shown, bounds.paths))}"
    for name, patterns in bounds.arguments:
        if ANY not in patterns:
            yield f"{_shown(name)} {' or '.join(map(_readable, patterns))}"
    for name, most in bounds.most:
        yield f"{_shown(name)} at most {most:g}"


def _shown(value: object) -> str:
    """Return a value so that nothing in it can pass for words of ours."""
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def _readable(pattern: str) -> str:
    """Return a pattern as a person writes it; one with a literal asterisk stays as it is."""
    open_end = pattern.removesuffix("/*")
    if "://" in pattern and pattern != open_end and ANY not in open_end:
        return f"below {_shown(open_end + '/')}"
    return _shown(pattern if ANY in pattern.replace(STAR, "") else pattern.replace(STAR, ANY))


def _moment(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at or 0))


def day_of(now: float) -> str:
    """Return the day by which uses are counted."""
    return time.strftime("%Y-%m-%d", time.gmtime(now))


def with_permitted_hosts(
    permissions: Iterable[Permission], tool: Tool, arguments: Arguments, around: Surroundings
) -> Arguments:
    """Replace a request for any host by the hosts of a permission for this very command, if there is one."""
    if not reaches_hosts(tool) or egress.hosts_wanted(arguments) != egress.ANYWHERE:
        return arguments
    for one in permissions:
        narrowed = egress.normalise_network({**arguments, egress.NETWORK: list(one.bounds.network)})
        if one.bounds.network and one.covers(tool, narrowed, around):
            return narrowed
    return arguments


def permission_of(row: PermissionRow) -> Permission | None:
    """Return the permission of a row; None for one that this version cannot read, which then allows nothing."""
    try:
        bounds = bounds_of(json.loads(row.bounds))
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
    return Permission(row.id, row.tool, bounds, per_day=row.per_day, expires=row.expires, secrets=row.secrets)


def permissions_of(rows: Iterable[PermissionRow], chosen: Iterable[str] | None = None) -> tuple[Permission, ...]:
    """Return the permissions of rows, of those that are `chosen` by id (None: all)."""
    wanted = None if chosen is None else frozenset(chosen)
    kept = (permission_of(row) for row in rows if wanted is None or row.id in wanted)
    return tuple(one for one in kept if one is not None)

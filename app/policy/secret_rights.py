"""Secrets that a call goes with: one answer for what a person is shown, what an approval is bound to, what runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from app.config.secret_spec import HTTP
from app.policy.grants import Grant, reaches_hosts
from app.policy.permits.permissions import Permission
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.rights import Role, names_match
from tools.tool import Tool
from tools.web.egress import HostPattern, hosts_wanted, pattern_of

Given = TypeVar("Given", Grant, Permission)


class SecretRight(Struct, frozen=True):
    """One secret, without its value; `since` is the time at which it was set."""

    name: str
    variable: str
    hosts: tuple[str, ...]
    tools: tuple[str, ...]
    role: Role
    since: float

    def goes_with(self, role: Role, tool: str, asked: Iterable[HostPattern]) -> bool:
        """Return True for a call of this tool that asks for one of the secret's hosts."""
        if role.rank < self.role.rank or not names_match((tool,), self.tools):
            return False
        return any(one.meets(other) for one in patterns_of(self.hosts) for other in asked)


@lru_cache(256)
def patterns_of(hosts: tuple[str, ...]) -> list[HostPattern]:
    return [pattern for host in hosts if (pattern := pattern_of(host.removeprefix(HTTP)))]


class SecretRights(Struct):
    """Secrets that exist now: runs that are under way see each change."""

    all: tuple[SecretRight, ...] = ()

    def of(self, principal: Principal) -> list[SecretRight]:
        """Return the secrets that calls of a principal may go with."""
        return [one for one in self.all if principal.role.rank >= one.role.rank]

    def of_call(self, principal: Principal, tool: Tool, arguments: Arguments | None) -> tuple[SecretRight, ...]:
        """Return the secrets that a call goes with. Only one that names hosts goes with any."""
        if not self.all or not arguments or not reaches_hosts(tool) or principal.role is Role.GUEST:
            return ()
        asked = patterns_of(hosts_wanted(arguments))
        return tuple([one for one in self.all if asked and one.goes_with(principal.role, tool.name, asked)])


def in_words(secrets: Iterable[SecretRight]) -> str:
    """Return the sentence that a person reads; empty without secrets."""
    return _sentence(one.name for one in secrets)


def _sentence(names: Iterable[str]) -> str:
    joined = ", ".join(names)
    return f"It goes with the secret {joined}." if joined else ""


def prompt_line(secrets: Iterable[SecretRight]) -> str:
    """Return what a model has to know to use them; empty without secrets."""
    rows = [f"- {one.variable} at {', '.join(one.hosts)} ({', '.join(one.tools)})" for one in secrets]
    if not rows:
        return ""
    about = (
        "A command whose `network` names one of these hosts has the variable in its environment. It holds a "
        "placeholder that works as the secret in a header or as basic auth at these hosts, and nowhere else; the "
        "secret itself cannot be read."
    )
    return "\n".join([about, *rows])


def bound_to(secrets: Iterable[SecretRight]) -> str:
    """Return what an approval is bound to, a line each: a secret that was set anew since is another one."""
    return "\n".join(f"secret {one.name} {one.since!r}" for one in secrets)


def granted_with(grants: Iterable[Given], secrets: Iterable[SecretRight]) -> tuple[Given, ...]:
    """Return those that count for a call with these secrets: given for calls that were shown with all of them."""
    needed = set(bound_to(secrets).splitlines())
    return tuple([one for one in grants if needed.issubset(one.secrets.splitlines())])


def without_secrets(reason: str, bound: str) -> str:
    """Return the reason of a question without its sentence about secrets."""
    return reason.removesuffix(_sentence(line.split(" ")[1] for line in bound.splitlines())).rstrip()

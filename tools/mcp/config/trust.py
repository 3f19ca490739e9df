"""The declarations of trust in an entry of `mcp.json`: `trust` for the server, `toolTrust` for single tools."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from tools.base.rights import Column, Risk, Role, Trust
from tools.mcp.config.variables import BadEntry

E = TypeVar("E", bound=StrEnum)
FIELDS = ("role", "risk", "untrusted", "arguments")
# Lists of tools that other programs run without a question. A person watches each step there; here such a tool would
# be free of questions in unattended runs, after untrusted text too. That has to be declared as what it is.
OF_OTHERS = ("alwaysAllow", "autoApprove")


def tool_trust_of(entry: Mapping[str, Any], *, from_api: bool) -> dict[str, Trust]:
    """Read `toolTrust`, by the tools' names. Raises BadEntry."""
    given = entry.get("toolTrust") if entry.get("toolTrust") is not None else {}
    if not isinstance(given, dict):
        raise BadEntry(f"toolTrust must be an object: a tool's name, and {', '.join(FIELDS)}.")
    read = {tool: read_trust(f"toolTrust.{tool[:80]}", one, from_api=from_api) for tool, one in given.items()}
    return {tool: trust for tool, trust in read.items() if trust is not None}


def ignored_trust(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note about each list of another program that is not honoured."""
    return tuple(
        f"{field} is ignored: declare these tools in toolTrust, or classify them in the setting tools."
        for field in OF_OTHERS
        if entry.get(field)
    )


def read_trust(place: str, given: Any, *, from_api: bool) -> Trust | None:
    """Read one declaration. Raises BadEntry.

    `true` is one without fields (Gemini's entries have it): only the server's hints count.
    """
    if given is None or given is False:
        return None
    if from_api:
        raise BadEntry(f"{place} is for the file of servers only. Declare trust once the server's tools are known.")
    if given is True:
        return Trust()
    if not isinstance(given, dict):
        raise BadEntry(f"{place} must be true, false, or an object with {', '.join(FIELDS)}.")
    if unknown := sorted(map(str, given.keys() - set(FIELDS))):
        raise BadEntry(f"{place} has no field {unknown[0][:40]!a}; there are {', '.join(FIELDS)}.")
    untrusted = given.get("untrusted")
    if untrusted is not None and not isinstance(untrusted, bool):
        raise BadEntry(f"{place}.untrusted must be true or false.")
    role, risk = _one_of(Role, f"{place}.role", given), _one_of(Risk, f"{place}.risk", given)
    return Trust(role, risk, untrusted, _columns(f"{place}.arguments", given.get("arguments")))


def _columns(place: str, given: Any) -> dict[str, Column] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise BadEntry(f"{place} must be an object: the name of an argument, and one of {', '.join(Column)}.")
    return {name: column for name in given if (column := _one_of(Column, f"{place}.{name}", given, name))} or None


def _one_of(words: type[E], place: str, given: Mapping[str, Any], name: str = "") -> E | None:
    value = given.get(name or place.rpartition(".")[2])
    if value is None:
        return None
    if not isinstance(value, str) or value not in set(words):
        raise BadEntry(f"{place} must be one of {', '.join(words)}.")
    return words(value)

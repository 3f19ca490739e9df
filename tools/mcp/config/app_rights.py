"""What the apps of a server may use, in its entry of `mcp.json`: `appDomains` and `appPermissions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tools.mcp.apps import ALLOWED_ORIGIN, PERMISSIONS
from tools.mcp.config.variables import BadEntry


def app_domains_of(entry: Mapping[str, Any], *, from_api: bool) -> tuple[str, ...]:
    """Raises BadEntry."""
    what = "https origins, such as https://*.example.com"
    return _texts(entry, "appDomains", lambda one: bool(ALLOWED_ORIGIN.fullmatch(one)), what, from_api=from_api)


def app_permissions_of(entry: Mapping[str, Any], *, from_api: bool) -> tuple[str, ...]:
    """Raises BadEntry."""
    return _texts(entry, "appPermissions", PERMISSIONS.__contains__, ", ".join(PERMISSIONS), from_api=from_api)


def _texts(
    entry: Mapping[str, Any], field: str, fits: Callable[[str], bool], what: str, *, from_api: bool
) -> tuple[str, ...]:
    given = entry.get(field) if entry.get(field) is not None else []
    if given and from_api:
        raise BadEntry(f"{field} is for the file of servers only.")
    if not isinstance(given, list) or not all(isinstance(one, str) and fits(one) for one in given):
        raise BadEntry(f"{field} must be a list of {what}.")
    return tuple(given)

"""Patterns of tool names (`mcp__files__*`), as tokens, sessions, profiles, labels, rules and hooks have them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

CLIENT_TOOLS = "client_tools"  # in patterns: every tool that a client runs itself, whatever it calls it


def matches(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Return True if one of the names of a tool matches one of the patterns, in its case; an empty name never does."""
    given = [name for name in names if name]
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in given)

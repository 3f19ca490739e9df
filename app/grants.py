"""What a person has allowed for the rest of a session: the same call again, or calls that fit a pattern of theirs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from app.store import GrantRow
from parsing import Arguments
from tools.commands import allowed, refusal
from tools.permit import fingerprint

COMMAND = "command"  # the argument that is read as a shell reads it, never as plain text


@dataclass(frozen=True, slots=True)
class Grant:
    """Calls of one tool: exactly those with `fingerprint`, or those whose every argument fits `pattern`."""

    tool: str
    fingerprint: str | None = None
    pattern: Mapping[str, str] | None = None

    def covers(self, principal: str, arguments: Arguments) -> bool:
        if self.fingerprint is not None:
            return fingerprint(principal, self.tool, arguments) == self.fingerprint
        if not self.pattern or not arguments or self.pattern.keys() != arguments.keys():
            return False  # an argument that nobody had in mind is not covered
        return all(_fits(name, arguments[name], pattern) for name, pattern in self.pattern.items())


def _fits(name: str, value: object, pattern: str) -> bool:
    if name == COMMAND:
        return isinstance(value, str) and allowed(value, (pattern,))
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    # `notes/*` is not meant to reach notes/../plan.txt.
    return text == pattern or (".." not in re.split(r"[/\\]", text) and fnmatchcase(text, pattern))


def misfit(tool: str, pattern: Mapping[str, str], arguments: Arguments) -> str | None:
    """Why a pattern for calls like this one would be of no use; None when it would."""
    if COMMAND in pattern and (reason := refusal(pattern[COMMAND])):
        return reason
    if Grant(tool, pattern=pattern).covers("", arguments):
        return None
    names = ", ".join(arguments) or "none"
    return f"The pattern does not fit this very call: give one for each of its arguments ({names}), * for any value."


def grant_of(row: GrantRow) -> Grant:
    return Grant(row.tool, row.fingerprint, json.loads(row.pattern) if row.pattern else None)

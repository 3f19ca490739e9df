"""A bounded unified diff, in time that does not depend on how much stayed the same."""

from __future__ import annotations

import difflib
import re

from tools.base.patterns import lazy_pattern

DIFF_CHARACTERS = 4_000

_CONTEXT = 3
_CHANGED_LINES = 2_000
_HUNK = lazy_pattern(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def unified_diff(path: str, before: str, after: str, most: int = DIFF_CHARACTERS) -> str:
    """Return a diff of at most about `most` characters; a change too large to show is counted instead."""
    old, new = before.splitlines(), after.splitlines()
    start, end = _same_ends(old, new)
    removed, added = len(old) - start - end, len(new) - start - end
    if max(removed, added) > _CHANGED_LINES:
        return f"--- {path}\n+++ {path}\n[{removed:,} lines replaced by {added:,}]"
    # Only the changed middle and its context are compared; hunks are moved to where they belong.
    skipped = max(0, start - _CONTEXT)
    keep = max(0, end - _CONTEXT)
    lines = difflib.unified_diff(
        old[skipped : len(old) - keep], new[skipped : len(new) - keep], path, path, n=_CONTEXT, lineterm=""
    )
    text = "\n".join(_HUNK.sub(lambda hunk: _moved(hunk, skipped), line) for line in lines)
    if not text:
        return f"[{path}: only line ends changed]" if before != after else f"[{path}: nothing changed]"
    if len(text) <= most:
        return text
    left = text[most:]
    return f"{text[:most]}\n[... {len(left):,} more characters of diff ...]"


def _same_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """Count the equal lines at the start, and of the rest at the end."""
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    rest = shorter - start
    end = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    return start, end


def _moved(hunk: re.Match[str], lines: int) -> str:
    old, old_count, new, new_count = hunk.groups(default="")
    return f"@@ -{int(old) + lines}{old_count} +{int(new) + lines}{new_count} @@"

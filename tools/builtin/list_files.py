"""The tool `list_files`."""

from __future__ import annotations

import os
from collections import deque
from fnmatch import fnmatchcase
from itertools import islice

from parsing import Arguments
from tools.base.outcome import ToolFailed
from tools.base.workspace import Folder

SHOWN = 200

_SCANNED = 20_000
_DEPTH = 32
_PATTERN_CHARACTERS = 1_000
# Not searched by a pattern: they are huge and rarely wanted. Naming one as `path` lists it.
_SKIPPED = frozenset({".git", ".venv", "__pycache__", "node_modules"})


def list_files(arguments: Arguments) -> str:
    """List a directory, directories with a slash; with a `pattern` the matching files at any depth below."""
    folder: Folder = arguments["path"]
    pattern = arguments.get("pattern") or ""
    if len(pattern) > _PATTERN_CHARACTERS:
        raise ToolFailed(f"The pattern has more than {_PATTERN_CHARACTERS:,} characters", ": give a shorter one.")
    found = _matching(folder, pattern) if pattern else _entries(folder)
    if not found:
        return f"(nothing matches {pattern})" if pattern else "(empty directory)"
    shown = [_printable(path) for path in sorted(found)[:SHOWN]]
    if len(found) > SHOWN:
        shown.append(f"[the first {SHOWN} of {len(found):,} or more: give a narrower path or pattern]")
    return "\n".join(shown)


def _matching(folder: Folder, pattern: str) -> list[str]:
    """Nearest directories first, until 200 are found or 20,000 were looked at."""
    found: list[str] = []
    waiting: deque[tuple[str, ...]] = deque([()])
    scanned = 0
    while waiting and len(found) <= SHOWN and scanned < _SCANNED:
        below = waiting.popleft()
        try:
            names = _entries(folder, below)
        except ToolFailed:
            if not below:
                raise
            continue  # unreadable, or removed meanwhile: only its contents are missing
        for name in names:
            scanned += 1
            path = "/".join((*below, name))
            if _matches(path.rstrip("/"), pattern):
                found.append(path)
            if name.endswith("/") and name[:-1] not in _SKIPPED and len(below) < _DEPTH:
                waiting.append((*below, name[:-1]))
    return found


def _entries(folder: Folder, below: tuple[str, ...] = ()) -> list[str]:
    with folder.entries(below) as entries:
        some = islice(entries, _SCANNED)
        return [entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "") for entry in some]


def _matches(path: str, pattern: str) -> bool:
    """A pattern without a slash is for the name, one with a slash for the path; `**/` is any depth, none included."""
    if "/" not in pattern:
        return fnmatchcase(path.rsplit("/", 1)[-1], pattern)
    return fnmatchcase(path, pattern) or (pattern.startswith("**/") and fnmatchcase(path, pattern[3:]))


def _printable(path: str) -> str:
    return os.fsencode(path).decode(errors="replace").replace("\n", "\ufffd")

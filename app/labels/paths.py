"""Patterns of labelled paths. One that matches a folder covers everything in it; letter case makes no difference.

`*` and `?` match within a name, `**` any number of folders. A pattern without a slash is for the name of a file or
folder at any depth. Names are compared as file systems that ignore case or Unicode forms compare them, so that no other
spelling of a path reads the same file without its label.
"""

from __future__ import annotations

import os
import re
import time
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from msgspec import Struct

from app.config.folders import PEOPLE
from app.core.labels import NO_LABELS, Labels, LabelSource

MOST_LOOKED_AT = 100_000  # files and folders of a workspace
MOST_S = 5.0
_WILD = {"*": "[^/]*", "?": "[^/]"}


def normalised(path: str) -> str:
    """Return the form in which paths are compared."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def own_part(path: str) -> str:
    """Return a path of the admins' workspace as its owner has it: relative to the folder of a principal, if in one."""
    parts = path.split("/", 2)
    return parts[2] if len(parts) == 3 and parts[0] == PEOPLE else path


def ancestors(path: str) -> Iterator[str]:
    """Yield the path, and each folder that it lies in up to the workspace, which is an empty text."""
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


class PathPattern(Struct, frozen=True):
    """A pattern. `of_name`: it is for one name at any depth; `fixed` are its first parts, up to a wildcard."""

    label: str
    expression: re.Pattern[str]
    of_name: bool
    fixed: str

    @classmethod
    def of(cls, label: str, pattern: str) -> PathPattern:
        written = normalised(pattern.rstrip("/"))
        fixed = "/".join(takewhile(lambda part: not _WILD.keys() & set(part), written.split("/")))
        return cls(label, re.compile(_expression(written)), of_name="/" not in written, fixed=fixed)

    def may_match_below(self, folder: str) -> bool:
        """Return False for a normalised folder that nothing which matches can lie in."""
        return self.of_name or f"{self.fixed}/".startswith(f"{folder}/") or folder.startswith(self.fixed)

    def matches(self, path: str) -> bool:
        """Return True for a normalised path that the pattern names, without the folders above."""
        return self.expression.fullmatch(path.rpartition("/")[2] if self.of_name else path) is not None


def _expression(pattern: str) -> str:
    """Return the regular expression of a pattern; `**` at its end matches at least one name."""
    parts = pattern.split("/")
    built = ""
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        if part == "**":
            built += ".+" if is_last else "(?:[^/]+/)*"
        else:
            name = "".join(_WILD.get(character) or re.escape(character) for character in part)
            built += name if is_last else f"{name}/"
    return f"(?s:{built})"


class LabelledPaths:
    """The patterns of all labels, for the files below one root: the workspace of admins."""

    def __init__(self, root: Path, sources: Iterable[LabelSource]) -> None:
        self.root = root
        self._patterns = [PathPattern.of(source.label, path) for source in sources for path in source.paths]
        self.all = frozenset(pattern.label for pattern in self._patterns)

    def labels(self, path: str) -> Labels:
        """Return the labels of a path below the root by its name and those of the folders that it lies in."""
        if not self._patterns:
            return NO_LABELS
        own = [part for one in {normalised(path), own_part(normalised(path))} for part in ancestors(one) if part]
        return frozenset(one.label for one in self._patterns if any(map(one.matches, own)))

    def present(self, folder: str) -> Labels:
        """Return the labels of the files that there are below this folder: all where there are too many. Blocks."""
        found: set[str] = set(self.labels(folder)) if folder else set()
        waiting = deque([folder])
        looked_at = 0
        until = time.monotonic() + MOST_S
        while waiting and found != self.all:
            below = waiting.popleft()
            try:
                with os.scandir(self.root / below) as entries:
                    for entry in entries:
                        looked_at += 1
                        path = f"{below}/{entry.name}" if below else entry.name
                        found |= self.labels(path)
                        if entry.is_dir(follow_symlinks=False) and self._may_hold(path):
                            waiting.append(path)
                        if looked_at > MOST_LOOKED_AT or time.monotonic() > until:
                            return self.all
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:  # a command may be able to read what the server cannot
                return self.all
        return frozenset(found)

    def _may_hold(self, folder: str) -> bool:
        """Return True if files with labels may lie in a folder, or if it is one of principals."""
        if normalised(folder).split("/")[0] == PEOPLE:
            return True
        return any(pattern.may_match_below(normalised(folder)) for pattern in self._patterns)

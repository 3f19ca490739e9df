"""Globs of paths in rules, matched with paths as they are written and as the file system resolves them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from tools.base.patterns import lazy_pattern

_MAGIC = lazy_pattern(r"[*?\[]")
_PART = lazy_pattern(r"\*\*/|\[(?P<characters>.[^\]]*)\]|.", re.DOTALL)  # of a glob
_WILD = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
_APART = lazy_pattern(r"[=,:;<>@|&\"'()\s]+")
_GLUED = lazy_pattern(r"-{1,2}\w(?=.)")
_MOST_PATH = 4096
_PROCESS = lazy_pattern(r"/+proc/[^/]+/(?:task/[^/]+/)?(?:cwd|root|fd|map_files)\b")  # links of a process
MOST_PIECES = 1_000  # each is looked up in the file system


class Strength(IntEnum):
    """Certainty of a match: what cannot be read is POSSIBLE, which asks at least."""

    NONE = 0
    POSSIBLE = 1
    CERTAIN = 2


class Links(Struct, frozen=True):
    """The file system, as far as it decides what a path means. Where nothing may be looked at, others answer."""

    resolved: Callable[[str], str]
    is_folder: Callable[[str], bool]


class PathGlob(Struct, frozen=True):
    """A glob, absolute or relative to the workspace. It also matches all that is below a match."""

    written: str

    def strength(self, paths: Iterable[str], workspace: str, links: Links) -> Strength:
        """Return how surely one of these absolute paths matches, or is a folder that may hold a match."""
        pattern, base = self._compiled(workspace, links)
        found = Strength.NONE
        for one in paths:
            if pattern.match(one):
                return Strength.CERTAIN
            if _is_above(one, base) or (_is_above(base, one) and self.is_wild and links.is_folder(one)):
                found = Strength.POSSIBLE
        return found

    @property
    def is_wild(self) -> bool:
        return _MAGIC.search(self.written) is not None

    def _compiled(self, workspace: str, links: Links) -> tuple[re.Pattern[str], str]:
        """Return the pattern, and the folder that all its matches are in or below, links resolved."""
        expanded = _at_home(self.written)
        first = _MAGIC.search(expanded)
        cut = expanded.rfind("/", 0, first.start()) + 1 if first else len(expanded)
        base = links.resolved(_joined(workspace, expanded[:cut]))
        return _below(base, expanded[cut:]), base


@lru_cache(maxsize=1024)
def _below(base: str, glob: str) -> re.Pattern[str]:
    """Compile what matches a glob below `base`, and all that is below a match."""
    glob = "" if glob == "**" else glob.removesuffix("/**")  # all below is included anyway
    source = re.escape(base.rstrip("/")) + (f"/{_regex(glob)}" if glob else "")
    return re.compile(rf"{source}(?:/.*)?\Z", re.DOTALL)


def _at_home(path: str) -> str:
    return f"{Path.home()}{path[1:]}" if path == "~" or path.startswith("~/") else path


def _joined(workspace: str, path: str) -> str:
    return path if path.startswith("/") else f"{workspace}/{path}"


def _regex(glob: str) -> str:
    """Translate a glob: `**` stands for any folders, `*` and `?` stay within a name. Raises re.error when compiled."""

    def translated(found: re.Match[str]) -> str:
        if (characters := found["characters"]) is None:
            return _WILD.get(found[0]) or re.escape(found[0])
        inside = re.escape(characters.lstrip("!^")).replace(r"\-", "-")
        return f"[{'^' if characters[0] in '!^' else ''}{inside}]"

    return _PART.sub(translated, glob)


def glob_error(written: str) -> str | None:
    """Explain why a glob cannot be understood."""
    if not written.strip() or not written.isprintable():
        return "is empty or holds characters that cannot be printed"
    if any("**" in part and part != "**" for part in written.split("/")):
        return "has ** beside other characters: ** stands alone between slashes, as in secrets/**"
    if re.search(r"\[(?![!^]?[^\]/]+\])", written):
        return "has a [ that is never closed"
    if "\\" in written or "{" in written:
        return "has a backslash or a brace, which globs here do not know: write one entry for each case"
    try:
        _below("/", written)
    except re.error as error:
        return f"is no glob ({error})"
    return None


def pieces_of(word: str) -> Iterator[str]:
    """Return the texts in a word that may be paths: of `if=/etc/passwd`, `-f/etc/passwd`, `file:///etc/passwd`."""
    yield word
    yield _GLUED.sub("", word, count=1)
    if "://" in word:
        start = re.search(r"[a-zA-Z][\w+.-]*://", word)
        yield unquote(urlsplit(word[start.start() :] if start else word, allow_fragments=False).path)
    yield from _APART.split(word)
    yield unquote(word)


def spellings(texts: Iterable[str], workspace: str, links: Links) -> tuple[frozenset[str], bool]:
    """Return the absolute paths that texts can mean, as written and with links resolved; True if there are more."""
    pieces = dict.fromkeys(piece for text in texts for piece in pieces_of(text))
    found = set[str]()
    for piece in islice(pieces, MOST_PIECES):
        if piece and len(piece) <= _MOST_PATH and "\0" not in piece:
            whole = _joined(workspace, _at_home(piece))
            found |= {os.path.normpath(whole), links.resolved(whole)}
    more = len(pieces) > MOST_PIECES or any(map(_PROCESS.match, found))
    return frozenset(found), more


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # no name that a file can have
        return os.path.normpath(path)


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except PermissionError:  # it cannot be looked at here
        return True
    except (OSError, ValueError):
        return False


ON_DISK = Links(_resolved, _is_folder)


def _is_above(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")

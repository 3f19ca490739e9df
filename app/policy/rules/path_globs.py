"""Globs of paths in rules, matched with paths as they are written and as the file system resolves them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from app.policy.rules.strength import Strength
from tools.base.patterns import lazy_pattern

_MAGIC = lazy_pattern(r"[*?\[]")
_APART = lazy_pattern(r"[=,:;<>@|&\"'()\s]+")
_GLUED = lazy_pattern(r"-{1,2}\w(?=.)")
_MOST_PATH = 4096


class PathGlob(Struct, frozen=True):
    """A glob, absolute or relative to the workspace. It also matches all that is below a match."""

    written: str

    def strength(self, path: str, workspace: str) -> Strength:
        """Return how surely a word names a matching path, or a folder that may hold one."""
        pattern, base = self._compiled(workspace)
        found = Strength.NONE
        for one in _spellings(path, workspace):
            if pattern.match(one):
                return Strength.CERTAIN
            if _is_above(one, base) or (_is_above(base, one) and self.is_wild and os.path.isdir(one)):
                found = Strength.POSSIBLE
        return found

    @property
    def is_wild(self) -> bool:
        return _MAGIC.search(self.written) is not None

    def _compiled(self, workspace: str) -> tuple[re.Pattern[str], str]:
        return _compiled(self.written, workspace)


@lru_cache(maxsize=1024)
def _compiled(written: str, workspace: str) -> tuple[re.Pattern[str], str]:
    """Return the pattern, and the folder that all its matches are in or below."""
    expanded = os.path.expanduser(written)
    first = _MAGIC.search(expanded)
    literal = expanded[: first.start()] if first else expanded
    cut = len(literal) if not first else literal.rfind("/") + 1
    base = os.path.realpath(os.path.join(workspace, literal[:cut]))
    rest = expanded[cut:]
    source = re.escape(base.rstrip("/")) + ("/" + _regex(rest) if rest else "") if first else re.escape(base)
    return re.compile(rf"{source}(?:/.*)?\Z", re.DOTALL), base


def _regex(glob: str) -> str:
    """Translate a glob: `**` stands for any folders, `*` and `?` stay within a name. Raises re.error when compiled."""
    if glob == "**":
        return ".*"
    parts: list[str] = []
    at = 0
    while at < len(glob):
        if glob.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif glob.startswith("/**", at) and at + 3 == len(glob):
            at += 3  # all below, which any match includes
        elif glob[at] == "*":
            parts.append("[^/]*")
            at += 1
        elif glob[at] == "?":
            parts.append("[^/]")
            at += 1
        elif glob[at] == "[":
            end = glob.find("]", at + 2)
            parts.append(f"[{'^' if glob[at + 1] in '!^' else ''}{re.escape(glob[at + 1 : end].lstrip('!^'))}]".replace(r"\-", "-"))
            at = end + 1
        else:
            parts.append(re.escape(glob[at]))
            at += 1
    return "".join(parts)


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
        _compiled(written, "/")
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
    for piece in _APART.split(word):
        yield piece
    yield unquote(word)


def _spellings(path: str, workspace: str) -> Iterator[str]:
    """Return the absolute paths that a word can mean: as it is written, and with symbolic links resolved."""
    for piece in dict.fromkeys(pieces_of(path)):
        if not piece or len(piece) > _MOST_PATH or "\0" in piece:
            continue
        whole = os.path.join(workspace, os.path.expanduser(piece))
        yield os.path.normpath(whole)
        yield os.path.realpath(whole)


def _is_above(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")

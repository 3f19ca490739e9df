r"""Match values against the patterns of a grant: one meaning of `*` for every argument except shell commands.

A `*` matches any characters, or none, except those that could begin another command: `; & | $`, a backquote, brackets,
line ends, other control characters and invisible ones. It never matches a path with `..`. All other characters, `?` and
`[` too, are literal; `[*]` is an asterisk. An identical text always matches, and a lone `*` matches any value.

A `*` also never adds a second recipient, address, host, option or word. Its position decides which characters it
excludes, unless the argument's name says that it is a path or an address:

- in a path: no prefix that makes it absolute
- after the host of an address, as in `https://example.org/*`: no `,` and no `://`
- elsewhere: no `,`, no `://`, no `@`, no leading `-` as options have, and no space in a pattern without spaces
- where a host may be, before the first slash of a pattern without spaces: none of `/ \ : ? # %`; and, unless a dot
  follows in the pattern, no further name after a dot: `host*` does not match host.example.org, but `10.*` matches
  10.0.0.1

In an address, `https://*.example.org/*` matches any path at any name below example.org.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import regex
from msgspec import Struct

from tools.base.patterns import lazy_pattern

ANY = "*"
LONGEST_MATCHED = 1 << 16  # characters of a value: what is longer asks, as the loop would stand still meanwhile
STAR = "[*]"  # in a pattern: the character itself
_ORDERS = r"[;&|$`<>()\p{C}\p{Zl}\p{Zp}]"
_ADDRESS = lazy_pattern(r"(?:([A-Za-z][A-Za-z0-9+.-]*)://)?([^/?#]*)(.*)", re.DOTALL)
_AUTHORITY = lazy_pattern(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)(?::([0-9]{0,5}))?")
_UNCLEAR = regex.compile(r"[\\\s\p{C}\p{Z}]")  # URL parsers drop or replace these
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21, "ssh": 22}
# What an asterisk does not match, by its position.
_IN_PATH = regex.compile(rf"{_ORDERS}|\A([/\\~]|[A-Za-z]:)")
_BEHIND_HOST = regex.compile(rf"{_ORDERS}|,|://")
_AMONG_WORDS = regex.compile(rf"{_ORDERS}|[,@]|://|(?<!\S)-")
_IN_WORD = regex.compile(rf"{_AMONG_WORDS.pattern}|\s")
_IN_HOST = regex.compile(rf"{_IN_WORD.pattern}|[/\\:?#%]")
_AT_ITS_END = regex.compile(rf"{_IN_HOST.pattern}|(?<=\.)\d*[^\d.]")  # the last label of a host is never a number
_HOST_ENDS = lazy_pattern(r"[/\\?#]")
# Words in the names of arguments whose values are addresses, with `https://` or without.
_PLACES = frozenset(("address", "domain", "endpoint", "host", "hostname", "href", "link", "origin", "server", "site"))
_PLACES |= {"uri", "uris", "url", "urls", "website"}
# Words that end the names of arguments with paths, and words for paths on another machine.
_PATHS = frozenset(("dir", "directory", "file", "filename", "filepath", "folder", "path"))
_ELSEWHERE = frozenset(("peer", "remote"))
_WORDS = lazy_pattern(r"[A-Z]?[a-z]+|[A-Z]+")


def matches_pattern(name: str, value: str, pattern: str) -> bool:
    """True if the value of the argument `name` matches `pattern`; no asterisk among others matches in a long value."""
    if pattern in (ANY, value):
        return True
    pieces = _pieces(pattern)
    if len(pieces) == 1:
        return value == pieces[0]
    if len(value) > LONGEST_MATCHED or _leads_to_parent(value):
        return False
    is_mailbox = "@" in pattern and not _is_spelled_address(value)  # or an scp or git location: it has a host too
    if "://" in pattern or (names_address(name, value) and not is_mailbox):
        return _matches_address(value, pattern)
    return _matches_pieces(value, pieces, _stars(name, pieces))


def names_address(name: str, value: str) -> bool:
    """True if the argument `name` is a network address, by its value or by its name."""
    return _is_spelled_address(value) or not _PLACES.isdisjoint(words_of(name))


def _is_spelled_address(value: str) -> bool:
    return "://" in value or value.startswith(("//", "/\\", "\\\\"))


def words_of(name: str) -> list[str]:
    """Split a name into words: `repositoryUrl` and `repository_url` have the same two."""
    return [word.lower() for word in _WORDS.findall(name)]


def _pieces(pattern: str) -> list[str]:
    """Return the literal parts between the asterisks."""
    pieces = [""]
    for part in re.split(r"(\[\*\]|\*)", pattern):
        if part == ANY:
            pieces.append("")
        else:
            pieces[-1] += "*" if part == STAR else part
    return pieces


def _stars(name: str, pieces: list[str]) -> list[regex.Pattern[str]]:
    """Return what each asterisk between the pieces does not match."""
    words = words_of(name)
    if words and words[-1] in _PATHS and _ELSEWHERE.isdisjoint(words):
        return [_IN_PATH] * (len(pieces) - 1)
    if any(character.isspace() for piece in pieces for character in piece):
        return [_AMONG_WORDS] * (len(pieces) - 1)
    stars, host = [], True
    # The last piece with a dot, up to the one in which a host would end: no asterisk before it ends the host.
    ends = next((at for at, piece in enumerate(pieces) if _HOST_ENDS.search(piece)), len(pieces) - 1)
    dots = [at for at, piece in enumerate(pieces[: ends + 1]) if "." in _HOST_ENDS.split(piece)[0]]
    for at, piece in enumerate(pieces[:-1]):
        host = host and not _HOST_ENDS.search(piece)
        dotted = bool(dots) and dots[-1] > at
        stars.append(_IN_WORD if not host else _IN_HOST if dotted else _AT_ITS_END)
    return stars


def _matches_pieces(text: str, pieces: list[str], stars: list[regex.Pattern[str]]) -> bool:
    """Match each piece at its first occurrence: a later one would leave more text to the asterisk before it."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *middle, last = pieces
    at, end = len(first), len(text) - len(last)
    if end < at or not text.startswith(first) or not text.endswith(last):
        return False
    for piece, star in zip(middle, stars, strict=False):  # the last asterisk comes after them
        found = text.find(piece, at, end)
        if found < 0 or star.search(text, at, found):
            return False
        at = found + len(piece)
    return not stars[-1].search(text, at, end)


def _leads_to_parent(value: str) -> bool:
    """True if the path contains `..`, percent-encoded or not: `notes/*` must not match notes/../plan.txt."""
    for _ in range(3):
        if ".." in re.split(r"[/\\]", value):
            return True
        before, value = value, unquote(value)
        if value == before:
            return False
    return True  # encoded too many times


class _Address(Struct, frozen=True):
    """`host` is in lower case, in a pattern perhaps `*` or `*.name`; `rest` is all after it."""

    scheme: str
    host: str
    port: int | None
    rest: str


def _matches_address(value: str, pattern: str) -> bool:
    wanted, given = _pattern_of_addresses(pattern), _address(value)
    if not wanted or not given or (wanted.scheme, wanted.port) != (given.scheme, given.port):
        return False
    below = wanted.host.startswith("*.") and given.host.endswith(wanted.host[1:])
    pieces = _pieces(wanted.rest)
    return (below or wanted.host in (ANY, given.host)) and _matches_pieces(
        given.rest, pieces, [_BEHIND_HOST] * (len(pieces) - 1)
    )


def _address(text: str) -> _Address | None:
    """Parse an address; None if parsers may disagree on it: `user@`, `\\`, `%` or non-ASCII in a host, white space."""
    found = _ADDRESS.fullmatch(text)
    if not found or _UNCLEAR.search(text):
        return None
    scheme, rest = (found[1] or "").lower(), found[3]
    if not found[2]:  # a path alone
        alone = scheme == "file" or (not scheme and not rest.startswith("//"))
        return _Address(scheme, "", None, rest) if alone else None
    spelled = _AUTHORITY.fullmatch(found[2])
    if not spelled:
        return None
    return _Address(scheme, spelled[1].lower(), int(spelled[2]) if spelled[2] else _PORTS.get(scheme), rest)


def _pattern_of_addresses(pattern: str) -> _Address | None:
    """Parse a pattern; None if an asterisk could change where the host ends: `https://*example.org`."""
    found = _ADDRESS.fullmatch(pattern)
    if not found:
        return None
    scheme, host, rest = (found[1] or "").lower(), found[2], found[3]
    if host.endswith("*") and not rest:  # `https://example.org*`: anything after the host
        host, rest = host.removesuffix("*") or ANY, "*"
    if host == ANY:
        return _Address(scheme, ANY, _PORTS.get(scheme), rest)
    below = "*." if host.startswith("*.") else ""
    prefix = f"{scheme}://" if scheme else ""
    read = _address(prefix + host.removeprefix(below))
    return _Address(scheme, below + read.host, read.port, rest) if read else None

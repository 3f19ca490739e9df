"""Public names of servers' tools: short and plain enough for every model API, and unique.

A name depends on the pair alone, not on what else there is or which server came first. It is looked up in a table
and never read back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from fnmatch import fnmatchcase

from tools.base.patterns import lazy_pattern

MAX_NAME = 64

_PREFIX, _BETWEEN = "mcp__", "__"
_DIGITS = 10
_SERVER_PART = 20
_QUESTION = "elicitation"  # reserved: a person could mistake a call of such a tool for a question
_OFFER = "offer"  # in place of any name that is not reserved
_OFFERS = ("resources", "prompts", "skills")  # reserved: the host's own tools
_ODD = lazy_pattern(r"[^A-Za-z0-9_-]")
_HASHED = lazy_pattern(rf"_[0-9a-f]{{{_DIGITS}}}")


def public_name(server: str, tool: str) -> str:
    """`mcp__server__tool`; with a hash of the pair at the end where anything had to be changed or cut for it."""
    plain = f"{_PREFIX}{server}{_BETWEEN}{tool}"
    if len(plain) <= MAX_NAME and not _ODD.search(plain) and not _is_ambiguous(server, tool):
        return plain
    digest = hashlib.sha256(f"{len(server)}:{server}{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    shown_server = _ODD.sub("_", server)[:_SERVER_PART].rstrip("_") or "_"
    room = MAX_NAME - len(_PREFIX + shown_server + _BETWEEN) - 1 - _DIGITS
    return f"{_PREFIX}{shown_server}{_BETWEEN}{_ODD.sub('_', tool)[:room].rstrip('_')}_{digest}"


def offer_name(server: str, offer: str) -> str:
    """Return the name of the host's own tool for what a server offers besides tools (`resources`)."""
    plain = f"{_PREFIX}{server}{_BETWEEN}{offer}"
    is_plain = len(plain) <= MAX_NAME and not _ODD.search(plain) and not _is_ambiguous(server, _OFFER)
    return plain if is_plain else public_name(server, f"\0{offer}")


def has_prefix(name: str, server: str) -> bool:
    """Return whether a public name can be that of a tool of this server."""
    shown_server = _ODD.sub("_", server)[:_SERVER_PART].rstrip("_") or "_"
    return name.startswith((f"{_PREFIX}{server}{_BETWEEN}", f"{_PREFIX}{shown_server}{_BETWEEN}"))


def question_name(server: str) -> str:
    """Return the name of a server's question to a person, used in place of a tool's name."""
    return f"{_PREFIX}{_ODD.sub('_', server)[:_SERVER_PART]}{_BETWEEN}{_QUESTION}"


def is_question(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(f"{_BETWEEN}{_QUESTION}")


def _is_ambiguous(server: str, tool: str) -> bool:
    """Return whether another pair could get the same name, or the name imitates a hash: then a hash is added."""
    cut_elsewhere = _BETWEEN in server or server.startswith("_") or server.endswith("_") or not server or not tool
    return cut_elsewhere or tool in _OFFERS or tool.endswith(_QUESTION) or bool(_HASHED.fullmatch(tool[-_DIGITS - 1 :]))


def is_wanted(tool: str, include: Collection[str], exclude: Collection[str]) -> bool:
    """Return whether the globs include a tool; an excluded one is neither listed nor callable."""
    named = not include or any(fnmatchcase(tool, glob) for glob in include)
    return named and not any(fnmatchcase(tool, glob) for glob in exclude)

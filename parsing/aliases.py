"""Arguments under another common name: `file` for `path`, `cmd` for `command`. The one table, for all dialects.

A name is replaced only where it can mean one thing: the tool does not declare it, one declared argument that is not
given can mean the same, and no other given name can mean that one. All else is left for the check against the schema.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from parsing.arguments import Schema, properties_of, required_of
from parsing.events import Arguments

MOST_KEYS = 64  # of a call with an argument to rename
MOST_DECLARED = 1_000  # arguments of its tool: a client's schema has as many as it likes
LONGEST = 200  # characters of a name that is compared with others
_LOOSE = re.compile(r"[\W_]+")
_HASH = re.compile(r"_[0-9a-f]{10}\Z")  # of a name that would not be plain
# Each row has names that mean the same, as `loose` writes them.
MEANINGS = tuple(
    frozenset(row.split())
    for row in (
        "path file filename filepath pathname targetfile targetpath relativepath absolutepath",
        "path directory dir folder dirpath directorypath folderpath",
        "command cmd commandline shell shellcommand bash bashcommand script",
        "code script source sourcecode program python pythoncode",
        "content contents text body data filetext filecontent filecontents newcontent",
        "old oldtext oldstring oldstr search find",
        "new newtext newstring newstr replace replacement replacewith",
        "url uri link href address website",
        "query q search searchquery searchterm keywords",
        "pattern glob regex regexp",
        "id job jobid",
        "call callid toolcallid",
        "question prompt",
        "choices options",
        "name tool toolname",
        "arguments args parameters params input",
        "limit count max maxresults numresults topk",
    )
)


def loose(name: str) -> str:
    """Return the name without separators and case: `file_path`, `filePath` and `file-path` are one."""
    return _LOOSE.sub("", name).casefold()


def server_tool(server: str, tool: str, offered: Collection[str]) -> str:
    """Return the one offered name of a server's tool, else the tool's own.

    The server may stand in front of the tool's name, and a hash behind it.
    """
    wanted = loose(f"{server}{tool}")
    found = [name for name in offered if loose(_HASH.sub("", name)).removeprefix("mcp") == wanted]
    return found[0] if len(found) == 1 and tool not in offered else tool


def meanings(name: str) -> frozenset[str | int]:
    """Return the name without separators, and the numbers of its rows: names that share one can mean the same."""
    if len(name) > LONGEST:
        return frozenset()
    one = loose(name)
    return frozenset([one, *(number for number, row in enumerate(MEANINGS) if one in row)])


def renamed(arguments: Arguments, schema: Schema) -> tuple[Arguments, tuple[str, ...]]:
    """Return the arguments under the declared names, and a sentence for each that had another."""
    declared = properties_of(schema)
    if arguments.keys() <= declared.keys() or not _is_closed(schema):
        return arguments, ()
    if len(arguments) > MOST_KEYS or len(declared) > MOST_DECLARED:
        return arguments, ()
    unknown = [name for name in arguments if name not in declared]
    missing = [name for name in declared if name not in arguments]
    required = set(required_of(schema))
    found = _pairs(unknown, [name for name in missing if name in required])
    found |= _pairs([name for name in unknown if name not in found], [name for name in missing if name not in required])
    if not found:
        return arguments, ()
    repairs = tuple(f'"{given[:80]}" is read as "{name}".' for given, name in found.items())
    return {found.get(name, name): value for name, value in arguments.items()}, repairs


def _pairs(unknown: Iterable[str], missing: Iterable[str]) -> dict[str, str]:
    """Return given name -> declared name, for those that can mean only each other."""
    known = {name: meanings(name) for name in missing}
    candidates = {given: _alike(meanings(given), known) for given in unknown}
    single = {given: names[0] for given, names in candidates.items() if len(names) == 1}
    wanted = [name for names in candidates.values() for name in names]
    return {given: name for given, name in single.items() if wanted.count(name) == 1}


def _alike(given: frozenset[str | int], known: Mapping[str, frozenset[str | int]]) -> list[str]:
    return [name for name, meant in known.items() if not given.isdisjoint(meant)]


def _is_closed(schema: Schema) -> bool:
    """Return whether the schema declares no further arguments, of any name, that it wants."""
    return not schema.get("patternProperties") and schema.get("additionalProperties") in (None, False)

"""The files that a shell command reads, where its words show that; else it may read every file in its reach.

As in `tools.shell_policy`, two parsers have to agree that the text is nothing but plain commands. Of these only a few
programs are known here: those that read no file, and those that read the files which are their literal words. Whatever
else a command does (expand patterns, follow links, run a program) may read anything.
"""

from __future__ import annotations

from msgspec import Struct

from tools.base.patterns import lazy_pattern
from tools.shell_policy.plain_commands import Doubt, Words, simple_commands

SILENT = frozenset({"true", "false", "pwd", "echo", "whoami", "id", "nproc", "sleep", "uname", "basename", "dirname"})
BARE = frozenset({"date", "hostname"})  # options of them read files
READERS = frozenset({"cat", "head", "tail", "wc"})
LISTERS = frozenset({"ls"})
_OPTION = lazy_pattern(r"-[A-Za-z0-9]*")


class FileRead(Struct, frozen=True):
    """A path that a command reads; `lists`: the names in a folder."""

    path: str
    lists: bool = False


def files_read(command: str) -> list[FileRead] | None:
    """Return what the command reads; None where it may read anything."""
    commands = simple_commands(command)
    if isinstance(commands, Doubt):
        return None
    found = list[FileRead]()
    for words in commands:
        reads = _reads(words)
        if reads is None:
            return None
        found += reads
    return found


def _reads(words: Words) -> list[FileRead] | None:
    program, rest = words[0], words[1:]
    if program in SILENT or (program in BARE and not rest):
        return []
    options = [word for word in rest if word.startswith("-")]
    paths = [word for word in rest if not word.startswith("-")]
    if not all(map(_OPTION.fullmatch, options)):  # --files0-from=...
        return None
    if program in READERS:
        return [FileRead(path) for path in paths]
    if program in LISTERS and not any("R" in option for option in options):
        return [FileRead(path, lists=True) for path in paths or ["."]]
    return None

"""Places in a workspace that the owner's own programs run or obey outside of the sandbox: git, shells, editors.

The one table of them. In it belongs what a program of the owner's runs or obeys when a folder is merely opened, or by a
harmless command in it (`git status`, `npm ls`, `yarn --version`), and not what the owner starts knowingly (a Makefile,
a script, a test), nor text that an agent reads (AGENTS.md). The file tools ask before they write to any of them; a box
closes those that have a `seal` and lie in the workspace's root. Some have none: their name is a pattern, usual commands
write there (`npm install` in `.husky`), or a sealed file controls whether they are used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from tools.base.patterns import lazy_pattern


class Seal(Enum):
    """The protection of a place in the workspace's root from boxed commands."""

    NONE = 0  # a question of the file tools only
    THERE = 1  # change it where it is there
    ALWAYS = 2  # nor make it: every command costs a folder of that name for as long as it runs


class PathRule(Struct, frozen=True):
    """A name, as a pattern in lower case, and why what lies there leaves the sandbox.

    `sign`: a path in the home of users of the program; for them the place cannot be created either.
    """

    name: str
    why: str
    seal: Seal = Seal.NONE
    sign: str = ""


_EDITOR = "editors run the tasks and programs that it names when they open the folder"
_AGENT = "other agents take commands and permissions from it"
_PACKAGES = "package managers run the programs that it names, on every command"

PLACES = (
    *(
        PathRule(
            ".git",
            "git runs its hooks, and the programs that its config names, for everyone who uses it there",
            Seal.ALWAYS,
        ),
        PathRule(
            "*.git", "a folder of that name may be a repository, and git runs its hooks and what its config names"
        ),
        PathRule(".gitmodules", "git fetches what it names when it updates submodules"),
        PathRule(".hg", "Mercurial runs the hooks and extensions that its hgrc names"),
        PathRule(".jj", "Jujutsu runs the programs that its config names"),
        PathRule(".gdbinit", "gdb runs it when it is started there", Seal.THERE),
        PathRule(".lldbinit", "lldb runs it when it is started there", Seal.THERE),
        PathRule(".husky", "git runs the hooks in it where core.hooksPath names it"),
        PathRule(".githooks", "git runs the hooks in it where core.hooksPath names it"),
        PathRule(".pre-commit-config.yaml", "pre-commit runs what it names at each commit", Seal.THERE),
        PathRule(".lefthook.y*ml", "lefthook runs what it names at each commit"),
        PathRule("lefthook.y*ml", "lefthook runs what it names at each commit"),
        PathRule(".envrc", "direnv runs it in every shell that enters the folder", Seal.ALWAYS),
        PathRule(".direnv", "direnv loads what it has kept there"),
        *(
            PathRule(name, "mise sets variables and runs hooks by it in every shell that enters the folder", Seal.THERE)
            for name in (".mise.toml", "mise.toml", ".mise")
        ),
    ),
    *(
        PathRule(".vscode", _EDITOR, Seal.ALWAYS),
        PathRule("*.code-workspace", _EDITOR),
        PathRule(".idea", _EDITOR, Seal.ALWAYS),
        PathRule(".fleet", _EDITOR, Seal.THERE, ".fleet"),
        PathRule(".zed", _EDITOR, Seal.THERE, ".config/zed"),
        PathRule(".helix", _EDITOR, Seal.THERE, ".config/helix"),
        PathRule(".devcontainer", _EDITOR, Seal.THERE),
        PathRule(".devcontainer.json", _EDITOR, Seal.THERE),
        PathRule(".dir-locals.el", "Emacs evaluates it when it opens a file there", Seal.THERE),
        PathRule(".exrc", "vi runs it when it is started there", Seal.THERE),
        PathRule(".vimrc", "vi runs it when it is started there", Seal.THERE),
        PathRule(".nvimrc", "Neovim runs it when it is started there", Seal.THERE),
        PathRule(".nvim.lua", "Neovim runs it when it is started there", Seal.THERE),
    ),
    *(
        PathRule(".npmrc", _PACKAGES, Seal.THERE),
        PathRule(".yarnrc", _PACKAGES, Seal.THERE),
        PathRule(".yarnrc.yml", _PACKAGES, Seal.THERE),
        PathRule(".pnpmfile.?js", _PACKAGES),
    ),
    *(
        PathRule(".mcp.json", _AGENT, Seal.THERE),
        PathRule(".claude", _AGENT, Seal.THERE, ".claude"),
        PathRule(".cursor", _AGENT, Seal.THERE, ".cursor"),
        PathRule(".gemini", _AGENT, Seal.THERE, ".gemini"),
        PathRule(".codex", _AGENT, Seal.THERE, ".codex"),
        PathRule(".windsurf", _AGENT, Seal.THERE, ".codeium/windsurf"),
        PathRule(".continue", _AGENT, Seal.THERE, ".continue"),
        PathRule(".opencode", _AGENT, Seal.THERE, ".config/opencode"),
        PathRule("opencode.json*", _AGENT),
        PathRule(".roo", _AGENT, Seal.THERE),
        PathRule(".aider.conf.y*ml", _AGENT),
    ),
)
SEALABLE = tuple(place.name for place in PLACES if place.seal != Seal.NONE)
SEALED = tuple(place.name for place in PLACES if place.seal == Seal.ALWAYS)
_SEALED_IN_TEXT = lazy_pattern(rf"(?<![\w.-])({'|'.join(map(re.escape, SEALABLE))})(?![\w.-])")
_CLOSED = ("Read-only file system", "Device or resource busy", "Is a directory", "not an empty directory")
_FILE_TOOL = "Write it with write_file, which asks the user, or ask them to do it."
_INSTEAD = dict.fromkeys(SEALABLE, _FILE_TOOL) | {
    ".git": "Give settings to one command, as `git -c name=value ...`; make a repository in a sub-folder, or ask the "
    "user to make it here."
}
_LINE = 1_000  # characters of a line that are looked at


def sealed_names(home: Path | None = None) -> tuple[str, ...]:
    """The places that a boxed command cannot make either, by what programs there are signs of in this home."""
    there = home or Path(os.path.expanduser("~"))  # noqa: PTH111 - it does not fail without a home
    used = (place.name for place in PLACES if place.sign and os.path.lexists(there / place.sign))
    return (*SEALED, *used)


def owner_run_reason(path_parts: Iterable[str]) -> str | None:
    """The reason why a file at this path is run or obeyed outside of the sandbox by the owner's programs, as a clause.

    `path_parts` are the components below the workspace. None where no such place is known.
    """
    for part in path_parts:
        name = part.casefold().rstrip(". ")  # as file systems see it that ignore case, or cut a name's end
        for place in PLACES:
            if fnmatchcase(name, place.name):
                return place.why
    return None


def sealed_path_hint(output: str) -> str | None:
    """Return advice when the output of a boxed command shows that it met a sealed place; else None."""
    for line in (line[-_LINE:] for line in output.splitlines()):
        if any(words in line for words in _CLOSED):
            if "destination path '.'" in line:
                return (
                    f"In the sandbox this folder is never empty: it holds {', '.join(SEALED)}. Clone into a sub-folder."
                )
            if found := _SEALED_IN_TEXT.search(line):
                place = next(place for place in PLACES if place.name == found[1])
                return f"A command cannot change {place.name} here, where {place.why}. {_INSTEAD[place.name]}"
    return None

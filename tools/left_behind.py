"""Places in a workspace that the owner's own programs run or obey outside of the sandbox: git, shells, editors.

The one table of them: the box shows the `sealed` ones read-only, and the file tools ask before they write to any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Place:
    """A name, as a pattern in lower case, and why what lies there leaves the sandbox.

    `sealed`: a boxed command cannot write there in the workspace's root, nor make it where it does not exist.
    """

    name: str
    why: str
    sealed: bool = False


_EDITOR = "editors run the tasks and programs that it names when they open the folder"
_AGENT = "other agents take commands and permissions from it"

PLACES = (
    Place(".git", "git runs its hooks, and the programs that its config names, for everyone who uses it there", True),
    Place("*.git", "a folder of that name may be a repository, and git runs its hooks and what its config names"),
    Place(".gitmodules", "git fetches what it names when it updates submodules"),
    Place(".husky", "git runs the hooks in it where core.hooksPath names it"),
    Place(".githooks", "git runs the hooks in it where core.hooksPath names it"),
    Place(".pre-commit-config.yaml", "pre-commit runs what it names at each commit"),
    Place(".envrc", "direnv runs it in every shell that enters the folder", True),
    Place(".vscode", _EDITOR, True),
    Place("*.code-workspace", _EDITOR),
    Place(".idea", _EDITOR, True),
    Place(".fleet", _EDITOR),
    Place(".zed", _EDITOR),
    Place(".devcontainer", _EDITOR),
    Place(".devcontainer.json", _EDITOR),
    Place(".dir-locals.el", "Emacs evaluates it when it opens a file there"),
    Place(".exrc", "vi runs it when it is started there"),
    Place(".vimrc", "vi runs it when it is started there"),
    Place(".nvimrc", "Neovim runs it when it is started there"),
    Place(".nvim.lua", "Neovim runs it when it is started there"),
    Place(".mcp.json", _AGENT),
    Place(".claude", _AGENT),
    Place(".cursor", _AGENT),
)
SEALED = tuple(place.name for place in PLACES if place.sealed)
_SEALED_IN_TEXT = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, SEALED))})(?![\w.-])")
_CLOSED = ("Read-only file system", "Device or resource busy", "Is a directory", "not an empty directory")
_FILE_TOOL = "Write it with write_file, which asks the user, or ask them to do it."
_INSTEAD = dict.fromkeys(SEALED, _FILE_TOOL) | {
    ".git": "Give settings to one command, as `git -c name=value ...`, or ask the user to run it."
}
_LINE = 1_000  # characters of a line that are looked at


def leaves_the_box(path_parts: Iterable[str]) -> str | None:
    """The reason why a file at this path is run or obeyed outside of the sandbox by the owner's programs, as a clause.

    `path_parts` are the components below the workspace. None where no such place is known.
    """
    for part in path_parts:
        name = part.casefold().rstrip(". ")  # as file systems see it that ignore case, or cut a name's end
        for place in PLACES:
            if fnmatchcase(name, place.name):
                return place.why
    return None


def seal_met(output: str) -> str | None:
    """What to do where a boxed command met a sealed place, by what it printed; None where it met none."""
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

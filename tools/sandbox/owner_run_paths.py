"""Places in a workspace that the owner's own programs run or obey outside of the sandbox: git, shells, editors.

The one table of them. In it belongs what a program of the owner's runs or obeys when a folder is merely opened, or by a
harmless command in it (`git status`, `npm ls`, `cargo build`), and not what the owner starts knowingly (a Makefile, a
script, a test: `owner_commands`), nor text that an agent reads (AGENTS.md). The file tools ask before they write to any
of them; a box closes those that have a `seal` and lie in the workspace's root. Each row whose place a command can make
although the file tools ask about it says why in `left_open`; a test compares both for every row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase, translate
from pathlib import Path

from msgspec import Struct

from tools.base.patterns import lazy_pattern


class Seal(Enum):
    """The protection of a place in the workspace's root from boxed commands."""

    NONE = 0  # a question of the file tools only
    THERE = 1  # change it where it is there
    ALWAYS = 2  # nor make it: every command costs a folder of that name for as long as it runs


class PathRule(Struct, frozen=True):
    """A path, as patterns in lower case, and why what lies there leaves the sandbox.

    `command`: of the owner's, which runs or obeys it. `signs`: paths in the home of users of the program; for them the
    place cannot be created either. `left_open`: why commands can make it. `is_source`: a file of the project that
    people read, send and undo like any other.
    """

    name: str
    why: str
    seal: Seal = Seal.NONE
    signs: tuple[str, ...] = ()
    left_open: str = ""
    is_source: bool = False
    command: str = ""


_EDITOR = "editors run the tasks and programs that it names when they open the folder"
_AGENT = "other agents take commands and permissions from it"
_PACKAGES = "package managers run the programs that it names, on every command"
_HOOKS = "git runs the hooks in it where core.hooksPath names it"
_VERSIONS = "version managers choose by it the programs that they run in this folder, by a path as well"

_PATTERN = "a mount closes one name, and this is a pattern"
_IS_MADE = "usual commands make it, in an empty folder too"
_IS_CHECKED_OUT = "git changes it with every branch, and commands that add to it are usual"
_NESTED = "it lies in a folder that commands may make and move, where no mount holds"
_ITS_FOLDER = "commands keep caches in its folder, whose name is all that a mount could close"
_UNUSED = "it is closed where the home shows that its program is used: each name costs every command a folder"

_VIM = (".config/nvim", ".vimrc", ".vim", ".exrc")

PLACES = (
    PathRule(
        ".git",
        "git runs its hooks, and the programs that its config names, for everyone who uses it there",
        Seal.ALWAYS,
        command="git",
    ),
    PathRule(
        "*.git",
        "a folder of that name may be a repository, and git runs its hooks and what its config names",
        left_open=_PATTERN,
        command="git",
    ),
    PathRule(
        ".gitmodules",
        "git fetches what it names when it updates submodules",
        left_open=_IS_CHECKED_OUT,
        command="git submodule update",
    ),
    PathRule(
        ".gitattributes",
        "git passes files through the filters and merge drivers that it names, where a config has them",
        left_open=_IS_CHECKED_OUT,
        is_source=True,
        command="git add",
    ),
    PathRule(".hg", "Mercurial runs the hooks and extensions that its hgrc names", left_open=_IS_MADE, command="hg"),
    PathRule(".jj", "Jujutsu runs the programs that its config names", left_open=_IS_MADE, command="jj"),
    PathRule(
        ".gdbinit",
        "gdb runs it when it is started there",
        Seal.THERE,
        (".gdbinit", ".config/gdb"),
        _UNUSED,
        command="gdb",
    ),
    PathRule(".lldbinit", "lldb runs it when it is started there", Seal.THERE, (".lldbinit",), _UNUSED, command="lldb"),
    PathRule(".husky", _HOOKS, left_open=_IS_MADE, command="git commit"),
    PathRule(".githooks", _HOOKS, left_open=_IS_CHECKED_OUT, command="git commit"),
    PathRule(
        ".pre-commit-config.yaml",
        "pre-commit runs what it names at each commit",
        Seal.THERE,
        left_open=_IS_MADE,
        command="git commit",
    ),
    *(
        PathRule(name, "lefthook runs what it names at each commit", left_open=_PATTERN, command="git commit")
        for name in (".lefthook.y*ml", "lefthook.y*ml")
    ),
    PathRule(".envrc", "direnv runs it in every shell that enters the folder", Seal.ALWAYS, command="cd"),
    PathRule(".direnv", "direnv loads what it has kept there", left_open=_IS_MADE, command="cd"),
    *(
        PathRule(
            name,
            "mise sets variables and runs hooks by it in every shell that enters the folder",
            Seal.THERE,
            (".config/mise", ".local/share/mise"),
            _UNUSED,
            command="cd",
        )
        for name in (".mise.toml", "mise.toml", ".mise")
    ),
    *(
        PathRule(name, _VERSIONS, left_open=_IS_MADE, is_source=True, command=command)
        for name, command in ((".tool-versions", "asdf"), (".python-version", "pyenv"))
    ),
    PathRule(
        "*.desktop",
        "a desktop starts the program that it names, under any icon",
        left_open=_PATTERN,
        command="xdg-open",
    ),
    PathRule(".vscode", _EDITOR, Seal.ALWAYS, command="code"),
    PathRule("*.code-workspace", _EDITOR, left_open=_PATTERN, command="code"),
    PathRule(".idea", _EDITOR, Seal.ALWAYS, command="idea"),
    PathRule(".fleet", _EDITOR, Seal.THERE, (".fleet",), _UNUSED, command="fleet"),
    PathRule(".zed", _EDITOR, Seal.THERE, (".config/zed",), _UNUSED, command="zed"),
    PathRule(".helix", _EDITOR, Seal.THERE, (".config/helix",), _UNUSED, command="hx"),
    PathRule(".devcontainer", _EDITOR, Seal.ALWAYS, command="code"),
    PathRule(".devcontainer.json", _EDITOR, Seal.ALWAYS, command="code"),
    PathRule(
        ".dir-locals.el",
        "Emacs evaluates it when it opens a file there",
        Seal.THERE,
        (".emacs", ".emacs.d", ".config/emacs"),
        _UNUSED,
        command="emacs",
    ),
    *(
        PathRule(name, "vi runs it when it is started there", Seal.THERE, _VIM, _UNUSED, command="vi")
        for name in (".exrc", ".vimrc")
    ),
    *(
        PathRule(
            name, "Neovim runs it when it is started there", Seal.THERE, (".config/nvim",), _UNUSED, command="nvim"
        )
        for name in (".nvimrc", ".nvim.lua")
    ),
    *(
        PathRule(name, _PACKAGES, Seal.THERE, left_open=_IS_MADE, command=command)
        for name, command in ((".npmrc", "npm"), (".yarnrc", "yarn"), (".yarnrc.yml", "yarn"))
    ),
    PathRule(".pnpmfile.?js", _PACKAGES, left_open=_PATTERN, command="pnpm"),
    PathRule(
        ".cargo/config*",
        "cargo runs the compilers, wrappers and runners that it names, on every build",
        left_open=_ITS_FOLDER,
        is_source=True,
        command="cargo",
    ),
    PathRule(
        ".bazelrc",
        "Bazel takes options from it on every command, which name programs that run outside of its own sandbox",
        left_open=_IS_CHECKED_OUT,
        is_source=True,
        command="bazel",
    ),
    *(
        PathRule(
            name,
            "the project's host runs it after a push, with the secrets of the project",
            left_open=_NESTED,
            is_source=True,
            command="git push",
        )
        for name in (".github/workflows", ".github/actions")
    ),
    *(
        PathRule(name, _AGENT, Seal.THERE, (sign,), _UNUSED, command=command)
        for name, sign, command in (
            (".mcp.json", ".claude", "claude"),
            (".claude", ".claude", "claude"),
            (".cursor", ".cursor", "cursor"),
            (".gemini", ".gemini", "gemini"),
            (".codex", ".codex", "codex"),
            (".windsurf", ".codeium/windsurf", "windsurf"),
            (".continue", ".continue", "cn"),
            (".opencode", ".config/opencode", "opencode"),
            (".roo", ".roo", "code"),
            (".clinerules", ".cline", "code"),
            (".kiro", ".kiro", "kiro"),
        )
    ),
    *(
        PathRule(name, _AGENT, left_open=_PATTERN, command=command)
        for name, command in (("opencode.json*", "opencode"), (".aider.conf.y*ml", "aider"))
    ),
)
SEALABLE = tuple(place.name for place in PLACES if place.seal != Seal.NONE)
SEALED = tuple(place.name for place in PLACES if place.seal == Seal.ALWAYS)
_BEGINNING = lazy_pattern("|".join(translate(place.name.partition("/")[0]) for place in PLACES))
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
    used = (one.name for one in PLACES if any(os.path.lexists(there / sign) for sign in one.signs))
    return (*SEALED, *used)


def owner_run_rule(path_parts: Iterable[str]) -> PathRule | None:
    """Return the rule for a file at this path, which the owner's programs run or obey outside of the sandbox.

    `path_parts` are the components below the workspace. None where no such place is known.
    """
    names = [folded(part) for part in path_parts]
    begins = [at for at, name in enumerate(names) if _BEGINNING.match(name)]  # few, of a path that may be long
    return next((place for at in begins for place in PLACES if _matches(place, names, at)), None)


def folded(name: str) -> str:
    """Return a name as file systems take it that ignore case or a name's end."""
    return name.casefold().rstrip(". ")


def owner_run_reason(path_parts: Iterable[str]) -> str | None:
    """Return the reason of that rule, as a clause."""
    return rule.why if (rule := owner_run_rule(path_parts)) else None


def _matches(place: PathRule, names: list[str], at: int) -> bool:
    """Return whether the components from `at` on begin with the place."""
    patterns = place.name.split("/")
    return len(names) - at >= len(patterns) and all(map(fnmatchcase, names[at:], patterns))


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

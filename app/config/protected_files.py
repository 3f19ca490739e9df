"""What configures the server, or is it, lies where no tool can write: else a model decides about the next start.

One table of such files and folders, checked in one place before anything starts. What is not there yet counts as well:
a tool could make it.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.config.sources import DEFAULT_FILE, home_of
from tools.base.containment import lies_in
from tools.process.unsafe_environment import code_in_environment

PACKAGES = Path(__file__).parents[2]  # the folder of the code that runs
IN_DATA = ("*", "persona/*", "persona/*/*", "keys/*", "mcp/*")  # what may be a link to elsewhere

MOVE = "Move it, or let DRAGOMAN_WORKSPACE be another folder."
ELSEWHERE = "Install dragoman elsewhere (pipx, uv tool), or let DRAGOMAN_WORKSPACE be another folder."


@dataclass(frozen=True, slots=True)
class OwnFile:
    """Something of the server's; `advice` says what to do if it lies in the workspace."""

    what: str
    path: Path
    advice: str = MOVE


def own_files(
    data_dir: Path, named: Mapping[str, Path], environ: Mapping[str, str], file: Path | None, folder: Path
) -> Iterator[OwnFile]:
    """All of them. `named` are files of settings by the setting's name, `file` is the settings file that was read."""
    yield OwnFile("data_dir", data_dir)
    usual = folder / DEFAULT_FILE
    if settings_file := file or (usual if usual.is_symlink() else None):  # a link counts before it leads to a file
        yield OwnFile("The settings file", settings_file, "Move it, and name it with --config or DRAGOMAN_CONFIG.")
    # Where the next start looks for a settings file, and what the server starts looks for code.
    yield OwnFile("The current folder", folder, "Start dragoman in another folder.")
    for name, path in named.items():
        yield OwnFile(name, path)
    for pattern in IN_DATA:
        for path in data_dir.glob(pattern):
            if path.is_symlink():
                yield OwnFile("What a link in data_dir leads to", path)
    yield from _program()
    for one in filter(None, environ.get("PATH", "").split(os.pathsep)):
        yield OwnFile("A folder of PATH, whose programs the server runs", Path(one), "Take it out of PATH.")
    for name, path in code_in_environment(environ):
        yield OwnFile(f"{name}, by which programs find code or settings,", path, "Let it name another place.")
    if home := home_of(environ):
        yield OwnFile("HOME, whose files configure what the server runs,", home)


def _program() -> Iterator[OwnFile]:
    """The running code and its environment, where more code would be found at the next start."""
    places = [PACKAGES, *map(Path, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.executable))]
    if site.ENABLE_USER_SITE:
        places.append(Path(site.getusersitepackages()))
    # What counts from the current folder has been said of that.
    for place in dict.fromkeys([*places, *(Path(one) for one in sys.path if os.path.isabs(one))]):  # noqa: PTH117
        yield OwnFile("The code that runs", place, ELSEWHERE)


def in_workspace(files: Iterator[OwnFile], workspace: Path) -> list[str]:
    """A sentence for each kind that lies where tools can write."""
    told: dict[str, str] = {}
    for one in files:
        if one.what not in told and lies_in(one.path, workspace):
            where = f"is inside the workspace ({workspace}), where tools could change it"
            told[one.what] = f"{one.what} ({one.path}) {where}. {one.advice}"
    return list(told.values())

"""Files that configure the server, or are its code: tools must not be able to write them.

Otherwise a model could change the next start of the server. They are checked before anything starts; a file that does
not exist yet counts as well, because a tool could create it.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from app.config.sources import DEFAULT_FILE, home_of
from tools.base.containment import lies_in
from tools.process.unsafe_environment import code_in_environment

PACKAGES = Path(__file__).parents[__name__.count(".")]  # the folder of the code that runs
IN_DATA = ("*", "persona/*", "persona/*/*", "keys/*", "mcp/*")  # what may be a symbolic link

MOVE = "Move it, or let DRAGOMAN_WORKSPACE be another folder."
ELSEWHERE = "Install dragoman elsewhere (pipx, uv tool), or let DRAGOMAN_WORKSPACE be another folder."


class OwnFile(Struct, frozen=True):
    """A file or folder of the server; `advice` says what to do if it is inside the workspace."""

    what: str
    path: Path
    advice: str = MOVE


def own_files(
    data_dir: Path, named: Mapping[str, Path], environ: Mapping[str, str], file: Path | None, folder: Path
) -> Iterator[OwnFile]:
    """All protected files. `named` are files that settings name, by setting; `file` is the settings file."""
    yield OwnFile("data_dir", data_dir)
    usual = folder / DEFAULT_FILE
    if settings_file := file or (usual if usual.is_symlink() else None):  # also a link without a target
        yield OwnFile("The settings file", settings_file, "Move it, and name it with --config or DRAGOMAN_CONFIG.")
    # The next start looks for a settings file there, and child processes for code.
    yield OwnFile("The current folder", folder, "Start dragoman in another folder.")
    for name, path in named.items():
        yield OwnFile(name, path)
    for pattern in IN_DATA:
        for path in data_dir.glob(pattern):
            if path.is_symlink():
                yield OwnFile("The target of a link in data_dir", path)
    yield from _program()
    for one in filter(None, environ.get("PATH", "").split(os.pathsep)):
        yield OwnFile("A folder of PATH, whose programs the server runs", Path(one), "Remove it from PATH.")
    for name, path in code_in_environment(environ):
        yield OwnFile(f"{name}, by which programs find code or settings,", path, "Set it to another path.")
    if home := home_of(environ):
        yield OwnFile("HOME, whose files configure what the server runs,", home)


def _program() -> Iterator[OwnFile]:
    """The running code and its environment, from which the next start would load code."""
    places = [PACKAGES, *map(Path, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.executable))]
    if site.ENABLE_USER_SITE:
        places.append(Path(site.getusersitepackages()))
    # Relative entries are in the current folder, which is checked above.
    for place in dict.fromkeys([*places, *(Path(one) for one in sys.path if os.path.isabs(one))]):  # noqa: PTH117
        yield OwnFile("The code that runs", place, ELSEWHERE)


def in_workspace(files: Iterator[OwnFile], workspace: Path) -> list[str]:
    """A sentence for each kind of file that is inside the workspace."""
    problems: dict[str, str] = {}
    for one in files:
        if one.what not in problems and lies_in(one.path, workspace):
            where = f"is inside the workspace ({workspace}), where tools could change it"
            problems[one.what] = f"{one.what} ({one.path}) {where}. {one.advice}"
    return list(problems.values())

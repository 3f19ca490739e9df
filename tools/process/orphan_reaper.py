"""The orphan reaper: a small process that outlives the server briefly and kills what its commands left running.

bubblewrap dies with its parent, but only some milliseconds after its start (`PR_SET_PDEATHSIG`); and without a sandbox
nothing does. Run as a script, it waits until the server is gone, kills every process that carries one
of its marks in the environment, and clears the places that were made for its commands.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

MARK = "DRAGOMAN_CALL"
OF_PRINCIPAL = "dragoman.principal-"  # a group around those of one principal's commands
PREFIX = "dragoman-"  # of everything that is made for one command; its mark follows

_LINGER_S = 1.0  # a command that was being started when the server died is visible by then
_PAUSE_S = 0.05
_KILLED_S = 5.0  # how long killed processes may take to go; more means that the kernel holds them
_LOOK_S = 0.002
_REMOVING_S = 60.0
_STALE_S = 10.0  # a place without a process is older than this, or its command is just being started


def watched(places: Iterable[str] = ()) -> str:
    """Watch over marks and `places`; return the prefix of every mark that is watched.

    The first call starts the watcher (about 15 ms), and so does the first one after it was killed.
    """
    watcher = _watcher()
    watcher.keep_up(frozenset(places))
    return watcher.server


class _Watcher:
    def __init__(self) -> None:
        self.server = secrets.token_hex(8)
        self._pid: int | None = None
        self._places: frozenset[str] = frozenset()
        self._read_end, self._kept = os.pipe()  # the write end stays open, here alone, as long as this process lives

    def keep_up(self, places: frozenset[str]) -> None:
        """Start the watcher unless it runs and knows the places."""
        if self._pid is not None:
            with suppress(ChildProcessError):
                if not places <= self._places:
                    os.kill(self._pid, signal.SIGKILL)
                    os.waitpid(self._pid, 0)
                elif os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                    return
        self._places |= places
        command = [sys.executable, "-I", "-S", __file__, self.server, *sorted(self._places)]
        duplicate = [(os.POSIX_SPAWN_DUP2, self._read_end, 0)]
        self._pid = os.posix_spawn(command[0], command, {}, file_actions=duplicate, setsid=True)


_watcher = cache(_Watcher)


def clear(places: Iterable[str], mark: str) -> None:
    """Remove what was made in the `places` for the command with this mark; kill what still runs in its groups."""
    for folder in _folders(places):
        _remove(folder / f"{PREFIX}{mark}")


def _folders(places: Iterable[str]) -> list[Path]:
    """The places, and the groups of principals in them."""
    found = [Path(place) for place in places]
    groups = [folder for folder in found if (folder / "cgroup.procs").exists()]
    return [*found, *(inner for group in groups for inner in _inside(group, OF_PRINCIPAL))]


def _inside(folder: Path, prefix: str) -> list[Path]:
    with suppress(FileNotFoundError):  # another server has removed it just now
        return list(folder.glob(f"{prefix}*"))
    return []


def _remove_empty(places: Iterable[str]) -> None:
    """The groups of principals that have no command."""
    for folder in _folders(places):
        if folder.name.startswith(OF_PRINCIPAL):
            with suppress(OSError):  # in use
                folder.rmdir()


def clear_stale(places: Iterable[str]) -> None:
    """Remove what was made for commands that have ended, left when a server and its orphan reaper were killed."""
    old = time.time() - _STALE_S
    places = tuple(places)
    left = [path for folder in _folders(places) for path in _inside(folder, PREFIX) if _is_mine_since(path, old)]
    if left:
        environments = b"\0".join(_environment(entry) for entry in _processes())
        for path in left:
            if f"{MARK}={path.name.removeprefix(PREFIX)}\0".encode() not in environments + b"\0":
                _remove(path)
    _remove_empty(places)


def _is_mine_since(path: Path, old: float) -> bool:
    with suppress(OSError):
        status = path.lstat()
        return status.st_uid == os.getuid() and status.st_mtime < old
    return False


def _remove(path: Path) -> None:
    if (path / "cgroup.procs").exists():
        _remove_group(path)
    elif path.is_dir():
        # Folders may lie deeper in each other than Python follows, and be closed to their own maker.
        for words in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run([*words, "--", path], stderr=subprocess.DEVNULL, timeout=_REMOVING_S)
            if not path.exists():
                return


def _remove_group(group: Path) -> None:
    deadline = time.monotonic() + _KILLED_S
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # a process is still in it
            if time.monotonic() > deadline:
                return
        else:
            return
        _kill_all(group)
        time.sleep(_LOOK_S)


def _kill_all(group: Path) -> None:
    with suppress(OSError):
        if (kill := group / "cgroup.kill").exists():
            kill.write_text("1")
            return
        if (most := group / "pids.max").exists():
            most.write_text("0")  # no process forks faster than the list is read
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            if pid not in (0, os.getpid()):  # 0: of another namespace, and to kill 0 is to kill oneself
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _outlive(server: str, places: list[str]) -> None:
    while os.read(0, 4096):
        pass
    until = time.monotonic() + _LINGER_S
    while time.monotonic() < until:
        for entry in _processes():
            if f"{MARK}={server}".encode() in _environment(entry):
                with suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)
        for folder in _folders(places):
            for path in _inside(folder, f"{PREFIX}{server}."):
                _remove(path)
        time.sleep(_PAUSE_S)
    _remove_empty(places)


def _processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(process: Path) -> bytes:
    with suppress(OSError):
        return (process / "environ").read_bytes()
    return b""


if __name__ == "__main__":
    _outlive(sys.argv[1], sys.argv[2:])

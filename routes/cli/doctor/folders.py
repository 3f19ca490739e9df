"""Checks of the folders: whose they are, what may be done in them, how much room there is, what they lie on."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil

from app.config.model_settings import key_files
from app.runs.composition.loop_watch import held_loop
from app.storage.data_dir import OTHER_ACCOUNTS, OURS
from routes.cli.doctor.finding import Finding, Findings, Subject, existing, megabytes, ok, problem, skipped, warning

LOCK = "lock"  # in the data directory
LOCKS = Path("/proc/locks")
LITTLE_ROOM, NO_ROOM = 1 << 30, 64 << 20
FEW_FILES = 1_000
MOST_NAMED = 5
LONG_HELD_S = 0.25  # of CPU: a delay of all streams that is seen
# File systems of other machines: the database's memory-mapped index cannot be shared over them.
# See "Disadvantages" in SQLite's documentation of its write-ahead log.
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"})
OF_KERNEL = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts"})  # root may write there, but make no file
PASSING = {"tmpfs": "a restart of the machine", "ramfs": "a restart of the machine", "overlay": "the container's end"}


def data_dir(subject: Subject) -> Findings:
    """The folder of the database: owner, permissions, room, file system."""
    folder = subject.settings.data_dir
    advice = "Set DRAGOMAN_DATA_DIR to a writable folder of your own."
    if not folder.exists():
        return _absent(folder, advice)
    found = folder.stat()
    if not folder.is_dir():
        return problem(f"{folder} is not a folder", advice)
    if found.st_uid != os.geteuid():
        return problem(f"{folder} belongs to another account (user id {found.st_uid})", advice)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return problem(f"{folder} cannot be written", f"chmod 700 {folder}, or make its file system writable.")
    kind = file_system(folder)
    if kind in REMOTE:
        what = "Move it to a disk of this machine: SQLite's write-ahead log fails over a network."
        return problem(f"{folder} lies on {kind}", what)
    found_line = f"{folder}, mode {stat.S_IMODE(found.st_mode):04o}, {_room(folder)}, {kind or 'unknown file system'}"
    if lack := _lack(folder, found_line):
        return lack
    if kind in PASSING:
        return warning(found_line, f"Mount a volume there: what lies in it is lost with {PASSING[kind]}.")
    return ok(found_line)


def workspace(subject: Subject) -> Findings:
    """The folder that the tools work in."""
    folder = subject.settings.workspace
    advice = "Set DRAGOMAN_WORKSPACE to a folder that can be written."
    if not folder.exists():
        return _absent(folder, advice)
    if not folder.is_dir():
        return problem(f"{folder} is not a folder", advice)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return problem(f"{folder} cannot be written", advice)
    data = subject.settings.data_dir.resolve()
    if data.is_relative_to(folder.resolve()):
        outside = "Move one of them: commands may change what lies in the workspace."
        return problem(f"the data directory {data} lies in the workspace {folder}", outside)
    found = f"{folder}, {_room(folder)}, {file_system(folder) or 'unknown file system'}"
    return _lack(folder, found) or ok(found)


def _absent(folder: Path, advice: str) -> Finding:
    parent = existing(folder)
    takes_files = parent.is_dir() and file_system(parent) not in OF_KERNEL
    if takes_files and os.access(parent, os.W_OK | os.X_OK):
        return ok(f"{folder} does not exist yet; the server creates it")
    return problem(f"{folder} does not exist and cannot be created in {parent}", advice)


def _room(folder: Path) -> str:
    return f"{megabytes(shutil.disk_usage(folder).free)} free"


def _lack(folder: Path, found: str) -> Finding | None:
    free, files = shutil.disk_usage(folder).free, os.statvfs(folder)
    if free < NO_ROOM or (files.f_files and files.f_favail < MOST_NAMED):
        return problem(found, "Free up disk space: the server cannot write.")
    if free < LITTLE_ROOM:
        return warning(found, "Free up disk space; `dragoman db vacuum` reclaims that of deleted rows.")
    if files.f_files and files.f_favail < FEW_FILES:
        return warning(f"{found}, room for {files.f_favail} more files", "Delete files, or enlarge the file system.")
    return None


def file_system(path: Path) -> str:
    """The kind of file system that a path lies on; empty where the system does not say."""
    real = path.resolve()
    mounts = [one for one in psutil.disk_partitions(all=True) if real.is_relative_to(one.mountpoint)]
    return max(mounts, key=lambda one: len(one.mountpoint)).fstype if mounts else ""


def server(subject: Subject) -> Findings:
    """The server that holds the lock of the data directory, if one runs. The lock itself is not tried."""
    lock = subject.settings.data_dir / LOCK
    if not lock.exists():
        return ok("none has run here yet")
    if not LOCKS.exists():
        return skipped(f"{LOCKS} is not there, so it is unknown whether a server is running")
    inode = lock.stat().st_ino
    for line in LOCKS.read_text().splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            subject.server = int(words[4]) if words[4].isdigit() else 0
            return running_server(subject.settings.data_dir, subject.server)
    return ok("none runs")


def running_server(data_dir: Path, process: int) -> Finding:
    """The process, and what has held its event loop, if something has."""
    runs = f"one runs (process {process})" if process else "one runs"
    if (held := held_loop(data_dir, process)) is None:
        return ok(runs)
    times = f"{held.times} time{'s' * (held.times != 1)}, at most {held.longest_s * 1000:.0f} ms of CPU"
    found = f"{runs}; its event loop was held {times}: {held.where}"
    if held.longest_s < LONG_HELD_S:
        return ok(found)
    return warning(found, "All streams stood still meanwhile: report this as a bug, with what the server did then.")


def permissions(subject: Subject) -> Findings:
    """Files with secrets that other accounts can read or change."""
    data, private = subject.settings.data_dir, list(_private_files(subject))
    open_to_others = [path for path in private if _mode(path) & OTHER_ACCOUNTS]
    findings: list[Finding] = []
    for path in open_to_others[:MOST_NAMED]:
        found = f"{path} has mode {_mode(path):04o}: other accounts may use it"
        if path.is_relative_to(data):
            findings.append(warning(found, "The server's next start removes their rights."))
        else:
            findings.append(problem(found, f"chmod 600 {path}"))
    if len(open_to_others) > MOST_NAMED:
        findings.append(warning(f"{len(open_to_others) - MOST_NAMED} more such files", f"chmod -R go-rwx {data}"))
    return findings or ok(f"{len(private)} private files and folders, none open to other accounts")


def _private_files(subject: Subject) -> Iterator[Path]:
    settings, loaded = subject.settings, subject.loaded
    for pattern in OURS:
        yield from settings.data_dir.glob(pattern)
    yield from filter(Path.exists, key_files(settings.endpoints).values())
    file = loaded.config_file if loaded else None
    if file and any(loaded and loaded.origins.get(name) == f"file {file}" for name in SECRETS):
        yield file


SECRETS = ("model_key", "search_key", "memory_embeddings_key", "model_hub_token")


def _mode(path: Path) -> int:
    return 0 if path.is_symlink() else stat.S_IMODE(path.stat().st_mode)

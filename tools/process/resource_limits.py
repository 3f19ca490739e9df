"""Resource limits of one command, and the control groups and folders that are made for it while it runs.

A control group bounds its processes and its memory where this server may make one (version 1 or 2). Without one, and
not as root, the number of its processes is bounded by the kernel's count per user; its memory is not, but the kernel
ends it before anything else when memory runs out.

The commands of a principal share a group with the same bounds, so that many commands take no more than one may. Without
control groups that does not hold: processes are counted for all of the server's user, or for each box.
"""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tools.process.orphan_reaper import OF_PRINCIPAL, PREFIX, clear, clear_stale

_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

PIDS = 1024  # threads count: a parallel build or a browser fits, a fork bomb leaves the machine usable
MEMORY_BYTES = _MEMORY // 2  # the other half is for the server, its model and everything else
SCRATCH_BYTES = _MEMORY // 4  # /tmp of a box lies in memory, too
FILE_BYTES = 16 << 30  # one file: no runaway log fills a large disk; images and models fit

HOME = "home"  # in a command's temporary directory
OPENED_FD = 9  # every shell knows one digit
_TRY_S = 10.0
_DELEGATED = "cgroup.subtree_control"
# First in the line when memory runs out; no core dumps, they hold what was in memory. Never over a limit that is there.
_ALWAYS = ("echo 1000 2>/dev/null > /proc/self/oom_score_adj", "ulimit -c 0 2>/dev/null")


# The kernel's answers for a group that another process has removed: before its file was opened, and between that and
# the write (cgroup_kn_lock_live() in kernel/cgroup/cgroup.c).
_REMOVED = (errno.ENOENT, errno.ENODEV)
_ATTEMPTS = 20  # to make a group in one that other servers remove whenever it is empty


class Group(Struct, frozen=True):
    """A control group in which groups can be made, what is set in each, and what not every kernel knows."""

    folder: Path
    settings: tuple[tuple[str, int], ...]
    optional_settings: tuple[tuple[str, int], ...] = ()

    def of_principal(self, principal: str) -> Path:
        """The group around those of a principal. Other bounds, other group: another start may have left one."""
        return self.folder / f"{OF_PRINCIPAL}{sha256(f'{self.settings} {principal}'.encode()).hexdigest()[:16]}"

    def make(self, name: str, principal: str = "") -> Path:
        """A group; the principal's own, with the same bounds for all of them together, is around it. Raises OSError."""
        made = self.folder / name
        if principal:
            made = self.of_principal(principal) / name
        for _ in range(_ATTEMPTS):
            try:
                made.mkdir()
                break
            except OSError as error:  # the principal's first, or another server has just removed the empty one
                if not principal or error.errno not in _REMOVED:
                    raise
                self._make_around_unless_removed(made.parent)
        else:
            made.mkdir()
        self._bound(made)
        return made

    def _make_around_unless_removed(self, around: Path) -> None:
        try:
            self._make_around(around)
        except OSError as error:
            if error.errno not in _REMOVED:
                raise

    def _make_around(self, around: Path) -> None:
        with suppress(FileExistsError):
            around.mkdir()
            try:
                self._bound(around)
                if (around / _DELEGATED).exists():  # version 2: what the groups in it have to be bound by
                    (around / _DELEGATED).write_text("+pids +memory")
            except OSError:
                with suppress(FileNotFoundError):
                    around.rmdir()
                raise

    def _bound(self, group: Path) -> None:
        optional_settings = (optional for optional in self.optional_settings if (group / optional[0]).exists())
        for setting, value in (*self.settings, *optional_settings):
            (group / setting).write_text(str(value))


class ResourceLimits(Struct, frozen=True):
    """`groups` bound processes and memory. `scratch` is where a temporary directory is made for each command, with a
    home in it. `opened` is a file that the sandbox gets as number OPENED_FD.

    `bounded` says whether there is a bound at all: false for commands that run without a sandbox.
    """

    pids: int = PIDS
    memory_bytes: int = MEMORY_BYTES
    scratch_bytes: int = SCRATCH_BYTES
    file_bytes: int = FILE_BYTES
    groups: tuple[Group, ...] = ()
    scratch: Path | None = None
    opened: str = ""
    bounded: bool = False

    @property
    def places(self) -> tuple[str, ...]:
        """The folders in which something is made for each command."""
        return (*(str(group.folder) for group in self.groups), *((str(self.scratch),) if self.scratch else ()))

    def bounds(self, what: str) -> bool:
        """Return whether a group bounds `what`: pids or memory."""
        return any(name.startswith(f"{what}.") for group in self.groups for name, _ in group.settings)

    def begin(self, mark: str, *, opens: bool = True, principal: str = "") -> tuple[str, ...]:
        """Make the places of the command with this mark; the words to put in front of it. Raises OSError.

        Not `opens`: the caller passes `opened` itself.
        """
        if not self.bounded and not self.scratch:
            return ()
        try:
            bounds = (*_ALWAYS, f"ulimit -f {self.file_bytes // 512} 2>/dev/null") if self.bounded else ()
            file = f" {OPENED_FD}<{shlex.quote(self.opened)}" if self.opened and opens else ""
            steps = (*self._made(mark, principal), *bounds, f'exec "$@"{file}')
            return ("/bin/sh", "-c", " ; ".join(steps), "sh")
        except OSError:
            clear(self.places, mark)
            raise

    def _made(self, mark: str, principal: str) -> Iterator[str]:
        name = f"{PREFIX}{mark}"
        for group in self.groups:
            yield f"echo 0 > {shlex.quote(str(entrance(group.make(name, principal))))} || exit 125"
        if self.scratch:
            (self.scratch / name).mkdir(mode=0o700)
            (self.scratch / name / HOME).mkdir(mode=0o700)
            yield f"export HOME={shlex.quote(f'{self.scratch}/{name}/{HOME}')}"
            if self.bounded:
                yield f"export TMPDIR={shlex.quote(f'{self.scratch}/{name}')}"

    def describe(self) -> str:
        """Return a clause that describes the limits."""
        pids = f"at most {self.pids} processes" if self.bounds("pids") or os.getuid() else "any number of processes"
        memory = f"{self.memory_bytes >> 20} MB of memory" if self.bounds("memory") else "memory without a bound"
        return f"{pids}, {memory}, files of {self.file_bytes >> 20} MB, no core dumps"


NO_LIMITS = ResourceLimits()


def inner_process_limit(limits: ResourceLimits) -> tuple[str, ...]:
    """Words in front of a command inside a user namespace of its own, where the kernel counts its processes apart.

    For root it does not hold, and with a control group it is not needed.
    """
    if limits.bounds("pids") or os.getuid() == 0:
        return ()
    # Shells differ in the letter.
    either = f"ulimit -u {limits.pids} 2>/dev/null || ulimit -p {limits.pids} || exit 125"
    return ("/bin/sh", "-c", f'{either}; exec "$@"', "sh")


def find_limits(wanted: ResourceLimits = NO_LIMITS) -> ResourceLimits:
    """The limits of this machine, tried out by really starting something under them."""
    found = [next(filter(_works, groups), None) for groups in possible_groups(wanted)]
    limits = replace(wanted, groups=tuple(group for group in found if group), bounded=True)
    clear_stale(limits.places)
    return limits


def possible_groups(wanted: ResourceLimits, proc: Path = Path("/proc/self")) -> list[list[Group]]:
    """The groups that a command may need, and for each what may serve as it, the best first."""
    lines = [line.split(":", 2) for line in _read(proc / "cgroup")]
    mounts = list(_mounts(proc))
    apart = [
        [Group(folder, settings, optional_settings) for folder in _nested(settings[0][0], lines, mounts)]
        for settings, optional_settings in _version_1(wanted)
    ]
    return apart if any(apart) else [[Group(folder, *_version_2(wanted)) for folder in _unified(lines, mounts)]]


_Settings = tuple[tuple[str, int], ...]


def _version_1(wanted: ResourceLimits) -> tuple[tuple[_Settings, _Settings], ...]:
    """A hierarchy, and so a group, for each controller: what is set in it, and what not every kernel knows."""
    memory = wanted.memory_bytes
    swap = ("memory.memsw.limit_in_bytes", memory)
    return (((("pids.max", wanted.pids),), ()), ((("memory.limit_in_bytes", memory),), (swap,)))


def _version_2(wanted: ResourceLimits) -> tuple[_Settings, _Settings]:
    settings = (("pids.max", wanted.pids), ("memory.max", wanted.memory_bytes))
    return settings, (("memory.swap.max", 0), ("memory.oom.group", 1))


def _nested(setting: str, lines: list[list[str]], mounts: list[_Mount]) -> Iterator[Path]:
    """Version 1: groups nest below one's own."""
    what = setting.partition(".")[0]
    for _, controllers, path in lines:
        for mount in mounts:
            if mount.kind == "cgroup" and what in controllers.split(",") and what in mount.options:
                yield mount.seen(path)


def _unified(lines: list[list[str]], mounts: list[_Mount]) -> Iterator[Path]:
    """Version 2: groups can be made where the controllers are on for children, which is not where processes live."""
    for _, controllers, path in lines:
        for mount in mounts:
            if mount.kind == "cgroup2" and not controllers:
                own = mount.seen(path)
                for folder in (own, *own.parents):
                    on = " ".join(_read(folder / _DELEGATED)).split()
                    if folder.is_relative_to(mount.point) and {"pids", "memory"} <= set(on):
                        yield folder


def control_group_folders(proc: Path = Path("/proc/self")) -> Iterator[Path]:
    """Yield the folders for groups without a controller: the own group of version 2, else of pids or freezer."""
    lines = [line.split(":", 2) for line in _read(proc / "cgroup")]
    mounts = list(_mounts(proc))
    yield from (
        mount.seen(path) for _, names, path in lines for mount in mounts if mount.kind == "cgroup2" and not names
    )
    for setting in ("pids.max", "freezer.state"):
        yield from _nested(setting, lines, mounts)


class _Mount(Struct, frozen=True):
    kind: str
    root: str
    point: Path
    options: tuple[str, ...]

    def seen(self, path: str) -> Path:
        """Return the path of a group of the hierarchy; a container may see only a part of it."""
        inner = path.removeprefix(self.root) if self.root != "/" else path
        return self.point / inner.lstrip("/")


def _mounts(proc: Path) -> Iterator[_Mount]:
    for line in _read(proc / "mountinfo"):
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, *options = after.split()
        yield _Mount(kind, root, Path(point), tuple(options[-1].split(",")) if options else ())


def entrance(group: Path) -> Path:
    """Return the file that a process of one thread writes its id to. Version 1 admits a thread at once, but a process
    only after a grace period of the kernel (10 to 15 ms, more than all the rest of a start)."""
    return tasks if (tasks := group / "tasks").exists() else group / "cgroup.procs"


@cache
def _works(group: Group) -> bool:
    """Try a group, once per server process, as the sandboxes are: a machine does not change while a server runs."""
    return trial(ResourceLimits(groups=(group,), bounded=True), ["true"], env={}) is None


def trial(
    limits: ResourceLimits, argv: Sequence[str], *, env: Mapping[str, str], fds: Sequence[int] = ()
) -> str | None:
    """Start `argv` within `limits`; return the error, None when it works. Nothing is left of it."""
    mark = f"trial.{secrets.token_hex(8)}"
    try:
        subprocess.run(
            [*limits.begin(mark), *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(env),
            pass_fds=fds,
            timeout=_TRY_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        return str(error.stderr.decode(errors="replace").strip())
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        clear(limits.places, mark)
    return None


def _read(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []

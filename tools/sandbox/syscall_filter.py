"""The seccomp filter of the sandboxes: what neither namespaces nor Landlock restrict. Linux, x86-64 and ARM64."""

from __future__ import annotations

import os
import struct
from functools import cache
from typing import NamedTuple

_EPERM, _EACCES, _ENOSYS, _ENOTSUP = 1, 13, 38, 95
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NEW_NAMESPACES = 0x7E020000
_ALL = 0xFFFFFFFF
_SET_ID = 0o6000
_CREATES = 0o20000100  # O_CREAT, or a file without a name: only then there is a mode

# Refused calls: what Landlock does not see and a command has no need of. name: number on x86-64, on ARM64, the answer.
_REFUSED = {
    "add_key": (248, 217, _EPERM),
    "request_key": (249, 218, _EPERM),
    "keyctl": (250, 219, _EPERM),
    "bpf": (321, 280, _EPERM),
    "perf_event_open": (298, 241, _EPERM),
    "userfaultfd": (323, 282, _EPERM),
    "unshare": (272, 97, _EPERM),
    "setns": (308, 268, _EPERM),
    # Access to other processes. The box's first process is of the same user, and it holds the box together.
    "ptrace": (101, 117, _EPERM),
    "process_vm_readv": (310, 270, _EPERM),
    "process_vm_writev": (311, 271, _EPERM),
    "pidfd_getfd": (438, 438, _EPERM),
    "process_madvise": (440, 440, _EPERM),
    # Their arguments lie where no filter sees them. Programs fall back to what it does see.
    "clone3": (435, 435, _ENOSYS),
    "io_uring_setup": (425, 425, _ENOSYS),
    "openat2": (437, 437, _ENOSYS),  # it makes files with any mode
    # Memory, semaphores and queues that all processes of the user share.
    "shmget": (29, 194, _EPERM),
    "shmat": (30, 196, _EPERM),
    "shmctl": (31, 195, _EPERM),
    "semget": (64, 190, _EPERM),
    "semop": (65, 193, _EPERM),
    "semctl": (66, 191, _EPERM),
    "semtimedop": (220, 192, _EPERM),
    "msgget": (68, 186, _EPERM),
    "msgsnd": (69, 189, _EPERM),
    "msgrcv": (70, 188, _EPERM),
    "msgctl": (71, 187, _EPERM),
    "mq_open": (240, 180, _EPERM),
    # Rights to files of the user, anywhere: copying programs go on without.
    "setxattr": (188, 5, _ENOTSUP),
    "lsetxattr": (189, 6, _ENOTSUP),
    "fsetxattr": (190, 7, _ENOTSUP),
    "setxattrat": (463, 463, _ENOSYS),
}
# What a box with namespaces of its own lacks: keys are inherited across all of them; the others only widen the way in,
# or take the box apart from inside.
REFUSED_IN_NAMESPACES = (
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "openat2"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "process_madvise"),
)


class Allowed(NamedTuple):
    """A condition on an argument of a call: the bits that are checked, and their allowed values."""

    argument: int
    mask: int
    values: tuple[int, ...]


class Narrowed(NamedTuple):
    """A call that is allowed only if it meets one of the conditions. Number None: not on this processor."""

    numbers: tuple[int | None, int | None]
    conditions: tuple[Allowed, ...]
    answer: int = _EPERM


def _of_oneself(x86_64: int, arm64: int, argument: int = 0) -> Narrowed:
    """A call about a process, by its number: 0 is the one that calls."""
    return Narrowed((x86_64, arm64), (Allowed(argument, _ALL, (0,)),))


def _plain_mode(x86_64: int | None, arm64: int | None, argument: int, *more: Allowed) -> Narrowed:
    """A call with a mode, which may not make a file run as its owner or group."""
    return Narrowed((x86_64, arm64), (*more, Allowed(argument, _SET_ID, (0,))))


# A set-user-id file in the workspace would run with the owner's rights for every other account of the machine.
_MODES = (
    _plain_mode(90, None, 1),  # chmod
    _plain_mode(91, 52, 1),  # fchmod
    _plain_mode(268, 53, 2),  # fchmodat
    _plain_mode(452, 452, 2),  # fchmodat2
    _plain_mode(2, None, 2, Allowed(1, _CREATES, (0,))),  # open
    _plain_mode(257, 56, 3, Allowed(2, _CREATES, (0,))),  # openat
    _plain_mode(85, None, 1),  # creat
    _plain_mode(83, None, 1),  # mkdir
    _plain_mode(258, 34, 2),  # mkdirat
    _plain_mode(133, None, 1),  # mknod
    _plain_mode(259, 33, 2),  # mknodat
)
# Without a namespace of its own: new ones, and what else belongs to the same user.
_WITHOUT_NAMESPACES = (
    Narrowed((56, 220), (Allowed(0, _NEW_NAMESPACES, (0,)),)),  # clone
    _of_oneself(302, 261),  # prlimit64
    Narrowed((141, 140), (Allowed(0, _ALL, (0,)),)),  # setpriority, of a process ...
    _of_oneself(141, 140, 1),  # ... and that is oneself
    Narrowed((251, 30), (Allowed(0, _ALL, (1,)),)),  # ioprio_set, in the same way
    _of_oneself(251, 30, 1),
    _of_oneself(203, 122),  # sched_setaffinity
    _of_oneself(144, 119),  # sched_setscheduler
    _of_oneself(142, 118),  # sched_setparam
    _of_oneself(314, 274),  # sched_setattr
    _of_oneself(256, 238),  # migrate_pages
    _of_oneself(279, 239),  # move_pages
    # Streams and packets in order. A datagram could be sent to any socket of the machine.
    Narrowed((53, 199), (Allowed(1, 0xF, (1, 5)),), _EACCES),  # socketpair
)
# There no socket at all: Landlock sees neither UDP nor other protocols, nor the sockets of other programs.
_SOCKET = (41, 198)
# The sockets of programs. Others lead past namespaces (AF_VSOCK, to the hypervisor) or deep into the kernel (AF_ALG).
_FAMILIES = (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK)
_SOCKETS = Narrowed(_SOCKET, (Allowed(0, _ALL, _FAMILIES),), _EACCES)
# TIOCSTI types into a terminal, TIOCLINUX pastes into a console: into the command's own one at most, and with no use.
_IOCTL, _TYPED = (16, 29), (0x5412, 0x541C)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def filter_for_namespaces() -> str:
    """Return the filter of a sandbox with namespaces, as a file; empty where the processor is not supported."""
    if os.uname().machine not in _MACHINES:
        return ""
    column = _MACHINES[os.uname().machine][0]
    refused = [(_REFUSED[name][column], _REFUSED[name][2]) for name in REFUSED_IN_NAMESPACES]
    return _file(_program(refused, [*_MODES, _SOCKETS], column))


def filter_for_landlock() -> str:
    """Return the filter of a sandbox without namespaces."""
    column = _MACHINES[os.uname().machine][0]
    refused = [(row[column], row[2]) for row in _REFUSED.values()]
    refused.append((_SOCKET[column], _EACCES))
    return _file(_program(refused, [*_MODES, *_WITHOUT_NAMESPACES], column))


@cache
def _file(program: bytes) -> str:
    """A file in memory, which lives as long as this process."""
    file = os.memfd_create("filter")
    os.write(file, program)
    return f"/proc/{os.getpid()}/fd/{file}"


def _program(refused: list[tuple[int, int]], narrowed: list[Narrowed], column: int) -> bytes:
    """The system call filter, as the kernel reads it. Calls of another processor's numbering do not exist."""
    machine = _MACHINES[os.uname().machine][1]
    instructions = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), (0x06, 0, 0, _ERRNO | _ENOSYS)]
    instructions += [(0x20, 0, 0, 0), (0x35, 0, 1, 0x40000000), (0x06, 0, 0, _ERRNO | _ENOSYS)]
    for number, answer in refused:
        instructions += [(0x15, 0, 1, number), (0x06, 0, 0, _ERRNO | answer)]
    instructions += _without_values(_IOCTL[column], 1, _TYPED)
    for row in narrowed:
        instructions += _checked(row, row.numbers[column])
    instructions.append((0x06, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *one) for one in instructions)


def _without_values(number: int, argument: int, values: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Refuse this call with one of these values of an argument, of which the kernel reads 32 bits."""
    count = len(values)
    instructions = [(0x20, 0, 0, 0), (0x15, 0, count + 3, number), (0x20, 0, 0, 16 + 8 * argument)]
    instructions += [(0x15, count - at, 0, value) for at, value in enumerate(values)]
    return [*instructions, (0x05, 0, 0, 1), (0x06, 0, 0, _ERRNO | _EPERM)]


def _checked(row: Narrowed, number: int | None) -> list[tuple[int, int, int, int]]:
    """Refuse this call unless a condition is met; else go on, for a further row may narrow it further."""
    if number is None:
        return []
    left = sum(2 + len(condition.values) for condition in row.conditions)
    instructions = [(0x20, 0, 0, 0), (0x15, 0, left + 1, number)]
    for argument, mask, values in row.conditions:
        instructions += [(0x20, 0, 0, 16 + 8 * argument), (0x54, 0, 0, mask)]
        left -= 2 + len(values)
        instructions += [(0x15, left + len(values) - at, 0, value) for at, value in enumerate(values)]
    return [*instructions, (0x06, 0, 0, _ERRNO | row.answer)]

"""The launcher of the level `landlock`: shuts itself in, then becomes the command. Linux only, x86-64 and ARM64.

Run as a script, without `site` and with few imports, because every command pays for its start:
confine.py ABI NETWORK PIDS PYTHON SCRIPT READ... -- WORKSPACE PROGRAM
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

# Access rights to files, in the kernel's order. Those that later kernels added come last.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK, REFER, TRUNCATE, IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _CLOSE_RANGE = 444, 445, 446, 436
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# What programs ask about the machine. Nothing that speaks of a process: its numbers are those of the whole machine.
_PROC = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "sys/kernel/osrelease", "sys/vm")
_NO_NEW_PRIVS, _SET_SECCOMP, _CAPBSET_DROP, _SET_SECUREBITS = 38, 22, 24, 28
_NO_ROOT_MAGIC = 0b1110_1111  # neither uid 0 nor a change of uid brings capabilities, and that is locked
_EPERM, _EACCES, _ENOSYS = 1, 13, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NEW_NAMESPACES = 0x7E020000

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
    # Their arguments lie where no filter sees them. Programs fall back to what it does see.
    "clone3": (435, 435, _ENOSYS),
    "io_uring_setup": (425, 425, _ENOSYS),
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
}
# What a box with namespaces of its own lacks: keys are inherited across all of them; the others only widen the way in.
REFUSED_IN_NAMESPACES = ("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup")
# Calls of which only some are allowed: numbers, the argument, a mask for it, its allowed values, the answer otherwise.
_NARROWED = {
    "clone": ((56, 220), 0, _NEW_NAMESPACES, (0,), _EPERM),
    "prlimit64": ((302, 261), 0, 0xFFFFFFFF, (0,), _EPERM),  # the server's own limits are of the same user
    # Streams and packets in order. A datagram could be sent to any socket of the machine.
    "socketpair": ((53, 199), 1, 0xF, (1, 5), _EACCES),
}
# Without network no socket at all: Landlock sees neither UDP nor other protocols, nor the sockets of other programs.
_SOCKET = (41, 198)
# The sockets of programs. Others lead past namespaces (AF_VSOCK, to the hypervisor) or deep into the kernel (AF_ALG).
_FAMILIES = (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_libc = ctypes.CDLL(None, use_errno=True)


def supported() -> int:
    """The version of this kernel's Landlock; 0 where there is none, or where no filter is known for the processor."""
    if sys.platform != "linux" or os.uname().machine not in _MACHINES:
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _prctl(option: int, *arguments: object) -> bool:
    padded = [*arguments, *[ctypes.c_ulong(0)] * (4 - len(arguments))]
    return int(_libc.prctl(option, *padded)) == 0


def restrict_files(abi: int, *, network: bool, readable: list[str], writable: list[str]) -> None:
    """From here on only these can be opened. Raises OSError."""
    handled = {3: TRUNCATE * 2 - 1, 4: TRUNCATE * 2 - 1}.get(abi, IOCTL_DEV * 2 - 1)
    ports = 0b11 if abi >= 4 and not network else 0  # TCP, to bind and to connect
    scoped = 0b11 if abi >= 6 else 0  # abstract sockets, and signals
    attributes = struct.pack("=QQQ", handled, ports, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    everything = handled & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV)
    rules = [(path, READ) for path in readable] + [(path, everything) for path in writable]
    rules += [(path, READ_FILE | WRITE_FILE | TRUNCATE) for path in _DEVICES]
    rules += [(f"/proc/{name}", READ_FILE | READ_DIR) for name in _PROC]
    for path, rights in rules:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        allowed = rights if os.path.isdir(path) else rights & OF_FILES  # noqa: PTH112
        _call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, opened), 0)
        os.close(opened)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def drop_capabilities() -> None:
    """None remain, and none come back. Raises OSError."""
    for capability in range(64):
        _prctl(_CAPBSET_DROP, ctypes.c_ulong(capability))
    _prctl(_SET_SECUREBITS, ctypes.c_ulong(_NO_ROOT_MAGIC))
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    if _libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities could not be dropped")


def filter_for_namespaces() -> bytes:
    """The filter of a box that has namespaces of its own; empty where none is known for the processor."""
    if os.uname().machine not in _MACHINES:
        return b""
    column = _MACHINES[os.uname().machine][0]
    refused = [(_REFUSED[name][column], _REFUSED[name][2]) for name in REFUSED_IN_NAMESPACES]
    return _program(refused, [(_SOCKET[column], 0, 0xFFFFFFFF, _FAMILIES, _EACCES)])


def filter_for_landlock(*, network: bool) -> bytes:
    """The filter of what has none."""
    column = _MACHINES[os.uname().machine][0]
    refused = [(row[column], row[2]) for row in _REFUSED.values()]
    narrowed = [(row[0][column], *row[1:]) for row in _NARROWED.values()]
    if network:
        narrowed.append((_SOCKET[column], 0, 0xFFFFFFFF, _FAMILIES, _EACCES))
    else:
        refused.append((_SOCKET[column], _EACCES))
    return _program(refused, narrowed)


def _program(refused: list[tuple[int, int]], narrowed: list[tuple[int, int, int, tuple[int, ...], int]]) -> bytes:
    """The system call filter, as the kernel reads it. Calls of another processor's numbering do not exist."""
    machine = _MACHINES[os.uname().machine][1]
    instructions = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), (0x06, 0, 0, _ERRNO | _ENOSYS)]
    instructions += [(0x20, 0, 0, 0), (0x35, 0, 1, 0x40000000), (0x06, 0, 0, _ERRNO | _ENOSYS)]
    for number, answer in refused:
        instructions += [(0x15, 0, 1, number), (0x06, 0, 0, _ERRNO | answer)]
    for number, argument, mask, values, answer in narrowed:
        instructions += [(0x15, 0, len(values) + 4, number), (0x20, 0, 0, 16 + 8 * argument), (0x54, 0, 0, mask)]
        instructions += [(0x15, len(values) - at, 0, value) for at, value in enumerate(values)]
        instructions += [(0x06, 0, 0, _ERRNO | answer), (0x06, 0, 0, _ALLOW)]
    instructions.append((0x06, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *one) for one in instructions)


def filter_calls(program: bytes) -> None:
    """Raises OSError."""
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    if not _prctl(_SET_SECCOMP, ctypes.c_ulong(2), described):
        raise OSError(ctypes.get_errno(), "the system call filter was refused")


def bound_processes(most: int) -> None:
    """At most so many more than the user has now: the kernel counts them per user."""
    import resource  # only where no control group does it

    mine = 0
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                mine += len(os.listdir(f"/proc/{entry.name}/task"))  # noqa: PTH208
        except OSError:
            continue
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    limit = mine + most if hard == resource.RLIM_INFINITY else min(mine + most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


def keep_script(script: int) -> None:
    """Nothing stays open but the script, as a copy in memory: its file is one of those that cannot be opened."""
    copy = os.memfd_create("script", 0)
    while block := os.read(script, 1 << 20):
        os.write(copy, block)
    os.lseek(copy, 0, os.SEEK_SET)
    os.dup2(copy, script)
    if script > 3:
        _call(_CLOSE_RANGE, ctypes.c_uint(3), ctypes.c_uint(script - 1), 0)
    _call(_CLOSE_RANGE, ctypes.c_uint(script + 1), ctypes.c_uint(0xFFFFFFFF), 0)


def main(arguments: list[str]) -> None:
    """Become the command."""
    end = arguments.index("--")
    abi, network, pids, python, script, *readable = arguments[:end]
    workspace, *program = arguments[end + 1 :]
    scratch = os.environ["TMPDIR"]
    keep_script(int(script))
    os.mkdir(f"{scratch}/.bin")  # noqa: PTH102
    for name in ("python", "python3"):
        os.symlink(python, f"{scratch}/.bin/{name}")  # noqa: PTH211
    os.environ["PATH"] += f":{scratch}/.bin"  # last, for where the system has no such name
    if int(pids):
        bound_processes(int(pids))
    drop_capabilities()
    if not _prctl(_NO_NEW_PRIVS, ctypes.c_ulong(1)):
        raise OSError(ctypes.get_errno(), "new privileges could not be ruled out")
    restrict_files(int(abi), network=network == "1", readable=readable, writable=[workspace, scratch])
    filter_calls(filter_for_landlock(network=network == "1"))
    os.execv(_found(program[0]), program)


def _found(program: str) -> str:
    """Where a program is. `os.execvp` imports a module to look, and none can be read any more."""
    for folder in os.environ["PATH"].split(":"):
        if os.access(path := os.path.join(folder, program), os.X_OK):  # noqa: PTH118
            return path
    return program


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        print(f"The sandbox could not be set up: {error}.", file=sys.stderr)
        sys.exit(125)

"""The launcher of the level `landlock`: shuts itself in, then becomes the command. Linux only, x86-64 and ARM64.

Run as a script, without `site` and with few imports, because every command pays for its start:
landlock_exec.py ABI PIDS PYTHON SCRIPT READ... -- WORKSPACE PROGRAM
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
# Files about the machine that programs read. None about processes: their ids are those of the whole machine.
_PROC = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "sys/kernel/osrelease", "sys/vm")
_NO_NEW_PRIVS, _SET_SECCOMP, _CAPBSET_DROP, _SET_SECUREBITS = 38, 22, 24, 28
_NO_ROOT_MAGIC = 0b1110_1111  # neither uid 0 nor a change of uid brings capabilities, and that is locked
_OPENED_FD = 9  # as in resource_limits
_MACHINES = ("x86_64", "aarch64")

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


def restrict_files(abi: int, *, readable: list[str], writable: list[str]) -> None:
    """Allow only these files to be opened from here on. Raises OSError."""
    handled = {3: TRUNCATE * 2 - 1, 4: TRUNCATE * 2 - 1}.get(abi, IOCTL_DEV * 2 - 1)
    ports = 0b11 if abi >= 4 else 0  # TCP, to bind and to connect
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
    """Drop all capabilities for good. Raises OSError."""
    for capability in range(64):
        _prctl(_CAPBSET_DROP, ctypes.c_ulong(capability))
    _prctl(_SET_SECUREBITS, ctypes.c_ulong(_NO_ROOT_MAGIC))
    header = struct.pack("=Ii", 0x20080522, 0)
    nothing = bytes(24)
    if _libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities could not be dropped")


def filter_calls(program: bytes) -> None:
    """Raises OSError."""
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    if not _prctl(_SET_SECCOMP, ctypes.c_ulong(2), described):
        raise OSError(ctypes.get_errno(), "the system call filter was refused")


def bound_processes(most: int) -> None:
    """Limit processes to so many more than the user has now: the kernel counts them per user."""
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
    """Close everything but the script, copied into memory: its file cannot be opened any more."""
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
    abi, pids, python, script, *readable = arguments[:end]
    workspace, *program = arguments[end + 1 :]
    scratch = os.environ["TMPDIR"]
    calls = os.read(_OPENED_FD, 1 << 16)
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
    restrict_files(int(abi), readable=readable, writable=[workspace, scratch])
    filter_calls(calls)
    os.execv(_found(program[0]), program)


def _found(program: str) -> str:
    """Find a program. `os.execvp` would import a module for that, and none can be read any more."""
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

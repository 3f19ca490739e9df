"""What attacks on the sandbox are made of: a script, and where it works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Circumstances.
ALWAYS = "always"
LANDLOCK = "landlock"
OLD_LANDLOCK = "landlock-old"
ROOT = "root"
NO_PIDS_GROUP_AS_ROOT = "no pids group, as root"
NO_PIDS_GROUP_IN_LANDLOCK = "no pids group, in landlock"
NO_MEMORY_GROUP = "no memory group"


@dataclass(frozen=True, slots=True)
class Attack:
    """A script of bash, with words in braces that the server fills in."""

    name: str
    script: str
    open: Mapping[str, str] = field(default_factory=dict)
    in_terminal: bool = False


def python(code: str) -> str:
    """A script of Python with what most of the attacks need."""
    begin = (
        "import ctypes, fcntl, os, resource, signal, socket, sys, termios\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def done(got=True):\n    if got: print('ESCA' + 'PED')\n"
    )
    return f"python3 - <<'END_OF_CODE'\n{begin}{code}\nEND_OF_CODE"


def says(command: str) -> str:
    return f"{command} && echo ESCA''PED"


def call(numbers: str, *arguments: str) -> str:
    """A system call by its numbers on x86-64 and ARM64, which must not succeed."""
    which = f"({numbers})[os.uname().machine == 'aarch64']"
    return python(f"done(libc.syscall({', '.join([which, *arguments])}) >= 0)")

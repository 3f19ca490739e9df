"""What to start: the words, the whole environment, and what it may take of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.limits import NO_LIMITS, Limits

Program = Literal["bash", "python3"]

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Command:
    """What to start. `env` is the whole environment. `fds` stay open in the child.

    `wrapped`: the first process is a sandbox that takes everything down at once when it is signalled, so only
    what runs inside it is asked to end. `limits`: whoever starts it makes its places before, and clears them after.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    fds: tuple[int, ...] = ()
    wrapped: bool = False
    limits: Limits = NO_LIMITS


def environment(workspace: Path, program: Program) -> dict[str, str]:
    """The whole environment of a command: built here, so that none of the server's secrets can be in it."""
    built = {
        "PATH": PATH,
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

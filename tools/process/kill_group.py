"""A control group without limits: its processes can be killed whatever they did to hide.

A process leaves its parent by forking twice, its session and process group by `setsid`, and its mark by clearing its
environment; it cannot leave a control group that it may not write to. Where no group can be made, none is used.
"""

from __future__ import annotations

import secrets
import shlex
import subprocess
from functools import cache
from pathlib import Path

from msgspec import Struct

from tools.process.orphan_reaper import PREFIX, clear
from tools.process.resource_limits import control_group_folders, entrance

_TRY_S = 10.0


class KillGroups(Struct, frozen=True):
    """Makes groups in `folder`; None where that is not possible."""

    folder: Path | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """The folders that the orphan reaper clears."""
        return (str(self.folder),) if self.folder else ()

    def begin(self, mark: str) -> tuple[str, ...]:
        """Make the group of this mark; return the words in front of a command, which keeps its process id."""
        if self.folder is None:
            return ()
        group = self.folder / f"{PREFIX}{mark}"
        try:
            group.mkdir()
        except OSError:  # too many groups, for example; the other ways to end a process still work
            return ()
        return ("/bin/sh", "-c", f'echo 0 2>/dev/null > {shlex.quote(str(entrance(group)))}; exec "$@"', "sh")

    def end(self, mark: str) -> None:
        """Kill everything in the group and remove it. Blocks: call it in a thread."""
        clear(self.places, mark)


@cache
def find_kill_groups() -> KillGroups:
    """Find the first folder that works. Blocks: call it in a thread."""
    return next(filter(_works, map(KillGroups, control_group_folders())), KillGroups())


def _works(groups: KillGroups) -> bool:
    assert groups.folder
    name = f"trial.{secrets.token_hex(8)}"
    prefix = groups.begin(name)
    try:
        if not prefix:
            return False
        seen = 'grep -q "/$0" /proc/self/cgroup'
        words = (*prefix, "/bin/sh", "-c", seen, f"{PREFIX}{name}")
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_S, check=True)
        return True
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        groups.end(name)

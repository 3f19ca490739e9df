"""The command of the owner's by which a file of the workspace runs on their machine, as they usually work there.

Some files run or are obeyed unasked (`owner_run_paths`), and the file tools ask before they write them. The files of
this table run when the owner starts a usual command, such as `make`. A question before each write would be asked in
every project, so the person learns of them at the end of the run that has changed them.

Not in it: a Dockerfile, whose commands run in a container; scripts and tests, which the owner starts by their names;
lock files, which name packages by their digests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from tools.base.patterns import lazy_pattern
from tools.sandbox.owner_run_paths import PLACES, folded, owner_run_rule


class CommandFiles(Struct, frozen=True):
    """Names of files, as patterns in lower case, and the command that runs them, if they hold a text."""

    command: str
    names: tuple[str, ...]
    holds: bytes = b""


COMMAND_FILES = (
    # Tasks, of which the first or a named one runs.
    CommandFiles("make", ("makefile", "gnumakefile", "*.mk")),
    CommandFiles("just", ("justfile", ".justfile")),
    CommandFiles("task", ("taskfile.y*ml",)),
    CommandFiles("rake", ("rakefile", "*.rake")),
    CommandFiles("tox", ("tox.ini",)),
    CommandFiles("nox", ("noxfile.py",)),
    # Some of its scripts run when a package is installed. Without scripts it only names packages.
    CommandFiles("npm install", ("package.json",), b'"scripts"'),
    # Tools of Node load their settings as programs.
    CommandFiles("npm run", ("*.config.?s", "*.config.?js", "*.config.?ts", ".*rc.?s", ".*rc.?js")),
    # pip runs the first, or the build backend that the other names, from the workspace if it says so.
    CommandFiles("pip install", ("setup.py", "pyproject.toml")),
    # Imported before the owner's own code, and unnoticed.
    CommandFiles("pytest", ("conftest.py",)),
    CommandFiles("python", ("sitecustomize.py", "usercustomize.py", "*.pth")),
    # A build evaluates them, or compiles and runs them.
    CommandFiles("cargo build", ("build.rs",)),
    CommandFiles("gradle", ("*.gradle", "*.gradle.kts", "gradlew", "gradlew.bat", "gradle-wrapper.properties")),
    CommandFiles("mvn", ("pom.xml", "mvnw", "mvnw.cmd", "maven-wrapper.properties")),
    CommandFiles("cmake", ("cmakelists.txt", "*.cmake")),
    CommandFiles("meson", ("meson.build",)),
    CommandFiles("./configure", ("configure",)),
    CommandFiles("nix", ("flake.nix", "shell.nix", "default.nix")),
    CommandFiles("bundle", ("gemfile", "*.gemspec")),
    # Its containers may mount any folder of the machine, and a machine of Vagrant is set up by a program on the host.
    CommandFiles("docker compose up", ("compose.y*ml", "docker-compose*.y*ml")),
    CommandFiles("vagrant", ("vagrantfile",)),
)


def _anywhere(patterns: Sequence[str]) -> str:
    """A regular expression for paths with one of these in them; it may find more."""
    texts = (re.escape(pattern).replace(r"\*", "[^/]*").replace(r"\?", "[^/]") for pattern in patterns)
    return f"(?:^|/)(?:{'|'.join(texts)})[. ]*(?:/|$)"


_PATTERNS = (*(place.name for place in PLACES), *(name for row in COMMAND_FILES for name in row.names))
_MAYBE = lazy_pattern(_anywhere(_PATTERNS), re.IGNORECASE)


def owner_command(path: str) -> CommandFiles | None:
    """Return the command that runs a file at this path below the workspace, as a row of its own; None if none does."""
    if not _MAYBE.search(path):  # nearly all, of which there may be thousands
        return None
    parts = path.split("/")
    if rule := owner_run_rule(parts):
        return CommandFiles(rule.command, (rule.name,))
    name = folded(parts[-1])
    return next((row for row in COMMAND_FILES if any(fnmatchcase(name, one) for one in row.names)), None)

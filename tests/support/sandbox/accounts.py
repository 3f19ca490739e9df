"""A second account of this machine, for tests of what accounts may do to each other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

OTHER = 65534  # an account that every system has
LIMIT_S = 30


def needs_root() -> None:
    """Only root can act for another account; elsewhere the test is skipped and says so."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to act for a second account")


def as_other(*command: str) -> subprocess.CompletedProcess[str]:
    """A command of the other account, until it ends."""
    needs_root()
    return subprocess.run(
        command,
        user=OTHER,
        group=OTHER,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@contextmanager
def server_in_namespace(folder: Path) -> Iterator[list[str]]:
    """The banner of a real server in a user namespace, where all accounts but its own look alike."""
    unshare = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False, timeout=30).returncode:
        pytest.skip("needs user namespaces (unshare --user)")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "DRAGOMAN_DATA_DIR": str(folder / "data"),
        "DRAGOMAN_WORKSPACE": str(folder / "work"),
    }
    command = [*unshare, sys.executable, "-m", "routes", "serve", "--port", "0", "--model-url", "scripted:"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield [server.stdout.readline() for _ in range(4)]
        finally:
            server.terminate()


NOBODY = 65534
TIME_LIMIT_S = 110
LIBRARIES = os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))])


def launched(words: list[str], uid: int, secret: str) -> subprocess.CompletedProcess[str]:
    """A process whose environment has everything that no command may have."""
    environment = {"PATH": os.defpath, "SECRET_OF_THE_SERVER": secret, "BASH_ENV": "/dev/null", "PYTHONPATH": LIBRARIES}
    shift: dict[str, Any] = {} if uid == os.getuid() else {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.run(
        words, cwd="/tmp", env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False, **shift
    )


@cache
def python_of_nobody() -> str | None:
    """One that nobody may start and that has the libraries."""
    if os.getuid() != 0:
        return None
    for python in filter(None, (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin"))):
        try:
            if launched([python, "-c", "import tests.support.sandbox.escape_server"], NOBODY, "").returncode == 0:
                return python
        except PermissionError:
            continue
    return None

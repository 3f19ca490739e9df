"""A second account of this machine, for tests of what accounts may do to each other."""

from __future__ import annotations

import os
import subprocess

import pytest

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

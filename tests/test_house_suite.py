"""The suite itself: workers can share it only if each of them collects the same tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import only_at_night

ROOT = Path(__file__).parent.parent
LIMIT_S = 110


def collected(files: list[str]) -> set[str]:
    """The ids of all tests in these files, as another process sees them, at another time and with other hashes."""
    command = (sys.executable, "-m", "pytest", "--collect-only", "--quiet")
    environ = {**os.environ, "PYTHONHASHSEED": "1", "PYTEST_ADDOPTS": ""}
    ended = subprocess.run([*command, *files], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return set(ended.stdout.splitlines())


@only_at_night  # by day the workers would differ, and say so
def test_all_tests_have_the_same_ids_in_every_process(request: pytest.FixtureRequest) -> None:
    here = {item.nodeid for item in request.session.items}
    files = sorted({nodeid.partition("::")[0] for nodeid in here})
    changing = here - collected(files)
    assert not changing, f"Give these parameters fixed ids: {sorted(changing)[:20]}"

"""The suite itself: workers can share it only if each of them collects the same tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.nightly import only_at_night

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


SKIPPED = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_skipped(number):
    pytest.skip("There is no x: run `make x`." if number else "There is no y.")
"""


def test_what_was_skipped_is_said_last(tmp_path: Path) -> None:
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", str(tmp_path))
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    *_, head, first, second, _ = ended.stdout.splitlines()
    assert " 3 tests skipped" in head
    assert [first.strip(), second.strip()] == ["2  There is no x: run `make x`.", "1  There is no y."]


NPM = """#!/bin/sh
echo tried >> {folder}/tries
[ $(wc -l < {folder}/tries) -gt 1 ] && mkdir node_modules && touch node_modules/.package-lock.json
exit {code}
"""


@pytest.mark.parametrize("code", [0, 1])  # it has ended with both when its "exit handler was never called"
def test_npm_is_tried_again(tmp_path: Path, code: int) -> None:
    npm, ready = tmp_path / "npm", tmp_path / "page" / ".ready"
    npm.write_text(NPM.format(folder=tmp_path, code=f"$([ -e node_modules ] && echo 0 || echo {code})"))
    npm.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ("make", f"PAGE={ready.parent}", str(ready))
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0 and ready.exists(), ended.stdout
    assert (tmp_path / "tries").read_text() == 2 * "tried\n"

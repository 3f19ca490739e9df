"""The tree of the last release, beside this one."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests import ROOT

# There is no tag yet: the newest commit whose schema is one version older than that of this tree.
LAST_RELEASE = "e86b0282"
FOLDER = ROOT / ".cache" / "fire"
FLOORS = ("app", "routes", "tools", "parsing")


def released(revision: str = LAST_RELEASE) -> tuple[Path, str]:
    """The folder of that revision, and why it is this tree where there is none."""
    folder = FOLDER / f"tree-{revision}"
    if not folder.exists():
        done = subprocess.run(["git", "archive", revision, *FLOORS], cwd=ROOT, capture_output=True, check=False)
        if done.returncode:
            return ROOT, f"git has no {revision} here ({done.stderr.decode().strip()}): both versions are this tree"
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(part := folder.with_suffix(".part"), filter="data")
        part.rename(folder)
    return folder, ""

"""What a checkpoint costs: looks at workspaces of 10 to 100,000 files, and an undo, beside a shadow git."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from app.checkpoints.call_changes import CallChanges
from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.undo import undo_run
from app.checkpoints.workspace_scans import RunOwner
from app.storage.checkpoints import CheckpointStore
from app.storage.database import CHECKPOINTS
from app.workspace.scanner import ScanLimits

SIZES = (10, 1_000, 10_000, 100_000)
LIMITS = ScanLimits(files=200_000, seconds=600)
FILE = 1_000  # bytes
PER_FOLDER = 100
CHANGED = 10  # files that a call changes
ROUNDS = 5


def fill(work: Path, files: int) -> None:
    for number in range(files):
        folder = work / f"folder{number // PER_FOLDER}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.txt").write_bytes(os.urandom(FILE // 2).hex().encode())


def change(work: Path, mark: int) -> None:
    for number in range(CHANGED):
        (work / f"folder{number // PER_FOLDER}" / f"file{number}.txt").write_text(f"changed {mark}")


def milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def by_store(folder: Path, work: Path) -> dict[str, float]:
    """The looks around calls, as a run takes them."""
    store = CheckpointStore(folder / CHECKPOINTS)
    checkpoints = Checkpoints(store, LIMITS, work)

    async def call(run: str, mark: int | None) -> float:
        async with CallChanges(work, checkpoints).around(RunOwner(run, "session", "ann"), "c1", []):
            return 0.0 if mark is None else milliseconds(lambda: change(work, mark))

    def around(run: str, mark: int | None = None) -> float:
        changing = 0.0

        def both() -> None:
            nonlocal changing
            changing = asyncio.run(call(run, mark))

        return milliseconds(both) - changing

    first = around("first")
    still = [around(f"still{number}") for number in range(ROUNDS)]
    changing = [around(f"run{number}", number) for number in range(ROUNDS)]
    undo = milliseconds(lambda: asyncio.run(undo_run(checkpoints, f"run{ROUNDS - 1}", "ann")))
    size = sum(path.stat().st_size for path in folder.glob(f"{CHECKPOINTS}*"))
    store.close()
    return {
        "first call": first,
        "a call": statistics.median(still),
        f"a call that changes {CHANGED} files": statistics.median(changing),
        "an undo of it": undo,
        "MB on disk": size / 1e6,
    }


def by_git(folder: Path, work: Path) -> dict[str, float]:
    """The same in a repository beside the workspace: one tree before each call and one after it."""
    if not shutil.which("git"):
        return {}
    environ = {"PATH": os.environ["PATH"], "GIT_DIR": str(folder / "git"), "GIT_WORK_TREE": str(work)}
    environ |= {"GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}

    def git(*words: str) -> None:
        subprocess.run(["git", *words], env=environ, cwd=work, check=True, stdout=subprocess.DEVNULL)

    def look() -> None:
        git("add", "--all", "--force", ".")
        git("write-tree")

    git("init", "-q")

    def around(mark: int | None = None) -> float:
        before = milliseconds(look)
        if mark is not None:
            change(work, mark)
        return before + milliseconds(look)

    first = around()
    still = [around() for _ in range(ROUNDS)]
    changing = [around(1000 + number) for number in range(ROUNDS)]
    size = sum(path.stat().st_size for path in (folder / "git").rglob("*") if path.is_file())
    return {
        "first call": first,
        "a call": statistics.median(still),
        f"a call that changes {CHANGED} files": statistics.median(changing),
        "MB on disk": size / 1e6,
    }


def main() -> None:
    for files in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            fill(folder / "work", files)
            subprocess.run(["sync", "-f", name], check=True)
            for name, measure in (("checkpoints", by_store), ("git beside it", by_git)):
                for what, value in measure(folder, folder / "work").items():
                    unit = "MB" if what.startswith("MB") else "ms"
                    print(f"{files:6,} files  {name:14}  {what:28} {value:9,.1f} {unit}")


if __name__ == "__main__":
    main()

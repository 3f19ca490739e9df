"""`python -m tests.tasks.record_runs [NAME ...]`: record golden event logs anew. Then read `git diff fixtures/runs`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.golden.playing import RUNS, play
from tests.support.golden.stories import STORIES


def main(names: Sequence[str]) -> None:
    RUNS.mkdir(exist_ok=True)
    for name in names or STORIES:
        with tempfile.TemporaryDirectory() as folder:
            (RUNS / f"{name}.sse").write_text(asyncio.run(play(STORIES[name], Path(folder))))
    if not names:
        for path in RUNS.glob("*.sse"):
            if path.stem not in STORIES:
                path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])

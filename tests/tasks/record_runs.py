"""`python -m tests.tasks.record_runs [NAME ...]`: record golden event logs anew. Then read `git diff fixtures/runs`.

The recording of each story's last run is written beside it, as `dragoman export-test` writes one.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from app.replay.recording import Recording, written
from tests.support.golden.playing import RECORDINGS, RUNS, play
from tests.support.golden.stories import STORIES


def main(names: Sequence[str]) -> None:
    RUNS.mkdir(exist_ok=True)
    RECORDINGS.mkdir(exist_ok=True)
    for name in names or STORIES:
        with tempfile.TemporaryDirectory() as folder:
            recordings = list[Recording]()
            (RUNS / f"{name}.sse").write_text(asyncio.run(play(STORIES[name], Path(folder), recordings)))
            (RECORDINGS / f"{name}.json").write_text(written(recordings[0]))
    if not names:
        for path in (*RUNS.glob("*.sse"), *RECORDINGS.glob("*.json")):
            if path.stem not in STORIES:
                path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])

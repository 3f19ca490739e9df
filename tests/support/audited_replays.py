"""`python -m tests.support.audited_replays FILE ...`: replay recordings, and write what that has reached as JSON.

Audit events tell of files that are opened, of sockets, processes and changes; looks at files have none, so that the
functions for these are wrapped. Python may read its own files, since some modules are imported late, and time zones.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.replay.checking import Outcome, checked
from app.replay.recording import read_file
from routes.lanes.recorded_frames import frames_of
from tests import ROOT

REACHING = ("socket.", "subprocess.", "os.", "shutil.", "tempfile.", "sqlite3.", "fcntl.", "pty.", "glob.", "urllib.")
LOOKS = ("stat", "lstat", "readlink", "access", "statvfs")
OWN = (sys.prefix, sys.base_prefix, *(str(ROOT / floor) for floor in ("app", "parsing", "routes", "tools")))
MORE = ("/usr/share/zoneinfo", "__editable__")
reached = list[str]()


def note(event: str, place: object) -> None:
    if event.startswith(REACHING) or event == "open":
        text = os.fsdecode(place) if isinstance(place, str | bytes | os.PathLike) else repr(place)
        if event.startswith(("os.exec", "os.posix_spawn")) or not (text == str(ROOT) or text.startswith((*OWN, *MORE))):
            reached.append(f"{event} {text}")


def noted(name: str) -> Callable[..., Any]:
    before: Callable[..., Any] = getattr(os, name)

    def look(place: Any, *more: Any, **options: Any) -> Any:
        note(f"os.{name}", place)
        return before(place, *more, **options)

    return look


def main(files: list[str]) -> None:
    recordings = [(name, read_file(Path(name))) for name in files]
    sys.dont_write_bytecode = True  # of modules that are imported late: it is written to an open descriptor

    async def replay() -> list[Outcome]:
        return [await checked(one, name, frames_of) for name, one in recordings]

    with asyncio.Runner() as runner:
        runner.get_loop()  # which has a socket to wake it up
        for name in LOOKS:
            setattr(os, name, noted(name))
        sys.addaudithook(lambda event, args: note(event, args[0] if args else ""))
        outcomes = runner.run(replay())
        found = sorted(set(reached))
    print(json.dumps({"reached": found, "states": {one.name: [one.state, one.reason] for one in outcomes}}))


if __name__ == "__main__":
    main(sys.argv[1:])

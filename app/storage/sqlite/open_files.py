"""The files of an open database, which may be deleted or replaced: SQLite would go on writing to what was there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

LOOK_S = 0.5  # from one look to the next: three of them cost as much as a commit
ENDINGS = ("", "-wal", "-shm")


class OpenFiles:
    """`remember` them once they are open; `gone` names the first whose path does not lead to it any more."""

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._paths = [path.with_name(path.name + ending) for ending in ENDINGS]
        self._clock = clock
        self._opened: dict[Path, tuple[int, int]] = {}
        self._next_look = 0.0
        self._gone: Path | None = None

    @property
    def log_bytes(self) -> int:
        """The size of the write-ahead log."""
        return bytes_of(self._paths[1])

    @property
    def bytes(self) -> int:
        """The size of the database without its log."""
        return bytes_of(self._paths[0])

    def remember(self) -> None:
        self._opened = {path: found for path in self._paths if (found := _identity(path))}

    def gone(self, *, at_once: bool = False) -> Path | None:
        """Look again if it is time to; each time as long as one is gone, since it may be put back."""
        now = self._clock()
        if at_once or self._gone or now >= self._next_look:
            self._next_look = now + LOOK_S
            self._gone = next((path for path, opened in self._opened.items() if _identity(path) != opened), None)
        return self._gone


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

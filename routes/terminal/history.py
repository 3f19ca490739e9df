"""A history of what was typed at the prompt, over sessions: a file for this account alone, of bounded length.

A line of the file is one entry as JSON. An entry that begins with a space is not kept, as in a shell.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

from tools.base.texts import replace_file

MOST = 1_000  # entries that are offered
LONGEST = 10_000  # characters of an entry
MOST_BYTES = 2 << 20  # of the file, before it is written anew


def history_file(environ: Mapping[str, str]) -> Path:
    """The file in the directory for state (XDG base directories)."""
    state = environ.get("XDG_STATE_HOME") or ""
    home = Path(environ.get("HOME") or Path.home())
    folder = Path(state) if Path(state).is_absolute() else home / ".local" / "state"
    return folder / "dragoman" / "history"


class StoredHistory(History):
    """A history that survives. A file that cannot be read or written is done without."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._last = ""

    def load_history_strings(self) -> Iterable[str]:
        """The latest first, each once."""
        with suppress(OSError):
            if self._path.stat().st_size > MOST_BYTES:
                self._shorten()
        return list(dict.fromkeys(reversed(self._read())))[:MOST]

    def store_string(self, string: str) -> None:
        if string.startswith(" ") or not string.strip() or len(string) > LONGEST or string == self._last:
            return
        self._last = string
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            with os.fdopen(opened, "ab") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(json.dumps(string).encode() + b"\n")

    def _read(self) -> list[str]:
        entries = list[str]()
        with suppress(OSError):
            for line in self._path.read_bytes().splitlines():
                with suppress(ValueError, RecursionError):
                    entry = json.loads(line)
                    entries += [entry] if isinstance(entry, str) else []
        return entries

    def _shorten(self) -> None:
        """Keep the latest entries. Raises OSError."""
        replace_file(self._path, "".join(f"{json.dumps(entry)}\n" for entry in self._read()[-MOST:]))

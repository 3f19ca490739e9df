"""The open file of a script that is run in a box."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

LEAST = 64  # away from the numbers that the launchers give files under


@contextmanager
def script_file(script: bytes) -> Iterator[int]:
    """The number of a file without a name: a script may be longer than an argument, and nothing is left behind."""
    with tempfile.TemporaryFile() as file:
        file.write(script)
        file.seek(0)
        number = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, LEAST)
        try:
            yield number
        finally:
            os.close(number)

"""Locks among processes (flock): files that one of them holds, until it closes them or ends."""

from __future__ import annotations

import fcntl
from typing import IO, Any


def try_lock(file: int | IO[Any], how: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file without waiting; False if another process holds it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

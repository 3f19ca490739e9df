"""Stamps of files: equal ones mean that the file need not be read again.

Size and times are compared, and the inode, which is another one where a file took the place of another. The time of the
last change of its entry (`st_ctime_ns`) cannot be set by programs, so a write that restores the other times is noticed.
A write within one tick of the file system's clock leaves all of them as they are: see `is_settled`. So does a write to
a page of a mapped file that was written to before and is not on the disk yet: who must not miss it reads the file.
"""

from __future__ import annotations

import os
import time

TICK_NS = 20_000_000

Stamp = tuple[int, int, int, int]
"""Size, inode, time of the last write, time of the last change of the entry."""


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def is_settled(found: os.stat_result) -> bool:
    """Return False if a write from now on could leave the stamp as it is."""
    return max(found.st_mtime_ns, found.st_ctime_ns) < time.time_ns() - TICK_NS

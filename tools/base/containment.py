"""Containment of a path in a folder, whether through links, `..` or a mount of the folder elsewhere.

What a tool can write it can also replace: a link in the folder counts, wherever it leads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MOST_LINKS = 40  # in a row, as the kernel has it


def lies_in(path: Path, folder: Path) -> bool:
    """Return whether the path, or a link on its way, lies in the folder or is it. Neither needs to be there yet."""
    inside = _real(folder)
    identity = _identity(inside)
    for place in _places(Path.cwd() / path if not path.is_absolute() else path, MOST_LINKS):
        if place.is_relative_to(inside):
            return True
        if identity and identity in map(_identity, (place, *place.parents)):
            return True
    return False


def _places(path: Path, links: int) -> Iterator[Path]:
    """Yield the real path, and the location of each link on the way."""
    yield _real(path)
    for step in (path, *path.parents):
        if links and (target := _target(step)):
            here = _real(step.parent) / step.name
            yield here
            yield from _places(here.parent / target, links - 1)


def _target(path: Path) -> Path | None:
    """Return the target of a link. What this account may not look into, as a folder of root's PATH, has none for it."""
    try:
        return path.readlink()
    except OSError:
        return None


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # links in a circle lead nowhere
        return Path(os.path.abspath(path))  # noqa: PTH100


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

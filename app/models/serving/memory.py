"""Memory: the need of a model for the context asked for, and the amount that this process may still take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from app.models.serving.gguf import Header

MIB = 1 << 20
CacheType = Literal["f16", "q8_0", "q4_0"]
# Bytes of a number in the key-value cache; the quantised ones have a scale for each 32 numbers.
CELL_BYTES: dict[CacheType, float] = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
BATCH = 512  # tokens of a prompt that llama.cpp reads at a time
PROMPT_CACHE = 256 * MIB  # of conversations that have left their slot
PROCESS = 100 * MIB  # Python, llama.cpp's libraries, its HTTP server
PADDING = 256  # llama.cpp rounds contexts up to this many tokens
CGROUPS = Path("/sys/fs/cgroup")


class Estimate(Struct, frozen=True):
    """Bytes that a model needs at most: its weights, the key-value cache, and everything else."""

    weights: int
    cache: int
    working: int

    @property
    def bytes(self) -> int:
        return self.weights + self.cache + self.working

    def __str__(self) -> str:
        parts = f"{mib(self.weights)} weights, {mib(self.cache)} key-value cache, {mib(self.working)} working memory"
        return f"{mib(self.bytes)} ({parts})"


def estimate(header: Header, context: int, slots: int, cache_type: CacheType = "f16") -> Estimate:
    """Estimate the memory of a model with `slots` conversations of `context` tokens each."""
    tokens = _padded(context) * slots
    seen = min(tokens, (_padded(header.window) + BATCH) * slots) if header.window else 0
    cache = (header.cells * tokens + header.window_cells * (seen or tokens)) * CELL_BYTES[cache_type]
    # Between two layers a batch is held in 32 bit, a few times; scores of the whole vocabulary for one token of a slot.
    activations = BATCH * header.embedding * 4 * 24 + slots * header.vocabulary * 4 * 24
    return Estimate(header.bytes, int(cache), PROCESS + PROMPT_CACHE + activations)


def _padded(tokens: int) -> int:
    return -(-tokens // PADDING) * PADDING


def mib(count: int) -> str:
    """Return a size in words, with a comma in thousands: `1,234 MiB`."""
    return f"{max(0, count) / MIB:,.0f} MiB"


def available_memory(proc: Path = Path("/proc"), cgroups: Path = CGROUPS) -> int | None:
    """Return the bytes that can be taken now: the smallest of the machine's and of each control group that this process
    is in. None where the system does not say.
    """
    if sys.platform != "linux":
        return None
    free = [one for one in (_of_machine(proc), *_of_groups(proc, cgroups)) if one is not None]
    return max(0, min(free)) if free else None


def _of_machine(proc: Path) -> int | None:
    for line in _lines(proc / "meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


# The names of version 2 and of version 1: limit, usage, and the cached pages in memory.stat that can be given back.
FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _of_groups(proc: Path, root: Path) -> Iterator[int]:
    """Yield what is left in this process's control groups, up to the root; in a container, the root is its own."""
    for line in _lines(proc / "self" / "cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        group = top / path.strip("/")
        for folder in (group, *group.parents):
            yield from _left_in(folder)
            if folder == top:
                break


def _left_in(folder: Path) -> Iterator[int]:
    for limit, usage, cached in FILES:
        most, used = _number(folder / limit), _number(folder / usage)
        if most is not None and used is not None:
            rows = (line.split() for line in _lines(folder / "memory.stat"))
            reclaimable = next((int(row[1]) for row in rows if len(row) == 2 and row[0] == cached), 0)
            yield most - max(0, used - reclaimable)


def _number(file: Path) -> int | None:
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):
        return []

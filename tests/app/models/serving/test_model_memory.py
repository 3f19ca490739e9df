"""Memory of served models: what is needed, what is there, and what is advised if that is less."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.models.serving.catalogue import ServingOptions, check_memory, checked_row, estimate_of
from app.models.serving.gguf import Header
from app.models.serving.memory import BATCH, MIB, available_memory, estimate
from app.models.serving.refusals import TooLittleMemory
from app.storage.served_models import ServedModelRow
from tests.support.models.gguf_files import FIELDS, gguf, written

GIB = 1 << 30
BIG = {**FIELDS, "llama.block_count": 32, "llama.context_length": 32_768} | {
    "llama.attention.key_length": 128,
    "llama.attention.value_length": 128,
}


def file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def row(tmp_path: Path) -> ServedModelRow:
    """Takes 32 KiB of cache for each token: 256 MiB for 8192."""
    path = written(tmp_path / "big.gguf", gguf(BIG))
    return checked_row(path, ServingOptions(context=8192, slots=2), "root", tmp_path / "work")


def test_a_cache_grows_with_context_slots_and_type(row: ServedModelRow) -> None:
    assert estimate_of(row).cache == 512 * MIB
    assert estimate_of(replace(row, slots=1)).cache == 256 * MIB
    assert estimate_of(replace(row, context=4096)).cache == 256 * MIB
    assert estimate_of(replace(row, cache_type="q8_0")).cache == 272 * MIB
    assert estimate_of(replace(row, cache_type="q4_0")).cache == 144 * MIB


def test_layers_with_a_window_do_not_grow_beyond_it() -> None:
    header = Header("g", "gemma3", "", 32_768, True, GIB, cells=100, window_cells=1000, window=512)
    assert estimate(header, 8192, 1).cache == (100 * 8192 + 1000 * (512 + BATCH)) * 2
    assert estimate(header, 512, 1).cache == (100 + 1000) * 512 * 2


@pytest.mark.parametrize(
    ("mib", "advice"),
    [
        (2000, None),
        (
            700,
            ["needs 871 MiB", "700 MiB are available", "--context 4096", "--slots 1", "--cache-type q8_0", "--force"],
        ),
        (392, ["--context 512", "--force"]),
        (100, ["No context is small enough", "--force"]),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(row: ServedModelRow, mib: int, advice: list[str] | None) -> None:
    check_memory(replace(row, forced=True), 0)
    check_memory(row, None)
    if advice is None:
        return check_memory(row, mib * MIB)
    with pytest.raises(TooLittleMemory) as short:
        check_memory(row, mib * MIB)
    for words in advice:
        assert words in str(short.value)
    return None


def test_the_smallest_limit_counts(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    assert available_memory(proc, groups) is None
    file(proc / "meminfo", "MemTotal: 99 kB\nMemAvailable:    8388608 kB\n")
    assert available_memory(proc, groups) == 8 * GIB
    file(proc / "self" / "cgroup", "0::/a.slice/b\n")
    file(groups / "a.slice" / "memory.max", f"{4 * GIB}\n")
    file(groups / "a.slice" / "memory.current", f"{3 * GIB}\n")
    file(groups / "a.slice" / "memory.stat", f"anon 1\ninactive_file {GIB}\n")
    file(groups / "a.slice" / "b" / "memory.max", "max\n")
    file(groups / "a.slice" / "b" / "memory.current", "5\n")
    assert available_memory(proc, groups) == 2 * GIB  # cached files can be given back
    file(proc / "self" / "cgroup", "9:cpu:/z\n4:memory,hugetlb:/c\n0::/\n")
    file(groups / "memory" / "memory.limit_in_bytes", str(9223372036854771712))
    file(groups / "memory" / "memory.usage_in_bytes", "7")
    file(groups / "memory" / "c" / "memory.limit_in_bytes", str(3 * GIB))
    file(groups / "memory" / "c" / "memory.usage_in_bytes", str(GIB))
    file(groups / "memory" / "c" / "memory.stat", "nonsense\ntotal_inactive_file 0\n")
    assert available_memory(proc, groups) == 2 * GIB
    file(groups / "memory" / "c" / "memory.usage_in_bytes", str(5 * GIB))
    assert available_memory(proc, groups) == 0

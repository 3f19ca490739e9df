"""A job's output on disk: bounded, with the right head and tail, and readable while it is written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.sandbox.jobs import ANN, end_of, opened, started, until
from tools.jobs.folder import BLOCK, HEAD, OUTPUT, RING, TAIL, OutputFile
from tools.jobs.records import read_part

pytestmark = pytest.mark.anyio


async def test_much_output_is_bounded_and_its_head_and_tail_are_right(tmp_path: Path) -> None:
    whole = b"".join(b"%d\n" % number for number in range(1, 1_000_001))
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, "seq 1000000")
        end = await end_of(jobs, job.id)
        assert (end.bytes, end.lines) == (len(whole), 1_000_000)
        assert end.tail == tuple(str(number) for number in range(999_989, 1_000_001))
        head = await jobs.output(job.id, ANN, offset=0, size=2 * HEAD)
        assert head.data == whole[:HEAD], "the head ends where the gap begins"
        tail = await jobs.output(job.id, ANN, offset=-TAIL, size=TAIL)
        assert (tail.start, tail.data) == (len(whole) - TAIL, whole[-TAIL:])
        gap = await jobs.output(job.id, ANN, offset=2 * HEAD, size=10)
        assert (gap.start, gap.data) == (len(whole) - TAIL, whole[-TAIL:][:10])
        # Both ends are cut in a line, which is counted on each side.
        assert len(whole[:HEAD].splitlines()) + gap.missing + len(whole[-TAIL:].splitlines()) == 1_000_000
    assert (tmp_path / "data" / "jobs" / job.id / OUTPUT).stat().st_size < 2.2 * HEAD


async def test_what_is_read_of_an_endless_writer_is_never_torn(tmp_path: Path) -> None:
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, "exec seq 1000000000 9999999999")
        await until(jobs, job.id, lambda glance: glance.bytes > HEAD + 2 * TAIL)
        for _ in range(40):
            part = await jobs.output(job.id, ANN, offset=-TAIL, size=TAIL)
            # Every line has 11 bytes, so that its place says its number.
            first = -part.start % 11
            numbers = [int(line) for line in part.data[first:].split(b"\n")[:-1]]
            begin = 1_000_000_000 + (part.start + first) // 11
            assert part.data, part
            assert numbers == list(range(begin, begin + len(numbers)))
        await jobs.cancel(job.id, ANN)


def test_a_full_disk_is_told_and_does_not_end_the_job() -> None:
    output = OutputFile("/dev/full")
    output.add(b"lost\n")
    assert output.complaint == "output could not be kept: No space left on device"


@pytest.mark.parametrize("size", [0, 1, HEAD - 1, HEAD, HEAD + 1, HEAD + TAIL, HEAD + TAIL + 1, HEAD + 3 * RING + 7])
def test_what_is_kept_of_an_output_of_any_length(tmp_path: Path, size: int) -> None:
    whole = random.Random(size).randbytes(size)
    output = OutputFile(str(tmp_path / OUTPUT))
    for begin in range(0, size, BLOCK):
        output.add(whole[begin : begin + BLOCK])
    assert read_part(tmp_path, 0, HEAD).data == whole[:HEAD]
    last = read_part(tmp_path, -TAIL, TAIL)
    assert (last.data, last.bytes, last.end) == (whole[-TAIL:], size, size)
    assert last.lines == whole.count(b"\n") + (not whole.endswith(b"\n") and size > 0)
    read, position = b"", 0
    while position < size:
        part = read_part(tmp_path, position, 300_000)
        assert part.data and part.start >= position, "every step gets on"
        read += part.data
        position = part.end
    assert read == (whole if size <= HEAD + TAIL else whole[:HEAD] + whole[-TAIL:])

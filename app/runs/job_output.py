"""The output of a background job, from the file that its supervisor writes. Positions are bytes."""

from __future__ import annotations

import codecs

from msgspec import Struct
from msgspec.structs import replace

from app.redaction.output_chunks import OutputPart, Source
from app.redaction.redactor import Redactor
from tools.base.output_buffer import OutputSlice
from tools.jobs.manager import Jobs

WIDEST = 4  # bytes of a character
EXACT = "surrogateescape"  # what is no UTF-8 has its place nevertheless


class JobOutput(Struct, frozen=True):
    jobs: Jobs
    redactor: Redactor

    async def part(self, job: str, principal: str, after: int) -> OutputPart:
        """Return the output after byte `after`. Raises NoSuchJob, JobsFailed."""
        found = await self.jobs.look_up(job, principal)
        ended = not found.under_way  # looked at first: what is read then is all there is
        lines = 0

        async def read(offset: int, size: int) -> OutputSlice:
            nonlocal lines
            part = await self.jobs.output(job, principal, offset=offset, size=size)
            lines = max(lines, part.lines)
            whole = ended and part.end == part.bytes
            text = decoded(part.data, whole=whole)
            more = len(part.data) == size and part.end < part.bytes
            return OutputSlice(part.start, text, part.bytes, more, part.missing)

        source = Source(read, (self.redactor,), ended, size_of, WIDEST)
        part = await source.part(after, 0)
        return replace(part, text=readable(part.text), lines=lines)


def decoded(data: bytes, *, whole: bool) -> str:
    """Without the beginning of a character whose rest is still to come."""
    return codecs.getincrementaldecoder("utf-8")(EXACT).decode(data, whole)


def size_of(text: str) -> int:
    return len(text.encode(errors=EXACT))


def readable(text: str) -> str:
    return text.encode(errors=EXACT).decode(errors="replace").replace("\0", "\ufffd")

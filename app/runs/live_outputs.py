"""Output of running calls, for readers who want more than the last lines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct, field

from app.redaction.output_chunks import OutputPart, Source
from app.redaction.redactor import Redactor
from tools.base.output_buffer import OutputBuffer, OutputSlice

ENDED = 16  # outputs that stay after their end, for those who were following them

Call = tuple[str, str]  # run and call


class Written(Struct):
    """The output of one call. `output` is None until it has written something, and for what is no process."""

    redactors: Sequence[Redactor]
    output: OutputBuffer | None = None
    ended: bool = False
    asked: bool = False

    async def part(self, after: int) -> OutputPart:
        self.asked = True
        lines = self.output.lines if self.output else 0
        return await Source(self._read, self.redactors, self.ended).part(after, lines)

    async def _read(self, offset: int, size: int) -> OutputSlice:
        return self.output.part(offset, size) if self.output else OutputSlice(0, "", 0, more=False)


class Outputs(Struct):
    """Live outputs of all runs. Memory is bounded by the number of concurrent calls."""

    _live: dict[Call, Written] = field(default_factory=dict)
    _ended: OrderedDict[Call, Written] = field(default_factory=OrderedDict)

    @contextmanager
    def writing(self, run: str, call: str, redactors: Sequence[Redactor]) -> Iterator[Written]:
        """While the call runs; `redactors` hide what nobody may read.

        Kept for a while, if somebody has read it: positions in it mean the same to its end.
        """
        written = self._live[run, call] = Written(redactors)
        try:
            yield written
        finally:
            del self._live[run, call]
            written.ended = True
            if written.asked and written.output:
                self._ended[run, call] = written
                if len(self._ended) > ENDED:
                    self._ended.popitem(last=False)

    def of(self, run: str, call: str) -> Written | None:
        return self._live.get((run, call)) or self._ended.get((run, call))

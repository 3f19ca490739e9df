"""Running calls: their output, for readers of more than the last lines, and a way to stop one alone."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from msgspec import Struct, field

from app.redaction.output_chunks import OutputPart, Source
from app.redaction.redactor import Redactor
from tools.base.outcome import Resize, TypeIn
from tools.base.output_buffer import OutputBuffer, OutputSlice
from tools.base.screen import Window

ENDED = 16  # outputs that stay after their end, for those who were following them

Call = tuple[str, str]  # run and call
Step = TypeVar("Step")


class LiveOutput(Struct):
    """The output of one call. `output` is None until it has written something, and for what is no process."""

    redactors: Sequence[Redactor]
    output: OutputBuffer | None = None
    ended: bool = False
    asked: bool = False
    type_in: TypeIn | None = None  # into its terminal, if it has one
    resize: Resize | None = None  # that terminal
    is_stopped: bool = False  # by the person whose run it is
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: asyncio.Timeout | None = None  # for the next step of the tool

    async def next(self, steps: AsyncGenerator[Step, None]) -> Step | None:
        """Return the next step of the call's tool; None at its end, and once the call is stopped."""
        if self.is_stopped:
            return None
        try:
            # Only around the tool's own work: what reads the steps is not to be interrupted.
            async with asyncio.timeout(None) as waiting:
                self._waiting = waiting
                return await anext(steps, None)
        except TimeoutError:
            if not waiting.expired():
                raise
            return None
        finally:
            self._waiting = None

    def tail(self, lines: Sequence[str]) -> list[str]:
        """Return the last lines of the output without secrets; `lines` for what has none."""
        return self.output.redacted_tail(self._redact) if self.output else list(lines)

    def _redact(self, text: str) -> str:
        for redactor in self.redactors:
            text = redactor.redact(text)
        return text

    async def stop(self) -> None:
        """Stop the call; return when nothing of it runs any more."""
        self.is_stopped = True
        if self._waiting and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())
        await self._over.wait()

    def end(self) -> None:
        self.ended, self.type_in, self.resize = True, None, None
        self._over.set()

    async def part(self, after: int) -> OutputPart:
        self.asked = True
        lines = self.output.lines if self.output else 0
        return await Source(self._read, self.redactors, self.ended).part(after, lines)

    async def _read(self, offset: int, size: int) -> OutputSlice:
        return self.output.part(offset, size) if self.output else OutputSlice(0, "", 0, more=False)


class Outputs(Struct):
    """Live outputs of all runs. Memory is bounded by the number of concurrent calls."""

    _live: dict[Call, LiveOutput] = field(default_factory=dict)
    _ended: OrderedDict[Call, LiveOutput] = field(default_factory=OrderedDict)

    @contextmanager
    def writing(self, run: str, call: str, redactors: Sequence[Redactor]) -> Iterator[LiveOutput]:
        """While the call runs; `redactors` hide what nobody may read.

        Kept for a while, if somebody has read it: positions in it mean the same to its end.
        """
        written = self._live[run, call] = LiveOutput(redactors)
        try:
            yield written
        finally:
            del self._live[run, call]
            written.end()
            if written.asked and written.output:
                self._ended[run, call] = written
                if len(self._ended) > ENDED:
                    self._ended.popitem(last=False)

    def type_into(self, run: str, call: str, data: bytes) -> int | None:
        """Type into the terminal of a call; return how many bytes it took, None if it has none."""
        written = self._live.get((run, call))
        return written.type_in(data) if written and written.type_in else None

    def resize(self, run: str, call: str, window: Window) -> bool:
        """Give the terminal of a call another size; False if it has none."""
        written = self._live.get((run, call))
        if written is None or written.resize is None:
            return False
        written.resize(window)
        return True

    async def stop(self, run: str, call: str) -> bool:
        """Stop a call alone; False if it does not run."""
        written = self._live.get((run, call))
        if written is None:
            return False
        await written.stop()
        return True

    def of(self, run: str, call: str) -> LiveOutput | None:
        return self._live.get((run, call)) or self._ended.get((run, call))

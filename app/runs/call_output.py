"""The output of a call, wherever it is: in the process that writes it, kept whole, or in the log."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from app.core.events import ToolFinished, ToolStarted
from app.redaction.output_chunks import OutputPart, Source
from app.redaction.redactor import Redactor
from app.runs.live_outputs import Outputs
from app.storage.audit import AuditRow
from app.storage.runs import RunRow
from app.storage.store import Store
from app.transcript.run_request import NotFound
from tools.base.output_buffer import OutputSlice, lines_of
from tools.base.screen import Window


class CallOutput(Struct, frozen=True):
    outputs: Outputs
    store: Store
    redactor: Redactor

    async def part(self, run: RunRow, call: str, after: int) -> OutputPart:
        """Return the output after character `after`. Raises NotFound, StoreFailed."""
        if written := self.outputs.of(run.id, call):
            return await written.part(after)
        logged = await self._logged(run, call)
        if finished := logged.get(ToolFinished.type):
            return await self._finished(run.session, finished, after)
        return OutputPart("", after, after, after, 0, done=run.ended is not None)

    async def stop(self, run: RunRow, call: str) -> bool:
        """Stop a call alone, its whole process tree included; False if it has ended. Raises NotFound, StoreFailed."""
        is_stopped = await self.outputs.stop(run.id, call)
        started = await self._logged(run, call)
        if is_stopped:
            await self._audit(run, call, started, "stop", "stopped alone")
        return is_stopped

    async def type_in(self, run: RunRow, call: str, data: bytes) -> int | None:
        """Type into the terminal of a call; return how many bytes it took, None if it has none, or has ended.

        What was typed is not kept: the audit has its length, and the output what the program echoes.
        Raises NotFound, StoreFailed.
        """
        taken = self.outputs.type_into(run.id, call, data)
        started = await self._logged(run, call)
        if taken:
            await self._audit(run, call, started, "input", f"{taken} bytes typed into its terminal")
        return taken

    async def resize(self, run: RunRow, call: str, window: Window) -> bool:
        """Give the terminal of a call another size; False if it has none. Raises NotFound, StoreFailed."""
        is_resized = self.outputs.resize(run.id, call, window)
        if not is_resized:
            await self._logged(run, call)
        return is_resized

    async def _audit(self, run: RunRow, call: str, logged: dict[str, dict[str, Any]], decision: str, why: str) -> None:
        person, name = run.principal, str(logged[ToolStarted.type]["name"])
        await self.store.write(
            [
                AuditRow(
                    time.time(),
                    principal=person,
                    action=name,
                    decision=decision,
                    why=why,
                    by=person,
                    run=run.id,
                    call=call,
                )
            ]
        )

    async def _logged(self, run: RunRow, call: str) -> dict[str, dict[str, Any]]:
        """The events of a call that has begun, by type. Raises NotFound."""
        logged = {row.type: json.loads(row.data) for row in await self.store.call_events(run.id, call)}
        if ToolStarted.type not in logged:
            raise NotFound(f"Run {run.id} has begun no call {call[:80]!a}. GET /runs/{{id}}/events lists its calls.")
        return logged

    async def _finished(self, session: str, finished: Mapping[str, Any], after: int) -> OutputPart:
        call, text = str(finished["call"]), str(finished["text"])
        lines = await self.store.written_lines(session, call)

        async def read(offset: int, size: int) -> OutputSlice:
            if lines is None:  # short enough that nothing else was kept
                return stretch(text[offset : offset + size], offset, len(text))
            part = await self.store.written(session, call, offset, size)
            return stretch(part.text, offset, part.characters) if part else stretch("", 0, 0)

        count = finished.get("lines") or (lines_of(text) if lines is None else lines)
        return await Source(read, (self.redactor,), ended=True).part(after, count)


def stretch(text: str, offset: int, total: int) -> OutputSlice:
    start = min(offset, total)
    return OutputSlice(start, text, total, start + len(text) < total)

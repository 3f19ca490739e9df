"""The hooks of a server. Guards are asked one after the other and fail closed; observers are informed from a queue.

An observer delays nothing: what does not fit the queue is dropped and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from app.core.hook_rows import TOOL_EVENTS, HookEvent, HookRow
from app.hooks.callers import call_hook
from app.hooks.verdicts import ALLOWED, HookFailed, Verdict, stricter, verdict_of
from app.redaction.redactor import Redactor
from tools.base.rights import names_match

VERSION = 1  # of the payload
MOST_PAYLOAD = 4 << 20  # bytes
MOST_WAITING = 1_000  # payloads of observers
OBSERVERS_AT_ONCE = 4
LAST_MOMENT_S = 2.0
FAILED = "The hook {hook} {trouble}, so this is denied. The operator can look into the server's log."

_log = logging.getLogger(__name__)


class Hooks:
    """Asks guards and informs observers. Payloads are redacted; `environ` is the server's environment."""

    def __init__(self, rows: Sequence[HookRow], redactor: Redactor, environ: Mapping[str, str]) -> None:
        self.rows = rows
        self.dropped = 0  # payloads that observers did not get, because of their number or size
        self.failed = 0  # calls of hooks that did not answer as they should
        self._redactor = redactor
        self._environ = environ
        self._waiting: asyncio.Queue[tuple[HookRow, bytes]] = asyncio.Queue(MOST_WAITING)

    def has(self, on: HookEvent) -> bool:
        return any(row.on is on for row in self.rows)

    def has_guard(self, on: HookEvent) -> bool:
        return any(row.on is on and row.kind == "guard" for row in self.rows)

    def of_trials(self) -> Hooks:
        """Return the hooks for a run whose calls and answer are not real: no observer is notified."""
        return Hooks([row for row in self.rows if row.kind == "guard"], self._redactor, self._environ)

    async def call(self, on: HookEvent, fields: Mapping[str, Any], tool: str = "") -> Verdict:
        """Inform the observers of an event and ask its guards; the strictest verdict holds.

        No guard is asked behind one that denies. Only a call of a tool can wait for a person: elsewhere `ask` denies.
        """
        rows = [row for row in self.rows if row.on is on]
        if on in TOOL_EVENTS:
            rows = [row for row in rows if names_match((tool,), row.tools)]
        if not rows:
            return ALLOWED
        payload = self._payload(on, fields)
        verdict = ALLOWED
        for row in rows:
            if row.kind == "observer":
                self._inform(row, payload)
            elif verdict.decision != "deny":
                verdict = stricter(verdict, await self._ask(row, payload))
        return verdict

    def _payload(self, on: HookEvent, fields: Mapping[str, Any]) -> bytes:
        return json.dumps({"version": VERSION, "event": on, **self._redactor.redact_value(dict(fields))}).encode()

    async def _ask(self, row: HookRow, payload: bytes) -> Verdict:
        try:
            if len(payload) > MOST_PAYLOAD:
                raise HookFailed(f"was not asked, because what it would judge has more than {MOST_PAYLOAD:,} bytes")
            verdict = verdict_of(await call_hook(row, payload, self._environ), row.name)
        except HookFailed as failure:
            self._count(row, failure)
            return Verdict("deny", FAILED.format(hook=row.name, trouble=failure), row.name)
        if verdict.decision == "ask" and row.on is not HookEvent.BEFORE_TOOL:
            return Verdict("deny", verdict.reason or "A person would have to be asked.", row.name)
        return verdict

    def _inform(self, row: HookRow, payload: bytes) -> None:
        try:
            if len(payload) > MOST_PAYLOAD:
                raise asyncio.QueueFull
            self._waiting.put_nowait((row, payload))
        except asyncio.QueueFull:
            self.dropped += 1
            if self.dropped == 1:
                _log.warning("the hook %s was not informed: too many or too long payloads wait", row.name)

    async def inform_forever(self) -> None:
        while True:
            row, payload = await self._waiting.get()
            try:
                await call_hook(row, payload, self._environ)
            except HookFailed as failure:
                self._count(row, failure)
            finally:
                self._waiting.task_done()

    async def informed(self) -> None:
        """Wait until the observers have been informed of everything so far."""
        await self._waiting.join()

    def _count(self, row: HookRow, failure: HookFailed) -> None:
        self.failed += 1
        _log.warning("the hook %s %s", row.name, failure)


@asynccontextmanager
async def informing(hooks: Hooks) -> AsyncGenerator[None, None]:
    """Inform the observers. Those that still wait at the end get a moment."""
    count = OBSERVERS_AT_ONCE if any(row.kind == "observer" for row in hooks.rows) else 0
    tasks = [asyncio.create_task(hooks.inform_forever(), name="hooks") for _ in range(count)]
    try:
        yield
    finally:
        with suppress(TimeoutError):
            await asyncio.wait_for(hooks.informed(), LAST_MOMENT_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

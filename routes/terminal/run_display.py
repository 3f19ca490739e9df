"""Shows a run's events on the screen, and puts its approvals to the answerer."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol

from app.core.events import TERMINAL, AgentEvent, ApprovalRequired, ApprovalResolved, Notice
from app.core.helper_events import HelperApproval
from routes.terminal.approval_text import UNATTENDED
from routes.terminal.event_client import Link
from routes.texts import text

Decision = Mapping[str, Any]
"""The body of POST /runs/{id}/approvals/{call}."""

PREVIEWED = frozenset({"write_file", "edit_file"})
SENDING_LIMIT_S = 2.0  # how long the end of a turn waits for an answer that is on its way


class Output(Protocol):
    """Takes a run's events and shows them."""

    def show(self, event: AgentEvent) -> None: ...

    def close(self) -> None:
        """The run is over: what is still being written is shown as it is."""


class Answerer(Protocol):
    """A source of decisions. None: no decision here or now. Cancelled when the question was settled elsewhere."""

    async def decision(self, wanted: ApprovalRequired) -> Decision | None: ...


class NoAnswerer:
    """No terminal and no --approval: calls that need approval are denied, so that no script hangs."""

    def __init__(self) -> None:
        self.denied: set[str] = set()  # calls

    async def decision(self, wanted: ApprovalRequired) -> Decision | None:
        if wanted.call in self.denied:
            return None  # the server did not take it, and would not the next time
        if not self.denied:
            print(f"dragoman: {text('terminal.script.denied')}", file=sys.stderr, flush=True)
        self.denied.add(wanted.call)
        return {"decision": "deny", "note": UNATTENDED}


class RemoteAnswerer:
    """No terminal, but a mode was chosen: prints how to decide over HTTP."""

    def __init__(self, link: Link, *, token: bool) -> None:
        self._link = link
        self._token = token

    async def decision(self, wanted: ApprovalRequired) -> Decision | None:
        url = shlex.quote(self._link.decision_url(wanted.call))
        header = ' -H "Authorization: Bearer $DRAGOMAN_TOKEN"' if self._token else ""
        command = f"curl {url}{header} -H 'content-type: application/json' -d '{{\"decision\": \"approve\"}}'"
        waits, deny = text("terminal.script.waits"), text("terminal.script.or_deny")
        print(f"dragoman: {waits}\n  {command}\n{deny}", file=sys.stderr, flush=True)
        return None


def as_own(event: HelperApproval) -> ApprovalRequired | ApprovalResolved:
    """Return the event that the log of the helper has: the person decides it like one of the run itself."""
    if event.state != "pending":
        return ApprovalResolved(event.approval, event.state, event.by or "", door=event.door)
    reason = f"{text('terminal.helper.asks')} {event.reason or ''}".rstrip()
    return ApprovalRequired(event.approval, event.name or "", event.arguments or {}, reason, event.expires_at)


class Asking:
    """Shows events in their order. While a question is open, those after it wait: nothing is written into a prompt."""

    def __init__(
        self,
        link: Link,
        screen: Output,
        answerer: Answerer,
        *,
        previews: MutableMapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`previews` is where the screen finds the change of a file that is shown with a question."""
        self._link = link
        self._screen = screen
        self._answerer = answerer
        self._previews = previews
        self._waiting: deque[AgentEvent] = deque()
        self._settled: set[str] = set()
        self._over = False
        self._open: ApprovalRequired | None = None
        self._thinking: asyncio.Task[Decision | None] | None = None
        self._task: asyncio.Task[None] | None = None

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, HelperApproval):
            event = as_own(event)
        if isinstance(event, ApprovalResolved):
            self._settled.add(event.call)
        self._over = self._over or event.type in TERMINAL
        self._waiting.append(event)
        self._withdraw()
        self._go_on()

    async def close(self) -> None:
        """The turn is over: no question is left, and everything has been shown."""
        self._over = True
        self._withdraw()
        if self._task:
            done, late = await asyncio.wait([self._task], timeout=SENDING_LIMIT_S)
            for task in late:
                task.cancel()
            for task in done:
                task.result()
        self._open = None
        self._go_on()
        self._screen.close()

    def _withdraw(self) -> None:
        """Take the open question back if it is none any more. An answer that is on its way goes on."""
        if self._open and self._moot(self._open) and self._thinking:
            self._thinking.cancel()

    def _moot(self, wanted: ApprovalRequired) -> bool:
        return self._over or wanted.call in self._settled

    def _go_on(self) -> None:
        while self._waiting and not self._open:
            event = self._waiting.popleft()
            if isinstance(event, ApprovalRequired) and not self._moot(event):
                self._open = event
                self._task = asyncio.create_task(self._ask(event))
            else:
                self._screen.show(event)

    async def _ask(self, wanted: ApprovalRequired) -> None:
        try:
            if self._previews is not None and wanted.name in PREVIEWED:
                self._previews[wanted.call] = await self._link.preview(wanted.call)
            self._screen.show(wanted)
            while not self._moot(wanted) and (decision := await self._answer(wanted)):
                refused = await self._link.decide(wanted.call, decision)
                if refused:
                    self._screen.show(Notice("approval", refused.message))
                if not refused or refused.final:
                    return
        finally:
            self._open = None
            self._go_on()

    async def _answer(self, wanted: ApprovalRequired) -> Decision | None:
        self._thinking = asyncio.create_task(self._answerer.decision(wanted))
        await asyncio.wait([self._thinking])
        return None if self._thinking.cancelled() else self._thinking.result()

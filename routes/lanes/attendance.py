"""Clients that wait for runs of lanes: a retry joins the run under way, and a run that all have left is cancelled.

These clients do not come back to a run with a cursor, as those of the HTTP API do: their formats have no ids. What they
do after an error is to send the same request again, or to name its run or thread once more.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from app.core.events import RunFinished
from app.runs.run_manager import RunManager
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.transcript.run_request import NotFound
from routes.lanes.event_text import fields_of

LEAVING_S = 1.0  # in which a retry may come
JOINED_S = 5.0  # after its end, in which a run's answer may have been lost
RETURN_S = 300.0  # after its end, in which a chat's last answer is given again: a connection may be lost unnoticed
REMEMBERED = 4096  # requests
# States of runs that have ended with an answer. A retry of any other wants another try.
ANSWERED = frozenset({"answered", "client_tools", "round_limit", "call_limit", "token_limit"})


class RequestKey(Struct, frozen=True):
    """The same for the same request of the same principal only; `digest` is that of the body, or of its names."""

    principal: str
    lane: str
    digest: bytes

    def named(self, thread: str, run: str = "") -> RequestKey:
        """Return the key of what the client calls by these names."""
        return replace(self, digest=sha256(f"{thread}\n{run}".encode()).digest())


class Attendance:
    """The runs of lanes of one server, and how many clients wait for each."""

    leaving_s = LEAVING_S
    return_s = RETURN_S

    def __init__(self) -> None:
        self._clients: Counter[str] = Counter()  # by run
        self._stopping: set[str] = set()
        self._joined: dict[str, asyncio.Event] = {}  # by run that its last client has left: set if another comes
        self._started: OrderedDict[RequestKey, RunRow] = OrderedDict()

    def remember(self, key: RequestKey, row: RunRow, policy: str = "{}") -> None:
        self._started[key] = replace(row, policy=policy)  # its own may be long
        self._started.move_to_end(key)
        if len(self._started) > REMEMBERED:
            self._started.popitem(last=False)

    async def join(self, runs: RunManager, key: RequestKey, principal: Principal) -> RunRow | None:
        """The run that the same request has started, if it is under way or its answer was lost a moment ago."""
        known = self._started.get(key)
        if known is None or known.id in self._stopping:
            return None
        if not await runs.is_active(known.id) and not await self._has_just_ended(runs, known, principal):
            return None
        self._note_client(known.id)
        return known

    async def _has_just_ended(self, runs: RunManager, known: RunRow, principal: Principal) -> bool:
        try:
            row = await runs.run(known.id, principal)
        except NotFound:  # unlisted: its log can be read for some seconds
            return await _is_answered(runs, known.id)
        return row.ended is not None and row.ended > time.time() - JOINED_S and row.state in ANSWERED

    @contextmanager
    def attending(self, run: str) -> Iterator[None]:
        """A client waits for the run."""
        self._clients[run] += 1
        self._note_client(run)
        try:
            yield
        finally:
            self._clients[run] -= 1
            if not self._clients[run]:
                del self._clients[run]

    async def leave(self, runs: RunManager, run: str) -> None:
        """Cancel the run after a second, unless another client waits for it by then."""
        if self._clients[run]:
            return
        joined = self._joined.setdefault(run, asyncio.Event())
        try:
            async with asyncio.timeout(self.leaving_s):
                await joined.wait()
        except TimeoutError:
            self._joined.pop(run, None)
            self._stopping.add(run)
            try:
                await runs.cancel(run)
            finally:
                self._stopping.discard(run)

    def _note_client(self, run: str) -> None:
        if joined := self._joined.pop(run, None):
            joined.set()


async def _is_answered(runs: RunManager, run: str) -> bool:
    last = None
    async with aclosing(runs.watch(run, 0)) as pages:
        async for rows in pages:
            last = rows[-1]
    return last is not None and last.type == RunFinished.type and fields_of(last)["reason"] in ANSWERED

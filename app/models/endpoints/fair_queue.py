"""Fair queue in front of an endpoint with limited concurrency.

Requests are served round-robin per principal, and in order of arrival within one principal. Every decision is
synchronous, so a request that is cancelled at any moment leaves the queue consistent.
"""

from __future__ import annotations

import asyncio
from collections import deque

from msgspec import Struct, field


class PrincipalQueue(Struct):
    """Waiting requests of one principal. The principal with the smallest `turn` is served next.

    The parts of `turn`: how many requests had been served when this principal was last served or joined; whether the
    last of those was its own; how many had joined. So a principal that was served waits for all that were queued by
    then, and one that joins comes before the principal that was served last.
    """

    turn: tuple[int, bool, int]
    requests: deque[QueuedRequest] = field(default_factory=deque)


class QueuedRequest:
    """One request, waiting or being served. Its owner must call `leave` in any case."""

    def __init__(self, queue: FairQueue, principal: str) -> None:
        self.principal = principal
        self.active = False
        self.notify_at = 0  # wake up when this many requests have left the queue
        self._moved: asyncio.Event | None = None  # while it waits, which most requests never do
        self._queue = queue

    @property
    def number(self) -> int:
        """Position in the queue, from 1; 0 once it is served."""
        return 0 if self.active else self._queue.number(self)

    async def wait_for_move(self, number: int) -> int:
        """Wait until half of the requests ahead are gone; return the new position. `number` is the old one."""
        self._moved = self._moved or asyncio.Event()
        while (now := self.number) > number // 2:
            self.notify_at = self._queue.departed + now - number // 2
            self._moved.clear()
            await self._moved.wait()
        return now

    def wake(self) -> None:
        if self._moved:
            self._moved.set()

    def leave(self) -> None:
        self._queue.leave(self)


class FairQueue:
    """Serve `limit` requests at a time; 0 is no limit, None takes what `set_slots` reports later, a number is final.

    Of a limit that servers share, each has its part, and at least 1.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or 0  # this server's part
        self._whole = self.limit
        self._sharers = 1
        self.under_way = 0
        self.departed = 0  # requests that have left the queue, served or not
        self._fixed = limit is not None
        self._served = 0
        self._last = ""  # the principal served last
        self._joined = 0
        self._queues: dict[str, PrincipalQueue] = {}

    @property
    def waiting(self) -> int:
        return sum(len(queued.requests) for queued in self._queues.values())

    def set_slots(self, slots: int) -> None:
        """Set the limit to the concurrency that the server reports, unless one was configured."""
        if not self._fixed and slots >= 0:
            self._whole = slots
            self.share(self._sharers)

    def share(self, servers: int) -> None:
        """Divide the limit among so many servers."""
        self._sharers = servers
        self.limit = max(1, self._whole // servers) if self._whole else 0
        self._start_next()

    def join(self, principal: str) -> QueuedRequest:
        """Queue a request of this principal, or serve it at once if the limit allows."""
        request = QueuedRequest(self, principal)
        self._joined += 1
        turn = (self._served, principal == self._last, self._joined)
        queued = self._queues.setdefault(principal, PrincipalQueue(turn))
        queued.requests.append(request)
        self._start_next()
        return request

    def leave(self, request: QueuedRequest) -> None:
        """Remove a request that is finished or cancelled. Idempotent."""
        if request.active:
            request.active = False
            self.under_way -= 1
        elif (queued := self._queues.get(request.principal)) and request in queued.requests:
            queued.requests.remove(request)
            self._departed(request.principal, queued)
        self._start_next()

    def number(self, request: QueuedRequest) -> int:
        """Return the position of a waiting request if no other joins; 0 if it does not wait."""
        own = self._queues.get(request.principal)
        if own is None or request not in own.requests:
            return 0
        ahead = own.requests.index(request)
        others = (queued for queued in self._queues.values() if queued is not own)
        return ahead + 1 + sum(min(len(queued.requests), ahead + (queued.turn < own.turn)) for queued in others)

    def _start_next(self) -> None:
        while self._queues and (not self.limit or self.under_way < self.limit):
            principal, queued = min(self._queues.items(), key=lambda item: item[1].turn)
            request = queued.requests.popleft()
            self._served += 1
            self.under_way += 1
            queued.turn = (self._served, True, self._joined)
            self._last = principal
            request.active = True
            request.wake()
            self._departed(principal, queued)

    def _departed(self, principal: str, queued: PrincipalQueue) -> None:
        """Record that a request left the queue, and wake up those whose position has halved."""
        self.departed += 1
        if not queued.requests:
            del self._queues[principal]
        for other in (other for each in self._queues.values() for other in each.requests):
            if self.departed >= other.notify_at:
                other.wake()

"""The line in front of an endpoint that answers only so many requests at a time: fair between those who ask.

Those who wait are served in turn, one request each; of one's own requests the first that came is the first served.
Nothing here waits while it decides: a request that is cancelled at any moment leaves the line as it should be.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Line:
    """One asker's requests that wait. Whose `turn` is the smallest is served next: its parts are how many had been
    served when this asker was, or came; whether the last of them was this one's; how many had come.

    So who was served waits for all who were there by then, and who comes goes before whom the last one was of.
    """

    turn: tuple[int, bool, int]
    places: deque[Place] = field(default_factory=deque)


class Place:
    """One request in the line, or at work. Whoever has it leaves it, whatever happens."""

    def __init__(self, queue: FairQueue, principal: str) -> None:
        self.principal = principal
        self.serves = False
        self.tell_at = 0  # how many must have left the line until its place is told again
        self.news = asyncio.Event()
        self._queue = queue

    @property
    def number(self) -> int:
        """In the line, from 1; 0 when it is this one's turn."""
        return 0 if self.serves else self._queue.number(self)

    async def moved(self, number: int) -> int:
        """Wait until half of those ahead are gone; `number` is the place told last. The place now."""
        while (now := self.number) > number // 2:
            self.tell_at = self._queue.gone + now - number // 2
            self.news.clear()
            await self.news.wait()
        return now

    def leave(self) -> None:
        self._queue.leave(self)


class FairQueue:
    """`limit` requests at a time; None or 0 is no limit. One that is given stays, whatever is learned later."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or 0
        self.under_way = 0
        self.gone = 0  # how many have left the line, for whatever reason
        self._fixed = limit is not None
        self._served = 0
        self._last = ""  # who was served last
        self._come = 0
        self._lines: dict[str, Line] = {}

    @property
    def waiting(self) -> int:
        return sum(len(line.places) for line in self._lines.values())

    def set_slots(self, slots: int) -> None:
        """The server says how many requests it answers at a time."""
        if not self._fixed and slots >= 0:
            self.limit = slots
            self._serve()

    def join(self, principal: str) -> Place:
        """At the end of the asker's line, or at work at once, if that may be."""
        place = Place(self, principal)
        self._come += 1
        line = self._lines.setdefault(principal, Line((self._served, principal == self._last, self._come)))
        line.places.append(place)
        self._serve()
        return place

    def leave(self, place: Place) -> None:
        """Done, or given up. A second time is nothing."""
        if place.serves:
            place.serves = False
            self.under_way -= 1
        elif (line := self._lines.get(place.principal)) and place in line.places:
            line.places.remove(place)
            self._left(place.principal, line)
        self._serve()

    def number(self, place: Place) -> int:
        """How many will have been served when this one is, if nobody else comes; 0 if it does not wait."""
        own = self._lines.get(place.principal)
        if own is None or place not in own.places:
            return 0
        ahead = own.places.index(place)
        others = (line for line in self._lines.values() if line is not own)
        return ahead + 1 + sum(min(len(line.places), ahead + (line.turn < own.turn)) for line in others)

    def _serve(self) -> None:
        while self._lines and (not self.limit or self.under_way < self.limit):
            principal, line = min(self._lines.items(), key=lambda item: item[1].turn)
            place = line.places.popleft()
            self._served += 1
            self.under_way += 1
            line.turn = (self._served, True, self._come)
            self._last = principal
            place.serves = True
            place.news.set()
            self._left(principal, line)

    def _left(self, principal: str, line: Line) -> None:
        """One fewer waits."""
        self.gone += 1
        if not line.places:
            del self._lines[principal]
        for other in (other for each in self._lines.values() for other in each.places):
            if self.gone >= other.tell_at:
                other.news.set()

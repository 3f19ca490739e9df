"""Memory that follows the database: what one server changes, the others of that database read anew.

A message says what has changed, joined with what else changes meanwhile; it may be lost, so after a gap everything is
read anew. Where a change forbids something, its write also asks every other server, and ends when each has read it or
is gone. The other kind of message wakes streams of the current state (`app.core.notifier`), at most ten times a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from app.core.notifier import Notifier
from app.replicas.changes import ALL, EXACT, NOT_OWN, Kinds, Parts, joined, kinds_of
from app.replicas.peers import Body, Refusal, ReplicaGone, Replicas, ask_others
from app.replicas.postgres.messages import Messages
from app.storage.changes import Change, StoreFailed
from tools.base.tasks import in_background

CHANGED, BELL = "changed", "bell"  # kinds of messages
RELOAD = "reload"  # a question
CHANGES_S, BELLS_S = 0.02, 0.1  # in which messages are joined
MOST_NAMES = 64  # in a message; with more it is about all
AGAIN_S = 1.0  # after the store has failed

logger = logging.getLogger(__name__)

Reload = Callable[[Parts], Awaitable[None]]
"""Reads anew the parts of what is held in memory; all of it for ALL. Raises StoreFailed."""


class Sharing:
    """`reloads` are by kind (`app.replicas.changes`). `written` is for the store to await after each commit.

    Fill `reloads` once there is what they read, and call `reload_all_soon`.
    """

    def __init__(self, replicas: Replicas, messages: Messages) -> None:
        self.reloads: dict[str, Reload] = {}
        self._replicas = replicas
        self._messages = messages
        self._wanted: Kinds = {}  # here
        self._news = asyncio.Event()
        self._sending = Joined(CHANGES_S, self._send)
        # To be sent soon, to this server too: what it has read meanwhile may be from before.
        self.announce = self._sending.add
        replicas.answerers[RELOAD] = self._asked
        messages.handlers[CHANGED] = self._heard
        messages.on_gap.append(self.reload_all_soon)

    async def written(self, changes: Sequence[Change]) -> None:
        """Raises StoreFailed if another server may not have read what it has to."""
        if kinds := kinds_of(changes):
            self.announce(kinds)
            if exact := EXACT & kinds.keys():
                await self.ask_others(RELOAD, {"kinds": sorted(exact)})

    def _send(self, kinds: Kinds) -> None:
        listed = {kind: _listed(parts) for kind, parts in kinds.items()}
        self._messages.send_all(CHANGED, kinds=listed, by=self._replicas.me)

    async def ask_others(self, question: str, body: Body) -> None:
        """Ask every other server, and return when each has answered or is gone. Raises StoreFailed."""
        await ask_others(self._replicas, question, body, _failure_of)

    async def first_answer(self, question: str, body: Body) -> Any:
        """The answer of the first other server that does not refuse; None if all do. Raises StoreFailed."""
        for replica in await self._replicas.others():
            with suppress(Refusal, ReplicaGone):
                return await self._replicas.ask(replica, question, body)
        return None

    async def _asked(self, body: Body) -> None:
        for kind in body["kinds"]:
            if reload := self.reloads.get(kind):
                await reload(ALL)

    def _heard(self, body: Body) -> None:
        known = NOT_OWN if body["by"] == self._replicas.me else ()
        self._want({kind: frozenset(map(str, parts)) for kind, parts in body["kinds"].items() if kind not in known})

    def reload_all_soon(self) -> None:
        self._want(dict.fromkeys(self.reloads, ALL))

    def _want(self, kinds: Kinds) -> None:
        self._wanted = joined(self._wanted, kinds)
        self._news.set()

    @asynccontextmanager
    async def following(self, notifier: Notifier, stored: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
        """Follow the other servers until the end. `stored` is for `Bells`."""
        bells = Bells(notifier, self._messages, stored)
        async with in_background(self._reload_forever(), "changes elsewhere"):
            try:
                yield
            finally:
                bells.close()
                self._sending.close()

    async def _reload_forever(self) -> None:
        """Read anew what has changed; again if the store fails."""
        while True:
            await self._news.wait()
            self._news.clear()
            wanted, self._wanted = self._wanted, {}
            if failed := {kind: parts for kind, parts in wanted.items() if not await self._reloaded(kind, parts)}:
                self._want(failed)
                await asyncio.sleep(AGAIN_S)

    async def _reloaded(self, kind: str, parts: Parts) -> bool:
        """Return False if it has to be tried again."""
        if (reload := self.reloads.get(kind)) is None:
            return True
        work = asyncio.ensure_future(reload(parts))
        try:
            await asyncio.wait([work])
        finally:
            work.cancel()
        match work.exception():
            case None:
                return True
            case StoreFailed() as failure:
                logger.warning("%s not read anew, trying again: %s", kind, failure)
                return False
            case error:  # the other kinds go on
                logger.error("%s not read anew", kind, exc_info=error)
                return True


class Bells:
    """Lets the subscribers of all servers hear what one server notifies.

    `stored` waits until all that was put before is durable: a subscriber elsewhere looks into the store.
    """

    def __init__(self, notifier: Notifier, messages: Messages, stored: Callable[[], Awaitable[None]]) -> None:
        self._notifier = notifier
        self._messages = messages
        self._stored = stored
        self._joined = Joined(BELLS_S, self._begin_to_send)
        self._sending: asyncio.Task[None] | None = None
        notifier.elsewhere = self._ring
        messages.handlers[BELL] = self._heard
        messages.on_gap.append(notifier.wake_all)

    def _ring(self, name: str) -> None:
        self._joined.add({BELL: frozenset({name})})

    def _begin_to_send(self, kinds: Kinds) -> None:
        self._sending = asyncio.create_task(self._send(kinds[BELL], self._sending), name="bells")

    async def _send(self, names: Parts, before: asyncio.Task[None] | None) -> None:
        if before:
            await asyncio.wait([before])
        with suppress(StoreFailed):
            await self._stored()
        self._messages.send_all(BELL, names=_listed(names))

    def _heard(self, body: Body) -> None:
        if not body["names"]:
            self._notifier.wake_all()
        for name in body["names"]:
            self._notifier.wake(name)

    def close(self) -> None:
        self._notifier.elsewhere = None
        self._joined.close()
        if self._sending:
            self._sending.cancel()


class Joined:
    """Collects kinds from the first one on for a while, and then calls `send` with all of them."""

    def __init__(self, seconds: float, send: Callable[[Kinds], None]) -> None:
        self._seconds = seconds
        self._send = send
        self._kinds: Kinds = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, kinds: Kinds) -> None:
        self._kinds = joined(self._kinds, kinds)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._send_all)

    def _send_all(self) -> None:
        kinds, self._kinds, self._timer = self._kinds, {}, None
        self._send(kinds)

    def close(self) -> None:
        """Send what waits."""
        if self._timer:
            self._timer.cancel()
            self._send_all()


def _failure_of(replica: str, refusal: Refusal) -> StoreFailed | None:
    """None if the other server has not read anything yet: it is just starting."""
    if refusal.name == "unknown_question":
        return None
    return StoreFailed(f"Server {replica} has not followed: {refusal} Try again.")


def _listed(parts: Parts) -> list[str]:
    """Return the parts for a message; none stands for all."""
    return sorted(parts) if len(parts) <= MOST_NAMES else []

"""One configured server: when it is connected, when it is tried again, and what is known of it meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from tools.base.pause_check import CheckPaused, Paused, never_paused
from tools.mcp.connection.child import CannotStart
from tools.mcp.connection.failure_reasons import leaves, reason
from tools.mcp.connection.server_log import Log
from tools.mcp.model import Hooks, NeedsAuth, PinStore, ServerConfig, State, ToolsChanged
from tools.mcp.names import public_name
from tools.mcp.trust_pins import Catalogue

if TYPE_CHECKING:
    from tools.mcp.connection.session import Link, Listing

FIRST_S, MOST_S, JITTER = 0.5, 60.0, 0.2
TRIES = 3  # of a server that nobody wants to be always there
STABLE_S = 10.0
PATIENCE_S = 3.0
ENDED_S = 8.0  # a process that cannot be killed is the kernel's


class Unavailable(Exception):
    """The server cannot be called now. The message says why, and when it is tried again."""


@dataclass(slots=True)
class House:
    """What all servers share: what the host does for them, and what to tell it."""

    hooks: Hooks
    pins: PinStore
    private_hosts: Sequence[str]
    changed: Callable[[Server, ToolsChanged | None], None]
    eras: dict[str, Literal["auto", "legacy"]] = field(default_factory=dict)  # by identity
    closed: bool = False
    check_paused: CheckPaused = never_paused  # asked before each connection
    getting_known: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))


class Server:
    """Its connection comes and goes; this stays. All its state changes in `_enter`."""

    def __init__(self, config: ServerConfig, catalogue: Catalogue, house: House) -> None:
        self.config = config
        self.catalogue = catalogue
        self.log = Log()
        self.slots = asyncio.Semaphore(config.concurrency)
        self.state = State.STOPPED if config.enabled else State.DISABLED
        self.error = config.problem
        self.restarts = 0
        self.connect_ms: float | None = None
        self.next_try: float | None = None
        self.auth_url = ""
        self.link: Link | None = None
        self.used_at = time.monotonic()
        self.calls = 0
        self._house = house
        self._failures = 0
        self._keeper: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._turn = asyncio.Event()
        if config.problem and config.enabled:
            self.state = State.FAILED

    @property
    def is_settled(self) -> bool:
        """Whether nothing will happen to it by itself soon."""
        if self.state is State.STOPPED:
            return self.catalogue.is_known
        return self.state is not State.CONNECTING and (self._keeper is None or self._keeper.done() or self.is_up)

    @property
    def is_up(self) -> bool:
        return self.state is State.READY and self.link is not None and not self.link.gone

    def public(self, tool: str) -> str:
        return public_name(self.config.name, tool)

    def start(self) -> None:
        """Begin to connect, unless it is connected, connecting, or not to be."""
        unwanted = self.state is State.DISABLED or self._house.closed or self._paused()
        if unwanted or self.config.problem or (self._keeper and not self._keeper.done()):
            return
        self._enter(State.CONNECTING)
        # No variables of whoever calls first: the connection is everybody's.
        self._keeper = asyncio.create_task(self._keep(), context=Variables())

    async def get_known(self) -> None:
        """Connect for the first time: a few servers at a time, but nobody waits long for one that does not answer."""
        async with self._house.getting_known:
            with suppress(Unavailable):
                await self.connected(PATIENCE_S)

    async def connected(self, seconds: float) -> Link:
        """The connection, made now if need be. Raises Unavailable."""
        self.used_at = time.monotonic()
        if self.link and self.state is State.READY and not self.link.gone:
            return self.link
        name, starts = self.config.name, 0
        try:
            async with asyncio.timeout(seconds):
                while not (self.link and self.state is State.READY and not self.link.gone):
                    is_still = self._keeper is None or self._keeper.done()
                    if is_still or self.config.eager:
                        self._refuse_if_hopeless()
                    if is_still and starts == 2:
                        raise Unavailable(f"The MCP server {name} starts and ends at once ({self._why()}).")
                    if is_still:
                        starts += 1
                        self.start()
                    await self._turn.wait()
        except TimeoutError as error:
            raise Unavailable(f"The MCP server {name} is not ready after {seconds:g} s. {self._why()}") from error
        return self.link

    def _paused(self) -> str:
        """Why nothing may be started now; empty when it may."""
        try:
            self._house.check_paused()
        except Paused as paused:
            return str(paused)
        return ""

    def _refuse_if_hopeless(self) -> None:
        name = self.config.name
        if paused := self._paused():
            raise Unavailable(f"The MCP server {name} is not started. {paused}")
        if self.state is State.DISABLED:
            raise Unavailable(f"The MCP server {name} is disabled. Use other tools.")
        if self._house.closed:
            raise Unavailable("This host is closing: no MCP server is started any more.")
        if self.state is State.NEEDS_AUTH:
            raise Unavailable(f"The MCP server {name} wants somebody to sign in first. Use other tools.")
        if self.config.problem:
            raise Unavailable(f"The MCP server {name} cannot start: {self.config.problem} Use other tools.")
        if self.state is State.FAILED and self.next_try is not None and self.next_try > time.time():
            seconds = max(1, round(self.next_try - time.time()))
            raise Unavailable(f"The MCP server {name} is not there ({self._why()}). Next try in {seconds} s.")

    def _why(self) -> str:
        tail = self.log.tail(3)
        return self.error + (f"; it wrote: {' | '.join(tail)}"[:500] if tail else "")

    def drop(self, link: Link, why: str) -> None:
        """This connection is of no use any more."""
        if self.link is link:
            link.end(why)
            link.gone = True

    async def stop(self, state: State = State.STOPPED) -> None:
        """End the connection and all that belongs to it."""
        self.state = state
        if self._keeper:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._running:
            if self.link and self.link.ready:
                self.link.end("it was stopped")
            else:
                self._running.cancel()
            await asyncio.wait({self._running}, timeout=ENDED_S)
        self._failures, self.next_try, self._keeper, self._running = 0, None, None, None
        self._enter(state, self.error if state is State.FAILED else "")

    async def _keep(self) -> None:
        """Connect, stay, and connect again as far as that makes sense."""
        while True:
            if paused := self._paused():  # `go_on` of the manager starts it again
                self._enter(State.STOPPED, paused)
                return
            link, is_final = await self._connect()
            if not link and not is_final and self._paused():
                continue  # no failure of the server's
            if link:
                began = time.monotonic()
                idle = await self._live(link)
                if idle:
                    self._enter(State.STOPPED)
                    return
                if self._wants_sign_in(link):
                    return
                self.restarts += 1
                self._failures = 0 if time.monotonic() - began > STABLE_S else self._failures
                if not self.config.eager:
                    self._enter(State.STOPPED, link.why)
                    return
            self._failures += 1
            wait = min(MOST_S, FIRST_S * 2 ** (self._failures - 1)) * random.uniform(1 - JITTER, 1 + JITTER)
            if link and self._failures == 1:
                wait = 0.0
            gives_up = is_final or (self._failures >= TRIES and not self.config.eager)
            if self.state is not State.NEEDS_AUTH:
                self.next_try = time.time() + wait
                self._enter(State.FAILED, link.why if link else self.error)
            if gives_up:
                return
            await asyncio.sleep(wait)

    async def _connect(self) -> tuple[Link | None, bool]:
        """A ready connection; or none, and whether there is no sense in trying again by itself."""
        self._enter(State.CONNECTING)
        identity = self.catalogue.identity
        mode = self._house.eras.get(identity, "auto")
        link, error = await self._attempt(mode)
        others = TimeoutError | CannotStart | Paused
        died = error is not None and not any(isinstance(one, others) for one in leaves(error))
        if died and mode == "auto" and self.config.transport == "stdio":
            # Some servers die of a question that they do not know: asked in the older way, they live.
            again, later_error = await self._attempt("legacy")
            if later_error is None:
                link, error = again, None
        if error is None:
            self._house.eras[identity] = "auto" if link.is_modern else "legacy"
            self.next_try, self.auth_url = None, ""
            self._enter(State.READY)
            return link, False
        self._house.eras.pop(identity, None)
        why, cause = reason(error, link, self.config.timeouts.start_s)
        self.error = why
        if isinstance(cause, NeedsAuth):
            self.auth_url = cause.url
            self._enter(State.NEEDS_AUTH, why)
        return None, isinstance(cause, NeedsAuth | TimeoutError | CannotStart)

    async def _attempt(self, mode: Literal["auto", "legacy"]) -> tuple[Link, BaseException | None]:
        """One connection, ready or with what ended it."""
        module = await asyncio.to_thread(import_module, "tools.mcp.connection.session")
        began = time.monotonic()
        house = self._house
        link: Link = module.Link(self.config, mode, house.hooks, house.private_hosts, self.log, self._offered)
        try:
            house.check_paused()  # each attempt starts a process, and much may have happened since the last look
        except Paused as paused:
            return link, paused
        running = asyncio.create_task(link.run())
        running.add_done_callback(_ending)
        self.link, self._running = link, running
        await link.settled.wait()
        if link.ready:
            self.connect_ms = (time.monotonic() - began) * 1000
            return link, None
        await asyncio.wait({running})
        return link, _ending(running)

    async def _live(self, link: Link) -> bool:
        """Until the connection is over. Whether that was because nobody used it."""
        assert self._running is not None
        idle_s = None if self.config.eager else self.config.idle_stop_s
        while not self._running.done():
            left = None if idle_s is None else max(0.0, self.used_at + idle_s - time.monotonic())
            await asyncio.wait({self._running}, timeout=left)
            if left == 0.0 and not self.calls and not self._running.done():
                link.end("nobody used it")
                link.gone = True
                await asyncio.wait({self._running}, timeout=ENDED_S)
                return True
            if self.calls:
                self.used_at = time.monotonic()
        self.log.add(f"The connection is over: {link.why}")
        return False

    def _wants_sign_in(self, link: Link) -> bool:
        """Whether a connection that was ready ended because a person must allow more."""
        assert self._running is not None
        error = _ending(self._running)
        why, cause = reason(error, link, 0.0) if error else ("", None)
        if isinstance(cause, NeedsAuth) and cause.url:
            self.auth_url = cause.url
            self._enter(State.NEEDS_AUTH, why)
            return True
        return False

    async def _offered(self, listing: Listing) -> None:
        """Its tools, each time they are listed."""
        changes = self.catalogue.take(listing.tools, listing.instructions)
        for note in self.catalogue.notes:
            self.log.add(note)
        await self.save()
        if changes:
            self._house.changed(self, changes)

    async def save(self) -> None:
        unsaved, self.catalogue.unsaved = self.catalogue.unsaved, []
        if unsaved:
            await self._house.pins.keep(unsaved)

    def _enter(self, state: State, error: str = "") -> None:
        if self.state is State.DISABLED and state is not State.DISABLED and self._keeper:
            return
        self.state, self.error = state, error
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()
        self._house.changed(self, None)


def _ending(task: asyncio.Task[None]) -> BaseException | None:
    """What ended a task; asked for, so that nobody warns of it."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()

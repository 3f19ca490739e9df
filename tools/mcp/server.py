"""One configured server: connecting, retries with backoff, idle stop, and its known tools."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from tools.base.pause_check import CheckPaused, Paused, never_paused
from tools.base.tasks import import_in_thread
from tools.mcp.connection.child import CannotStart
from tools.mcp.connection.failure_reasons import last_words, leaves, reason
from tools.mcp.connection.server_log import ServerLog
from tools.mcp.definitions import Definition
from tools.mcp.model import Hooks, NeedsAuth, PinStore, ServerConfig, ServerState, ToolsChanged
from tools.mcp.names import offer_name, public_name
from tools.mcp.offers import OFFER_TOOLS, Feature, Offers
from tools.mcp.skills import skills_tool
from tools.mcp.trust_pins import Catalogue

if TYPE_CHECKING:
    from tools.mcp.connection.session import McpSession

FIRST_S, MOST_S, JITTER = 0.5, 60.0, 0.2
TRIES = 3  # of a server that is not eager
STABLE_S = 10.0
PATIENCE_S = 3.0
ENDED_S = 8.0  # a process that cannot be killed is the kernel's


class Unavailable(Exception):
    """The server cannot be called now. The message has the reason and the time of the next retry."""


class ServerServices(Struct):
    """Collaborators that all servers share."""

    hooks: Hooks
    pins: PinStore
    private_hosts: Sequence[str]
    changed: Callable[[Server, ToolsChanged | None], None]
    protocol_modes: dict[str, Literal["auto", "legacy"]] = field(default_factory=dict)  # by identity
    closed: bool = False
    check_paused: CheckPaused = never_paused  # called before each connection
    discovery_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))


class Server:
    """A server, across its connections. All state changes happen in `_enter`."""

    def __init__(self, config: ServerConfig, catalogue: Catalogue, services: ServerServices) -> None:
        self.config = config
        self.catalogue = catalogue
        self.log = ServerLog()
        self.slots = asyncio.Semaphore(config.concurrency)
        self.state = ServerState.STOPPED if config.enabled else ServerState.DISABLED
        self.error = config.problem
        self.failure = ""  # the last one, with the server's last words, until it is connected or stopped
        self.restarts = 0
        self.connect_ms: float | None = None
        self.next_try: float | None = None
        self.auth_url = ""
        self.session: McpSession | None = None
        self.used_at = time.monotonic()
        self.calls = 0
        self.cancelling: set[asyncio.Task[None]] = set()  # requests to end tasks
        self.first_wait_ends: float | None = None  # no turn waits longer for the tools, if they were never listed
        self._offers = Offers()  # as last listed
        self._services = services
        self._failures = 0
        self._supervisor: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        if config.problem and config.enabled:
            self.state = ServerState.FAILED

    @property
    def is_settled(self) -> bool:
        """Return whether the state will not change by itself soon."""
        if self.state is ServerState.STOPPED:
            return self.catalogue.is_known
        return self.state is not ServerState.CONNECTING and (
            self._supervisor is None or self._supervisor.done() or self.is_up
        )

    @property
    def is_up(self) -> bool:
        return self.state is ServerState.READY and self.session is not None and not self.session.gone

    @property
    def is_unseen(self) -> bool:
        """Return whether the server should have tools, and they were never listed."""
        return self.state is not ServerState.DISABLED and not self.catalogue.is_known

    def begin_first_wait(self, seconds: float) -> bool:
        """Connect, if need be; return whether the connection is to be waited for.

        That ends `seconds` after the first wait began, and with the first failure: later turns do not wait again.
        """
        if self.state is ServerState.STOPPED or (self.state is ServerState.FAILED and self._is_retry_due):
            self.start()
        if self.first_wait_ends is None:
            self.first_wait_ends = time.monotonic() + seconds
        return self.is_awaited

    @property
    def is_awaited(self) -> bool:
        ends = self.first_wait_ends
        return ends is not None and time.monotonic() < ends and self.state is ServerState.CONNECTING

    @property
    def _is_retry_due(self) -> bool:
        return self.next_try is not None and self.next_try <= time.time()

    def public(self, tool: str) -> str:
        return public_name(self.config.name, tool)

    def offer_name(self, feature: Feature) -> str:
        return offer_name(self.config.name, feature)

    def listed(self) -> list[tuple[str, Definition]]:
        """Return the tools by their public names, with the host's own for resources and skills, if wanted."""
        tools = [(self.public(name), one) for name, one in self.catalogue.listed.items()]
        if "resources" in self.catalogue.features and self.catalogue.is_wanted("resources"):
            tools.append((self.offer_name("resources"), OFFER_TOOLS["resources"]))
        if self.catalogue.skills:
            tools.append(skills_tool(self.config.name, self.catalogue.skills))
        return tools

    def start(self) -> None:
        """Start to connect, unless it is connected, connecting, or must not be."""
        unwanted = self.state is ServerState.DISABLED or self._services.closed or self._paused()
        if unwanted or self.config.problem or (self._supervisor and not self._supervisor.done()):
            return
        self._enter(ServerState.CONNECTING)
        # Without the first caller's context variables: all callers share the connection.
        self._supervisor = asyncio.create_task(self._supervise(), context=Variables())

    async def discover(self) -> None:
        """Connect for the first time: a few servers at a time, and with a short wait for each."""
        async with self._services.discovery_slots:
            with suppress(Unavailable):
                await self.connected(PATIENCE_S)

    async def connected(self, seconds: float) -> McpSession:
        """The connection, made now if need be. Raises Unavailable."""
        self.used_at = time.monotonic()
        if self.session and self.state is ServerState.READY and not self.session.gone:
            return self.session
        name = self.config.name
        starts = 0
        try:
            async with asyncio.timeout(seconds):
                while not (self.session and self.state is ServerState.READY and not self.session.gone):
                    is_still = self._supervisor is None or self._supervisor.done()
                    if is_still or self.config.eager:
                        self._refuse_if_hopeless()
                    if is_still and starts == 2:
                        raise Unavailable(f"The MCP server {name} starts and ends at once ({self._why()}).")
                    if is_still:
                        starts += 1
                        self.start()
                    await self._changed.wait()
        except TimeoutError as error:
            raise Unavailable(f"The MCP server {name} is not ready after {seconds:g} s. {self._why()}") from error
        return self.session

    def _paused(self) -> str:
        """Return why nothing may be started now; empty when it may."""
        try:
            self._services.check_paused()
        except Paused as paused:
            return str(paused)
        return ""

    def _refuse_if_hopeless(self) -> None:
        name = self.config.name
        if paused := self._paused():
            raise Unavailable(f"The MCP server {name} is not started. {paused}")
        if self.state is ServerState.DISABLED:
            raise Unavailable(f"The MCP server {name} is disabled. Use other tools.")
        if self._services.closed:
            raise Unavailable("This host is closing: no MCP server is started any more.")
        if self.state is ServerState.NEEDS_AUTH:
            raise Unavailable(f"The MCP server {name} requires a sign-in first. Use other tools.")
        if self.config.problem:
            raise Unavailable(f"The MCP server {name} cannot start: {self.config.problem} Use other tools.")
        if self.state is ServerState.FAILED and self.next_try is not None and self.next_try > time.time():
            seconds = max(1, round(self.next_try - time.time()))
            raise Unavailable(f"The MCP server {name} is not there ({self._why()}). Next try in {seconds} s.")

    def _why(self) -> str:
        tail = self.log.tail(3)
        return self.error + (f"; it wrote: {' | '.join(tail)}"[:500] if tail else "")

    def drop(self, session: McpSession, why: str) -> None:
        """Abandon a broken connection."""
        if self.session is session:
            session.end(why)
            session.gone = True

    async def stop(self, state: ServerState = ServerState.STOPPED) -> None:
        """End the connection and all that belongs to it."""
        self.state = state
        if self._supervisor:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})
        if self._running:
            if self.session and self.session.ready:
                self.session.end("it was stopped")
            else:
                self._running.cancel()
            await asyncio.wait({self._running}, timeout=ENDED_S)
        self._failures = 0
        self.next_try = None
        self._supervisor = None
        self._running = None
        self._enter(state, self.error if state is ServerState.FAILED else "")

    async def _supervise(self) -> None:
        """Supervise the connection: connect, watch, and reconnect with backoff."""
        while True:
            if paused := self._paused():  # `Manager.resume` starts it again
                self._enter(ServerState.STOPPED, paused)
                return
            session, is_final = await self._connect()
            if not session and not is_final and self._paused():
                continue  # no failure of the server's
            if session:
                began = time.monotonic()
                idle = await self._live(session)
                if idle:
                    self._enter(ServerState.STOPPED)
                    return
                if self._wants_sign_in(session):
                    return
                self.restarts += 1
                self._failures = 0 if time.monotonic() - began > STABLE_S else self._failures
                if not self.config.eager:
                    self._enter(ServerState.STOPPED, session.why)
                    return
            self._failures += 1
            wait = min(MOST_S, FIRST_S * 2 ** (self._failures - 1)) * random.uniform(1 - JITTER, 1 + JITTER)
            if session and self._failures == 1:
                wait = 0.0
            gives_up = is_final or (self._failures >= TRIES and not self.config.eager)
            if self.state is not ServerState.NEEDS_AUTH:
                self.next_try = time.time() + wait
                self._enter(ServerState.FAILED, session.why if session else self.error)
            if gives_up:
                return
            await asyncio.sleep(wait)

    async def _connect(self) -> tuple[McpSession | None, bool]:
        """Return a ready connection; or None, and whether an automatic retry is pointless."""
        self._enter(ServerState.CONNECTING)
        identity = self.catalogue.identity
        mode = self._services.protocol_modes.get(identity, "auto")
        session, error = await self._attempt(mode)
        others = TimeoutError | CannotStart | Paused
        died = error is not None and not any(isinstance(one, others) for one in leaves(error))
        if died and mode == "auto" and self.config.transport == "stdio":
            # Some servers crash on an unknown request: retry with the legacy handshake.
            again, later_error = await self._attempt("legacy")
            if later_error is None:
                session, error = again, None
        if error is None:
            self._services.protocol_modes[identity] = "auto" if session.is_modern else "legacy"
            self.next_try = None
            self.auth_url = ""
            self._enter(ServerState.READY)
            return session, False
        self._services.protocol_modes.pop(identity, None)
        why, cause = reason(error, session, self.config.timeouts.start_s)
        self.error = why
        if isinstance(cause, NeedsAuth):
            self.auth_url = cause.url
            self._enter(ServerState.NEEDS_AUTH, why)
        return None, isinstance(cause, NeedsAuth | TimeoutError | CannotStart)

    async def _attempt(self, mode: Literal["auto", "legacy"]) -> tuple[McpSession, BaseException | None]:
        """Try one connection; return it ready, or with the error that ended it."""
        module = await import_in_thread("tools.mcp.connection.session")
        began = time.monotonic()
        services = self._services
        config, refused = self.config, None
        try:
            services.check_paused()  # each attempt starts a process, and much may have happened since the last look
            if services.hooks.complete:
                config = await services.hooks.complete(config)
        except (Paused, CannotStart) as error:
            refused = error
        session: McpSession = module.McpSession(
            config,
            mode,
            hooks=services.hooks,
            private_hosts=services.private_hosts,
            log=self.log,
            offer=self._offered,
        )
        if refused:
            return session, refused
        running = asyncio.create_task(session.run())
        running.add_done_callback(_ending)
        self.session, self._running = session, running
        await session.settled.wait()
        if session.ready:
            self.connect_ms = (time.monotonic() - began) * 1000
            return session, None
        await asyncio.wait({running})
        return session, _ending(running)

    async def _live(self, session: McpSession) -> bool:
        """Wait until the connection is over; return whether it was stopped because it was idle."""
        assert self._running is not None
        idle_s = None if self.config.eager else self.config.idle_stop_s
        while not self._running.done():
            left = None if idle_s is None else max(0.0, self.used_at + idle_s - time.monotonic())
            await asyncio.wait({self._running}, timeout=left)
            if left == 0.0 and not self.calls and not self._running.done():
                session.end("it was idle")
                session.gone = True
                await asyncio.wait({self._running}, timeout=ENDED_S)
                return True
            if self.calls:
                self.used_at = time.monotonic()
        self.log.add(f"The connection is over: {session.why}")
        return False

    def _wants_sign_in(self, session: McpSession) -> bool:
        """Return whether a ready connection ended because more permissions must be granted."""
        assert self._running is not None
        error = _ending(self._running)
        why, cause = reason(error, session, 0.0) if error else ("", None)
        if isinstance(cause, NeedsAuth) and cause.url:
            self.auth_url = cause.url
            self._enter(ServerState.NEEDS_AUTH, why)
            return True
        return False

    async def _offered(self, tools: Sequence[dict[str, Any]], instructions: str, offers: Offers) -> None:
        """Take the server's tools, each time they are listed."""
        offered = await asyncio.to_thread(self.catalogue.read, [*tools, *offers.skills])
        changes = self.catalogue.take(offered, instructions, offers.features)
        for note in self.catalogue.notes:
            self.log.add(note)
        await self.save()
        old, self._offers = self._offers, offers
        if changes or old != offers:
            self._services.changed(self, changes)

    async def take_page(self, page: Definition) -> bool:
        """Take a page of an app as it was read now; return whether it may be shown."""
        changes = self.catalogue.take_page(page)
        await self.save()
        if changes:
            self._services.changed(self, changes)
        return page.name not in self.catalogue.held

    async def save(self) -> None:
        unsaved, self.catalogue.unsaved = self.catalogue.unsaved, []
        if unsaved:
            await self._services.pins.keep(unsaved)

    def _enter(self, state: ServerState, error: str = "") -> None:
        if self.state is ServerState.DISABLED and state is not ServerState.DISABLED and self._supervisor:
            return
        self.state, self.error = state, error
        if state is ServerState.FAILED:
            words = last_words(self.log.tail())
            self.failure = f"{error}; it wrote: {words}" if words and words not in error else error
        elif state is not ServerState.CONNECTING:
            self.failure = ""
        if state in (ServerState.FAILED, ServerState.NEEDS_AUTH):
            self.first_wait_ends = 0.0
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._services.changed(self, None)


def _ending(task: asyncio.Task[None]) -> BaseException | None:
    """Return what ended a task; retrieved, so that asyncio does not warn."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()

"""The server: how it starts and stops."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from importlib.metadata import version
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.middleware import Middleware
from starlette.types import Scope

from app.config.settings import Loaded, Settings
from app.redaction.logs import log_as_json, log_as_text
from app.replicas.peers import Peers
from app.runs.composition.loop_watch import watched_loop
from app.storage.changes import StoreFailed
from app.storage.principals import in_use
from app.transcript.reply import compile_patterns
from routes.access.authentication import Access, is_loopback
from routes.access.connection_limits import Connections, room_for
from routes.access.local_admin import read_local_token
from routes.access.metrics_access import metrics_access
from routes.access.open_file_limit import OpenFileLimit
from routes.access.peers import kernel_says
from routes.access.rate_limits import BoundedProtocol
from routes.catalogue import EARLY, late_routes
from routes.deletion import end_temporary_forever
from routes.forwarding import forwarding
from routes.http import health
from routes.http.administration.metrics import answer_for_metrics
from routes.lanes.attendance import Attendance
from routes.lanes.error_shapes import lane_errors
from routes.lanes.lane import Lane
from routes.page.apps_origin import AppsOrigin
from routes.protocol.announcements import Announcements
from routes.protocol.application import AnswerMiddleware, StreamingApplication
from routes.protocol.http_metrics import count_answer
from routes.protocol.redaction_middleware import RedactionMiddleware
from routes.protocol.requests import ChatRequest
from routes.protocol.route import Route
from routes.services import Services, open_services
from routes.workers.channel import Channel, Place, socket_of_parent
from routes.workers.listening import CannotServe, listen
from tools.base.patterns import compile_all
from tools.base.tasks import alone, in_background, wait_at_most
from tools.sandbox.sandbox import NoSandbox, Unboxed

# What Python waits for before it looks for garbage that refers to itself. A request leaves none; to look through what
# 300 streams hold took 45 to 120 ms, in the second in which they began.
GARBAGE = (10_000, 200, 5)
UNBOXED = "Commands run without a sandbox: they can do whatever you can, and but for the allowed ones they ask first."

STREAMS = ("/runs/", "/events", "/v1/responses/", "/ui-message-stream/")  # that clients return to
WARM_UP_AFTER_S = 0.2  # the first probes of a new server come before
# Clients reuse a connection that was idle for up to 5 s (httpx) or 4 s (Node.js): one that closes then fails a request.
KEEP_ALIVE_S = 20
DRAIN_S = 5  # how long open streams may take to read their run's end when the server stops


def create_server(services: Services, more_lanes: Sequence[Lane] = ()) -> StreamingApplication:
    """The ASGI application over services that are open. `more_lanes` are not in the catalogue."""
    settings = services.settings
    access = Middleware(
        Access,
        store=services.store,
        rates=services.rates,
        host=settings.host,
        local=services.local,
        metrics=metrics_access(settings),
        limits=services.runs.ledger.limits,
        speakers=services.speakers,
        header=settings.trusted_header,
        vouched=settings.vouched,
        oidc=settings.oidc is not None,
        public_host=urlsplit(settings.public_url or "").hostname or "",
    )
    redacted = Middleware(RedactionMiddleware, redactor=services.redactor)
    answer = lane_errors(more_lanes)
    observe = partial(count_answer, services.metrics)
    layers = [redacted, Middleware(AnswerMiddleware, answer=answer, observe=observe), access]
    layers += forwarding(services, answer)
    if settings.apps_origin:
        layers.insert(0, Middleware(AppsOrigin, origin=settings.apps_origin, page=settings.public_url or ""))
    late = partial(_late_routes, services, more_lanes)
    server = StreamingApplication(routes=EARLY, late=late, middleware=layers, answer=answer)
    server.state.services = services
    server.breaks_off = partial(_is_for_another, services.runs.peers)
    services.own_routes.server = server
    answer_for_metrics(services)
    server.state.attendance = Attendance()
    return server


def _is_for_another(peers: Peers, scope: Scope) -> bool:
    """Return True for a client that returns to a stream while the database does not answer this server.

    A load balancer gives it to another one, and leaves this one alone for a while, when the connection breaks off.
    """
    return peers.left_s <= 0 and scope["method"] == "GET" and scope["path"].startswith(STREAMS)


def _late_routes(services: Services, more_lanes: Sequence[Lane], server: StreamingApplication) -> Sequence[Route]:
    from routes.http.dashboard_state import Seen
    from routes.lanes.recorded_frames import RecordedFrames

    routes = late_routes(more_lanes)  # it may fail, and is tried again then
    server.state.seen = Seen()
    services.runs.outboxes.append(RecordedFrames().of_run)  # no run of a lane can have begun before
    return routes


def serve(loaded: Loaded, place: Place | None = None) -> int:
    """Run until a signal stops it, as a worker if it has a place. Exit code 1 when it cannot start, with the reason."""
    announcements = Announcements(loaded.settings.log_format == "json")
    log = log_as_json if announcements.as_records else log_as_text
    log(loaded.settings.log_level, place.number if place else 0)
    try:
        if place:
            _run(loaded.settings.as_worker(place.number, place.port), None)
        else:
            with listen(loaded.settings) as listener:
                _run(loaded.settings.as_worker(1, listener.getsockname()[1]), listener)  # the setting may be 0
    except (CannotServe, StoreFailed) as problem:
        announcements.fail(str(problem))
        return 1
    return 0


def connections_of(settings: Settings) -> Connections:
    """Raises CannotServe while a variable that is not ours would say which proxies are believed."""
    if "FORWARDED_ALLOW_IPS" in os.environ:
        raise CannotServe(
            "FORWARDED_ALLOW_IPS does not count any more. Unset it, and name the proxies in DRAGOMAN_TRUSTED_PROXIES."
        )
    most = room_for(settings.max_connections)
    return Connections(most, settings.max_connections_per_address, settings.trusted_proxies)


def _run(settings: Settings, listener: socket.socket | None) -> None:
    config_loop = uvicorn.Config("", loop="auto", log_config=None).get_loop_factory()
    with asyncio.Runner(loop_factory=config_loop) as runner:
        runner.run(_serve(settings, listener))


async def _serve(settings: Settings, listener: socket.socket | None) -> None:
    """Serve what comes in at the listener; without one, what the parent hands over."""
    channel = None if listener else Channel(socket_of_parent())
    async with (
        open_services(settings) as services,
        in_background(services.runs.peers.on_duty("temporary", partial(end_temporary_forever, services)), "temporary"),
    ):
        rows, now = await services.store.tokens(), time.time()
        if not is_loopback(settings.host) and not settings.vouched and not any(in_use(row, now) for row in rows):
            raise CannotServe(
                f"{settings.host} can be reached from other machines, and there is no token in use to ask for. "
                "Make one with `dragoman token create --name NAME`, or listen on 127.0.0.1."
            )
        config = uvicorn.Config(
            create_server(services),
            lifespan="off",
            http=BoundedProtocol.within(connections_of(settings), channel.closed if channel else None),
            ws="none",  # nothing here speaks it, and who may come in is asked of HTTP only
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            **uvicorn_logs(settings),
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
            server_header=False,
        )
        tame_garbage_collector()
        watching = asyncio.create_task(OpenFileLimit().watch_forever(), name="open files")
        try:
            with watched_loop(services.metrics, settings.own_dir) if settings.loop_watchdog else nullcontext():
                await _Server(config, services, channel).serve([listener] if listener else [])
        finally:
            watching.cancel()


def uvicorn_logs(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options: as text its own format without accesses, as JSON our format, with them from `info`."""
    if settings.log_format == "text":
        return {"access_log": False, "log_level": settings.log_level}
    return {"log_config": None, "access_log": True, "log_level": settings.log_level}


def tame_garbage_collector() -> None:
    """A tenth of each token went into looking for cycles among modules, and among streams that live for minutes."""
    gc.freeze()
    gc.set_threshold(*GARBAGE)


def warm_up() -> None:
    """Build what the first run would wait for: patterns, and the validator of its request."""
    alone(compile_patterns)
    compile_all()
    ChatRequest.model_rebuild()


class _Server(uvicorn.Server):
    """Says what to try when it is up; ends the runs, and with them their streams, when it stops."""

    def __init__(self, config: uvicorn.Config, services: Services, channel: Channel | None) -> None:
        super().__init__(config)
        self._services = services
        self._channel = channel
        self._hurried = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal lets runs end in their time of grace, the second stops them, the third does not wait."""
        self._services.draining = True
        if self.should_exit and not self._hurried.is_set():
            self._loop.call_soon_threadsafe(self._hurried.set)
            return
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self._announce()
        self._loop.call_later(WARM_UP_AFTER_S, self._loop.run_in_executor, None, warm_up)
        if self._channel:
            self._channel.open(self._new_protocol, self._leave)

    def _new_protocol(self) -> asyncio.Protocol:
        """Return the protocol of a connection, as uvicorn makes it for one of its own listeners."""
        http: Any = self.config.http_protocol_class
        made: asyncio.Protocol = http(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=self._loop
        )
        return made

    def _leave(self) -> None:
        """The parent has ended, or wants this worker to end."""
        if not self.should_exit:
            self.handle_exit(signal.SIGTERM, None)

    async def _announce(self) -> None:
        settings = self._services.settings
        shown = f"localhost:{settings.port}" if is_loopback(settings.host) else f"{settings.host}:{settings.port}"
        say = Announcements(settings.log_format == "json")
        say.state(f"dragoman {version('dragoman')} on http://{shown}. {self._services.about_model}")
        match self._services.factory.sandbox:
            case NoSandbox(reason):
                say.warn(reason)
            case Unboxed():
                say.warn(UNBOXED)
        counts = await self._services.store.token_counts(time.time())
        asked = bool(counts.all) or self._services.settings.vouched  # for a token
        local = None if asked or kernel_says() else read_local_token(self._services.settings.data_dir)
        say.advise(f"Try:  {health.example(shown, token=asked or local is not None)}")
        if local:
            say.advise(f"Accounts cannot be told apart here: DRAGOMAN_TOKEN is in {self._services.local.token_file}.")
        say.advise(f"Or open http://{shown}{f'/#token={local}' if local else ''} in a browser.")

    async def _serve_on(self) -> None:
        """Serve as before while load balancers, to whom /readyz is not ready any more, turn to other servers."""
        await wait_at_most(self._services.settings.drain_delay_s, self._hurried)
        if self._channel:
            await self._channel.leave()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve_on()
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()  # an idle one: a proxy that has kept it must not send another request over it
        await self._services.jobs.close()  # first: a job that ends now must not begin a run
        runs, grace_s = self._services.runs, self._services.settings.shutdown_grace_s
        ending = {asyncio.create_task(runs.close(grace_s)), asyncio.create_task(self._hurried.wait())}
        _, waiting = await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        await runs.close()  # at once, if there was a second signal
        for task in waiting:
            task.cancel()
        await self._services.mcp_server.aclose()  # with its streams
        await super().shutdown(sockets)
        self._captured_signals.clear()  # a signal that was obeyed is not raised again: a clean stop exits with 0

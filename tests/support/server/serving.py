"""A whole server in the test's own process: real sockets, real database, the provider that the test gives it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx2
import uvicorn
from starlette.types import ASGIApp

from app.config.settings import Settings, load_settings
from app.core.provider import Provider
from app.models.endpoints.retry_policy import Backoff
from app.storage.database import DATABASE, open_store
from app.storage.store import Store
from routes.access.rate_limits import BoundedProtocol
from routes.server import create_server
from routes.services import Services, open_services
from tests.support.databases.postgres import DATABASES
from tests.support.server.held_loop import loop_not_held

# Of a client that speaks plain HTTP: each would read the system's certificates, which takes 40 ms.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
LEASE_S = 60  # of a server that shares a test's process: the other tests' work may hold it up
HURRIED = Backoff(sleep=lambda _: asyncio.sleep(0))  # no test waits until a model is asked again


def settings_in(folder: Path, **flags: object) -> Settings:
    return load_settings(places_in(folder) | flags, {"HOME": str(folder)}, folder=folder).settings


def places_in(folder: Path, number: int = 1) -> dict[str, object]:
    """The folders and the database of a server; `number` tells it from others that share its database."""
    (folder / "work").mkdir(exist_ok=True)
    data = folder / ("data" if number == 1 else f"data-{number}")
    places: dict[str, object] = {"data_dir": str(data), "workspace": str(folder / "work"), "port": "0"}
    places["generated_titles"] = "never"  # a further request of a script that has an answer for each
    if url := DATABASES.url_of(folder):
        places |= {"database_url": url, "node": f"node-{number}", "lease_s": LEASE_S, "workspace_shared": True}
    return places


@dataclass(slots=True)
class Served:
    """A client of a running server, and what is behind it."""

    client: httpx2.AsyncClient
    services: Services

    async def chat(self, message: object = "Hello", **more: object) -> list[dict[str, Any]]:
        """All events of one turn."""
        async with aclosing(self.turn(message=message, **more)) as turn:
            return [event async for event in turn]

    async def out_of_time(self, kind: str, message: object = "Hello") -> list[dict[str, Any]]:
        """All events of one turn whose time is over when the first event of this kind has come."""
        events = list[dict[str, Any]]()
        async with aclosing(self.turn(message=message)) as turn:
            async for event in turn:
                events.append(event)
                if event["type"] == kind:
                    await self.end_time(events[0]["run"])
        return events

    async def end_time(self, run: str) -> None:
        """End a run as its clock does when its time is over: then a test needs no time in which to come so far."""
        await self.services.runs.cancel(run, "deadline")

    async def turn(self, **body: object) -> AsyncGenerator[dict[str, Any], None]:
        async with self.client.stream("POST", "/chat", json=body) as response:
            assert response.status_code == 200, await response.aread()
            async with aclosing(events_of(response)) as events:
                async for event in events:
                    yield event

    async def events(self, run: str, after: int = 0) -> list[dict[str, Any]]:
        async with self.client.stream("GET", f"/runs/{run}/events", headers={"Last-Event-ID": str(after)}) as response:
            if response.status_code == 204:
                return []
            assert response.status_code == 200
            async with aclosing(events_of(response)) as events:
                return [event async for event in events]


class Silence(asyncio.Event):
    """It never ends, and it is known when somebody waits for that."""

    def __init__(self) -> None:
        super().__init__()
        self.noticed = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.noticed.set()
        return await super().wait()


async def events_of(response: httpx2.Response) -> AsyncGenerator[dict[str, Any], None]:
    """The `data:` of each event, with the sequence number under `seq`."""
    async for message in httpx2.EventSource(response):
        fields = json.loads(message.data)
        assert fields["type"] == message.event
        yield fields | {"seq": int(message.id)}


def answer_in(text: str) -> str:
    """The text behind the blocks of code that were calls."""
    return text.rpartition("```\n")[2].lstrip("\n")


async def until(turn: AsyncGenerator[dict[str, Any], None], kind: str) -> dict[str, Any]:
    async for event in turn:  # the caller closes the generator
        if event["type"] == kind:
            return event
    raise AssertionError(f"no {kind} came")


@asynccontextmanager
async def serving(
    folder: Path, provider: Provider | None, headers: Mapping[str, str] | None = None, **flags: object
) -> AsyncGenerator[Served, None]:
    """With this provider, or with what `dragoman.toml` in the folder names."""
    async with AsyncExitStack() as stack:
        enter, ports, servers = stack.enter_async_context, list[int](), list[Services]()
        for number in range(1, DATABASES.servers + 1):
            places = places_in(folder, number)
            settings = load_settings(places | flags, {"HOME": str(folder)}, folder=folder).settings
            services = await enter(
                open_services(put_empty_database(settings), partial(chosen, provider) if provider else None)
            )
            services.models.backoff = HURRIED
            ports.append(await enter(listening(create_server(services))))
            stack.push_async_callback(services.runs.close)
            servers.append(services)
        transport = InTurn(ports) if len(ports) > 1 else None
        url = f"http://localhost:{ports[0]}"
        client = httpx2.AsyncClient(
            base_url=url, timeout=60, trust_env=False, verify=NO_TLS, headers=headers, transport=transport
        )
        yield Served(await enter(client), servers[0])


def put_empty_database(settings: Settings) -> Settings:
    """Give a new server a copy of an empty database, since making one takes more time than the rest of its start."""
    if settings.database_url is None and not settings.data_dir.exists() and settings.data_dir.parent.is_dir():
        settings.data_dir.mkdir(mode=0o700)
        path = settings.data_dir / DATABASE
        path.touch(mode=0o600)
        path.write_bytes(empty_database())
    return settings


@cache
def empty_database() -> bytes:
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:  # this thread has a loop that runs
        path = Path(folder) / DATABASE
        pool.submit(asyncio.run, made(path)).result()
        return path.read_bytes()


async def made(path: Path) -> None:
    await (await open_store(path)).close()


@asynccontextmanager
async def stored(folder: Path) -> AsyncGenerator[Store, None]:
    """The store of the server that is served in this folder, before or after that."""
    store = await open_store(folder / "data" / DATABASE, DATABASES.url_of(folder))
    try:
        yield store
    finally:
        await store.close()


class InTurn(httpx2.AsyncBaseTransport):
    """Sends each request to the next one of several servers, as a balancer does that knows nothing of sessions."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = cycle(ports)
        self._transport = httpx2.AsyncHTTPTransport(verify=NO_TLS, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=next(self._ports))
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()


@asynccontextmanager
async def listening(app: ASGIApp, protocol: type[BoundedProtocol] = BoundedProtocol) -> AsyncGenerator[int, None]:
    """The port of a server with this application."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_level="warning", http=protocol)
    async with running(config) as server:
        yield server.servers[0].sockets[0].getsockname()[1]


@asynccontextmanager
async def running(
    config: uvicorn.Config, bound: list[socket.socket] | None = None
) -> AsyncGenerator[uvicorn.Server, None]:
    """A server without Server.serve: that would take the test runner's signals, and it looks for its end ten times a
    second only, which would cost every test a fifth of one."""
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(bound)
    await server.on_tick(0)  # makes the headers that all answers have
    try:
        with loop_not_held():
            yield server
    finally:
        await finish(server)
        await server.lifespan.shutdown()


async def finish(server: uvicorn.Server) -> None:
    """Take no more requests; let those that are under way end, in the time that the configuration gives them."""
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    if under_way := set(server.server_state.tasks):
        _, late = await asyncio.wait(under_way, timeout=server.config.timeout_graceful_shutdown)
        for task in late:
            task.cancel()
        await asyncio.wait(under_way)
    for listener in server.servers:
        await listener.wait_closed()


async def chosen(provider: Provider, settings: Settings | None = None) -> tuple[Provider, str]:
    return provider, f"{provider.model} (a test's)"

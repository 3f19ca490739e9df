"""A whole server in the test's own process: real sockets, real database, the provider that the test gives it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from starlette.types import ASGIApp

from app.config.settings import Settings, load_settings
from app.core.provider import Provider
from app.models.endpoints.retry_policy import Backoff
from routes.access.rate_limits import BoundedProtocol
from routes.server import create_server
from routes.services import Services, open_services
from tests.postgres import DATABASES

# Of a client that speaks plain HTTP: each would read the system's certificates, which takes 40 ms.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
HURRIED = Backoff(sleep=lambda _: asyncio.sleep(0))  # no test waits until a model is asked again


def settings_in(folder: Path, **flags: object) -> Settings:
    (folder / "work").mkdir(exist_ok=True)
    places = {"data_dir": str(folder / "data"), "workspace": str(folder / "work"), "port": "0"}
    if url := DATABASES.url_of(folder):
        places["database_url"] = url
    return load_settings(places | flags, {"HOME": str(folder)}, folder=folder).settings


@dataclass(slots=True)
class Served:
    """A client of a running server, and what is behind it."""

    client: httpx2.AsyncClient
    services: Services

    async def chat(self, message: object = "Hello", **more: object) -> list[dict[str, Any]]:
        """All events of one turn."""
        async with aclosing(self.turn(message=message, **more)) as turn:
            return [event async for event in turn]

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
    settings = settings_in(folder, **flags)
    choose = partial(chosen, provider) if provider else None
    async with open_services(settings, choose) as services:
        services.models.backoff = HURRIED
        async with listening(create_server(services)) as port:
            url = f"http://localhost:{port}"
            async with httpx2.AsyncClient(
                base_url=url, timeout=60, trust_env=False, verify=NO_TLS, headers=headers
            ) as client:
                try:
                    yield Served(client, services)
                finally:
                    await services.runs.close()


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

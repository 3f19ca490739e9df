"""Connections are bounded, in all and per address, and what stalls keeps nobody out who has something to ask."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from app.config.settings import load_settings
from app.config.sources import SettingsError
from app.models.scripted import Scripted
from routes.access.connection_limits import RESERVE, Connections
from routes.access.open_file_limit import OpenFileLimit
from routes.access.rate_limits import MOST_WAITING, BoundedProtocol
from routes.server import KEEP_ALIVE_S, create_server
from tests import ROOT
from tests.support.access.people import LIMIT_S, connected, error_of, parsed
from tests.support.server.dragoman_process import server
from tests.support.server.serving import NO_TLS, Served, listening, serving, settings_in

pytestmark = pytest.mark.anyio
GET = b"GET /tools HTTP/1.1\r\nhost: localhost\r\n\r\n"
NOBODY = "http://127.0.0.1:9/v1"


@asynccontextmanager
async def crowded(folder: Path, room: Connections) -> AsyncGenerator[tuple[Served, int], None]:
    """A server with this room, and its port."""
    async with serving(folder, Scripted([["One ", "answer."]] * 9)) as served:
        async with listening(create_server(served.services), BoundedProtocol.within(room)) as port:
            yield served, port


async def asked(port: int, request: bytes = GET) -> tuple[int, bytes]:
    """The status of one request, on a connection of its own."""
    async with connected(port) as (reader, writer):
        writer.write(request)
        status, headers, _ = parsed(await reader.readuntil(b"\r\n\r\n"))
        return status, await reader.readexactly(int(headers["content-length"]))


def test_an_idle_connection_outlives_the_pools_of_clients() -> None:
    assert (httpx2.Limits().keepalive_expiry or 0) < KEEP_ALIVE_S


ROOMS = {
    "per address": Connections(1000, 8),
    "in all": Connections(8, 1000),
    "by a proxy": Connections(8, 2, ["127.0.0.1"]),
}
STALLED = {
    "nothing": b"",
    "half a head": b"GET /tools HTTP/1.1\r\nho",
    "what is refused": b"GET /tools HTTP/1.1\r\nhost: localhost\r\nvia: 1.1 proxy\r\n\r\n",
}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("sent", STALLED)
async def test_connections_that_stall_keep_nobody_out(tmp_path: Path, room: str, sent: str) -> None:
    one = ROOMS[room]
    async with crowded(tmp_path, one) as (_, port), AsyncExitStack() as stack:
        readers = []
        for _ in range(20):
            reader, writer = await stack.enter_async_context(connected(port))
            writer.write(STALLED[sent])
            await writer.drain()
            readers.append(reader)
            assert (await asked(port))[0] == 200, "the owner's curl comes in all the same"
            assert len(one) <= 8
        async with asyncio.timeout(LIMIT_S):
            await readers[0].read(-1)  # the oldest has made room
    assert len(one) == 0


async def test_where_all_are_at_work_a_new_one_is_refused_and_told_why(tmp_path: Path) -> None:
    room = Connections(100, 2)
    async with crowded(tmp_path, room) as (served, port), AsyncExitStack() as stack:
        url = f"http://localhost:{port}"
        client = httpx2.AsyncClient(base_url=url, trust_env=False, verify=NO_TLS, timeout=LIMIT_S)
        await stack.enter_async_context(client)
        for _ in range(2):
            stream = await stack.enter_async_context(client.stream("GET", "/events"))
            assert stream.status_code == 200
        async with connected(port) as (reader, _):
            status, headers, body = parsed(await reader.read(-1))
        assert (status, error_of(body), headers["connection"]) == (503, "too_many_connections", "close")
        assert b"Close some" in body
        assert (await served.client.get("/livez")).status_code == 200
    assert len(room) == 0


@dataclass(slots=True)
class Endless:
    """A response that has no end, and notes that its client has gone."""

    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"too late", "more_body": True})
        self.left.set()


async def test_a_client_that_leaves_is_noticed_whatever_it_has_asked_for_next() -> None:
    endless = Endless()
    async with listening(endless) as port:
        async with connected(port) as (reader, writer):
            writer.write(GET * 2)
            await reader.readuntil(b"x\r\n")
        async with asyncio.timeout(LIMIT_S):
            await endless.left.wait()


async def test_what_is_no_request_ends_the_response_before_it(caplog: pytest.LogCaptureFixture) -> None:
    endless = Endless()
    async with listening(endless) as port, connected(port) as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"x\r\n")
        writer.write(b"NONSENSE\r\n\r\n")
        assert await reader.read(-1) == b"", "no other answer in the middle of this one"
        await endless.left.wait()
    assert "Exception" not in caplog.text


@pytest.mark.parametrize("more", [0, 1])
async def test_so_many_requests_may_wait_behind_another(more: int) -> None:
    async def answers(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with listening(answers) as port, connected(port) as (reader, writer):
        writer.write(GET * (MOST_WAITING + more) + GET.replace(b"localhost\r\n", b"localhost\r\nconnection: close\r\n"))
        answered = await reader.read(-1)
    if more:
        status, _, body = parsed(answered)
        assert (status, error_of(body)) == (429, "too_many_waiting")
    else:
        assert answered.count(b"HTTP/1.1 200 OK") == MOST_WAITING + 1


@pytest.mark.parametrize("wrong", ["*", "proxy.local", "10.0.0.1/8", "10.0.0.0/33"])
def test_proxies_are_addresses_and_networks(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(SettingsError, match="trusted_proxies"):
        load_settings({"trusted_proxies": wrong}, {"HOME": str(tmp_path)}, folder=tmp_path)


def test_the_proxies_are_those_of_the_settings(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, trusted_proxies="10.0.0.2, 10.1.0.0/16, ::1")
    assert settings.trusted_proxies == ("10.0.0.2", "10.1.0.0/16", "::1")
    room = Connections(100, 1, settings.trusted_proxies)
    for number, address in enumerate(("10.0.0.2", "10.1.9.9", "::ffff:10.0.0.2", "::1")):
        assert room._is_exempt(address), number
    assert not room._is_exempt("10.2.0.1") and not room._is_exempt(None)


def start(folder: Path, *flags: str, **environ: str) -> subprocess.Popen[str]:
    """A real server, which may have few files open at first."""
    usual = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_DATA_DIR": str(folder / "data")}
    words = ["serve", "--port", "0", "--workspace", str(folder / "work"), "--model-url", "scripted:", *flags]
    few = 'ulimit -S -n 64; exec "$@"'
    return subprocess.Popen(
        ["sh", "-c", few, "sh", sys.executable, "-m", "routes", *words],
        cwd=ROOT,
        env=usual | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        try:
            assert server.stdout and "dragoman" in server.stdout.readline()
            soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            assert soft == min(hard, 65_536) > 64 + RESERVE
        finally:
            server.terminate()


def test_a_variable_that_is_not_ours_says_nothing_of_proxies(tmp_path: Path) -> None:
    with start(tmp_path, FORWARDED_ALLOW_IPS="*") as server:
        _, told = server.communicate(timeout=60)
    assert server.returncode == 1
    assert "DRAGOMAN_TRUSTED_PROXIES" in told and "Traceback" not in told


def test_each_time_the_limit_of_open_files_is_reached_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    errors = [None, errno.EMFILE, errno.EMFILE, None, None, errno.EACCES, errno.ENFILE, None]

    def open_file() -> int:
        if (number := errors.pop(0)) is not None:
            raise OSError(number, os.strerror(number))
        return os.open(os.devnull, os.O_RDONLY)

    limit = OpenFileLimit(open_file)
    while errors:
        limit.look()
    said = [(record.levelname, "reached" in record.message) for record in caplog.records]
    assert said == [("ERROR", True), ("WARNING", False)] * 2
    assert "in this process" in caplog.records[0].message and "of the machine" in caplog.records[2].message


async def test_a_server_says_that_it_can_open_no_more_files(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as log:
        async with asyncio.timeout(LIMIT_S), server(tmp_path, NOBODY, stderr=log) as (client, process):
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (64, 64))
            async with AsyncExitStack() as idle:
                for _ in range(80):
                    with suppress(ConnectionError):
                        await idle.enter_async_context(connected(client.base_url.port or 0))
                await logged(path, "the limit of open files is reached (64 in this process)")
            await logged(path, "open files are below their limit again")
            assert (await client.get("/livez")).status_code == 200


async def logged(path: Path, words: str) -> None:
    while words not in await asyncio.to_thread(path.read_text):
        pass

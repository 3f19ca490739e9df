"""docs/deploy/nginx.conf with a real nginx: events pass at once, and no message is sent to two replicas."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.models.upstream import Act, Upstream, answer, stream, upstream
from tests.support.replicas.nginx import checked, configuration, free_port, needs_nginx, nginx
from tests.support.server.serving import NO_TLS

pytestmark = [pytest.mark.anyio, needs_nginx]
FINE = answer('{"live": true}')


def test_nginx_accepts_the_configuration(tmp_path: Path) -> None:
    ended = checked(configuration(tmp_path, 8080, [8724, 8725, 8726]))
    assert ended.returncode == 0, ended.stderr
    assert "[warn]" not in ended.stderr


@asynccontextmanager
async def balanced(folder: Path, *replicas: Upstream | int) -> AsyncGenerator[httpx2.AsyncClient, None]:
    ports = [one if isinstance(one, int) else one.port for one in replicas]
    async with asyncio.timeout(40), nginx(folder, ports) as port:
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False, verify=NO_TLS
        ) as client:
            yield client


async def breaks_off(_: StreamReader, writer: StreamWriter) -> None:
    writer.transport.abort()


async def test_an_event_passes_before_the_next_one_is_made(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def after_the_first(_: StreamReader, writer: StreamWriter) -> None:
        await seen.wait()
        writer.write(b"6\r\nlast\n\n\r\n0\r\n\r\n")

    async with upstream(stream("first\n\n", then=after_the_first)) as replica, balanced(tmp_path, replica) as client:
        async with client.stream("GET", "/runs/run_1/events", headers={"Last-Event-ID": "3"}) as response:
            received = b""
            async for part in response.aiter_raw():
                received += part
                seen.set()
        assert received == b"first\n\nlast\n\n"
    [asked] = replica.asked
    assert asked.headers["last-event-id"] == "3"
    assert asked.headers["host"] == client.base_url.netloc.decode()


async def test_a_client_cannot_claim_another_address(tmp_path: Path) -> None:
    async with upstream(FINE) as replica, balanced(tmp_path, replica) as client:
        await client.get("/livez", headers={"X-Forwarded-For": "10.9.8.7"})
    assert replica.asked[0].headers["x-forwarded-for"] == "127.0.0.1"


@pytest.mark.parametrize("first", [breaks_off, FINE])
async def test_a_message_is_sent_to_one_replica_only(tmp_path: Path, first: Act) -> None:
    """One that breaks off may have begun a run: another must not get the message, and the client learns why."""
    async with upstream(first) as one, upstream(first) as other:
        async with balanced(tmp_path, one, other) as client:
            response = await client.post("/chat", json={"message": "Go"})
            assert len(one.asked) + len(other.asked) == 1
            if first is breaks_off:
                assert (response.status_code, response.json()["error"]["code"]) == (503, "no_replica")
                assert response.headers["retry-after"] == "2"


async def test_a_replica_that_refuses_connections_costs_no_message(tmp_path: Path) -> None:
    async with upstream(FINE, repeat=True) as replica:
        async with balanced(tmp_path, free_port(), replica, free_port()) as client:
            answers = [(await client.post("/chat", json={"message": "Go"})).status_code for _ in range(4)]
    assert answers == [200] * 4
    assert len(replica.asked) == 4


async def test_a_read_is_asked_of_another_replica(tmp_path: Path) -> None:
    async with upstream(breaks_off, repeat=True) as one, upstream(FINE, repeat=True) as other:
        async with balanced(tmp_path, one, other) as client:
            answers = [(await client.get("/sessions")).status_code for _ in range(4)]
    assert answers == [200] * 4
    assert one.asked


async def test_figures_are_not_for_clients(tmp_path: Path) -> None:
    async with upstream(FINE) as replica, balanced(tmp_path, replica) as client:
        assert (await client.get("/metrics")).status_code == 404
    assert not replica.asked

"""Connections of our transport: how they begin, are used again, wait and end."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
import pytest

from app.models.http.client import LIMITS
from app.models.http.transport.lean import LeanTransport
from tests.support.models.sockets import (
    LARGE,
    LIMIT_S,
    LOOPS,
    OK,
    client_of,
    outcome,
    outcomes,
    serving_bytes,
    transports,
)
from tests.support.models.upstream import Act, Upstream, answer, hang, request, stream, upstream

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]
STEPS = 40  # of the loop, in which a whole request has gone and come


async def said(client: httpx2.AsyncClient, server: Upstream) -> str:
    async with asyncio.timeout(LIMIT_S):
        return (await client.post(server.base_url, content=b"{}")).text


async def nothing_rests(transport: LeanTransport) -> None:
    async with asyncio.timeout(LIMIT_S):
        while transport.idle:  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0)


# --- used again ---


@pytest.mark.parametrize("act", [answer("hi"), stream("h", "i"), answer("hi", connection="keep-alive")])
async def test_a_connection_is_used_again(act: Act) -> None:
    async with upstream(act, repeat=True) as server, client_of() as client:
        assert [await said(client, server) for _ in range(5)] == ["hi"] * 5
        assert server.connections == 1


async def test_a_connection_that_the_server_ends_is_not() -> None:
    async with upstream(answer("hi", connection="close"), repeat=True) as server, client_of() as client:
        assert [await said(client, server) for _ in range(3)] == ["hi"] * 3
        assert server.connections == 3


async def test_a_connection_that_has_ended_while_it_rested_is_not() -> None:
    async def once(reader: StreamReader, writer: StreamWriter) -> None:
        await answer("hi")(reader, writer)
        writer.close()

    async with upstream(once, repeat=True) as server, client_of(transport := LeanTransport(LIMITS)) as client:
        for number in range(1, 4):
            assert await said(client, server) == "hi"
            await nothing_rests(transport)
            assert server.connections == number


@pytest.mark.parametrize("late", [b"x", b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"])
async def test_words_that_nobody_has_asked_for_are_no_answer_to_the_next_request(late: bytes) -> None:
    async def talkative(reader: StreamReader, writer: StreamWriter) -> None:
        await answer("hi")(reader, writer)
        await writer.drain()
        writer.write(late)

    async with upstream(talkative, repeat=True) as server, client_of() as client:
        assert [await said(client, server) for _ in range(3)] == ["hi"] * 3


async def test_what_lies_unread_when_a_connection_is_needed_again_ends_it() -> None:
    writers = list[StreamWriter]()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        writers.append(writer)
        await answer("hi")(reader, writer)

    async with upstream(serve, repeat=True) as server, client_of() as client:
        assert await said(client, server) == "hi"
        writers[0].write(OK + b"content-length: 4\r\n\r\nevil")  # sent at once, and not told of by the loop yet
        assert await said(client, server) == "hi"


@pytest.mark.parametrize(("expiry_s", "rest"), [(60.0, 3), (0.05, 0)])
async def test_so_many_rest_and_no_more_and_not_for_long(expiry_s: float, rest: int) -> None:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=3, keepalive_expiry=expiry_s)
    transport = LeanTransport(limits)
    async with upstream(answer("hi"), repeat=True) as server, client_of(transport) as client:
        async with asyncio.TaskGroup() as all_at_once:
            for _ in range(20):
                all_at_once.create_task(said(client, server))
        assert len(transport.idle) <= 3
        if rest:
            assert server.connections == 20 and len(transport.idle) == rest
        else:
            await nothing_rests(transport)


async def test_an_answer_that_is_not_read_to_its_end_ends_its_connection() -> None:
    async with upstream(stream("a", then=hang), repeat=True) as server, client_of() as client:
        for _ in range(3):
            async with client.stream("POST", server.base_url, content=b"{}") as response:
                assert response.status_code == 200
        assert server.connections == 3


# --- given up ---


@pytest.mark.parametrize("steps", range(STEPS))
async def test_whoever_is_cancelled_at_any_moment_leaves_nothing_behind(steps: int) -> None:
    gone, came = asyncio.Semaphore(0), 0

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal came
        came += 1
        if (asked := await request(reader)) and asked.body == b"again":
            writer.write(OK + b"content-length: 2\r\n\r\nhi")
        elif asked:
            writer.write(OK + b"content-length: 9\r\n\r\nhello")
        with suppress(ConnectionError):
            await reader.read()
        gone.release()

    async with serving_bytes(serve) as url, client_of(transport := LeanTransport(LIMITS)) as client:
        asking = asyncio.create_task(client.post(url, content=b"{}"))
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not transport.used
        async with asyncio.timeout(LIMIT_S):
            assert (await client.post(url, content=b"again")).text == "hi"
            await client.aclose()
            for _ in range(came):
                await gone.acquire()


async def test_closing_the_client_ends_what_is_under_way() -> None:
    async with upstream(stream("a", then=hang)) as server:
        client = client_of()
        async with asyncio.timeout(LIMIT_S):
            async with client.stream("POST", server.base_url, content=b"{}") as response:
                await client.aclose()
                with pytest.raises(httpx2.RemoteProtocolError):
                    await response.aread()


async def test_many_at_once_get_what_is_theirs() -> None:
    async def echo(reader: StreamReader, writer: StreamWriter) -> None:
        while asked := await request(reader):
            await stream(*(asked.body[at : at + 1] for at in range(len(asked.body))))(reader, writer)

    async def ask(number: int) -> None:
        body = f"{number:06}".encode() * 5
        assert (await client.post(url, content=body)).content == body

    async with serving_bytes(echo) as url, client_of() as client, asyncio.timeout(LIMIT_S):
        async with asyncio.TaskGroup() as all_at_once:
            for number in range(100):
                all_at_once.create_task(ask(number))


# --- held back ---


async def test_a_reader_that_waits_lets_the_server_wait() -> None:
    written = 0

    async def pour(reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal written
        await request(reader)
        writer.write(OK + b"content-length: %d\r\n\r\n" % (20 * len(LARGE)))
        for _ in range(20):
            writer.write(LARGE)
            await writer.drain()
            written += 1

    async with serving_bytes(pour) as url, client_of() as client, asyncio.timeout(LIMIT_S):
        async with client.stream("POST", url, content=b"{}") as response:
            for _ in range(1000):
                await asyncio.sleep(0)
            assert written < 15  # what the system's own buffers take
            assert sum([len(block) async for block in response.aiter_raw()]) == 20 * len(LARGE)


async def test_a_large_request_arrives() -> None:
    async def count(reader: StreamReader, writer: StreamWriter) -> None:
        asked = await request(reader)
        assert asked
        await answer(str(len(asked.body)))(reader, writer)

    assert (await outcomes(count, content=LARGE))["lean"] == (200, b"3000000")


async def test_a_request_in_pieces_arrives() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"hello", b"", b" world"):
            yield piece

    async def repeat(reader: StreamReader, writer: StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await answer(await reader.readuntil(b"0\r\n\r\n"))(reader, writer)

    async with serving_bytes(repeat) as url:
        for transport in transports().values():
            got = await outcome(transport, url, content=pieces())
            assert got == (200, b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")


async def test_a_server_that_refuses_a_large_request_early_is_heard() -> None:
    async def refuse(reader: StreamReader, writer: StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await answer("too large", 413)(reader, writer)
        await writer.drain()
        await reader.read(100_000)
        await reader.read()

    async with serving_bytes(refuse) as url:
        assert await outcome(LeanTransport(LIMITS), url, content=LARGE * 4) == (413, b"too large")


async def test_a_server_that_takes_no_request_is_given_up() -> None:
    never = asyncio.Event()

    async def deaf(reader: StreamReader, writer: StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await never.wait()

    async with serving_bytes(deaf) as url:
        for transport in transports().values():
            async with client_of(transport, write=0.05) as client:
                with pytest.raises(httpx2.WriteTimeout):
                    await client.post(url, content=LARGE * 4)
        never.set()

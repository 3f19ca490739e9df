"""The tap of a connection: what it takes and what it refuses are the body, in its order, whatever the server does."""

from __future__ import annotations

import asyncio
import gzip
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from itertools import cycle
from typing import Any

import httpx2
import pytest

from app.models.http.transport.lean import LeanResponse
from tests.support.models.sockets import CHUNKED, FALLEN_SILENT_S, LIMIT_S, LOOPS, OK, client_of
from tests.support.models.upstream import Act, hang, stream, upstream

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]
PARTS = [b"%d " % number for number in range(60)]
Tap = Callable[[bytes], bool]


async def read(act: Act, tap: Tap, got: list[bytes], silence_s: float = LIMIT_S) -> None:
    """Add to `got` what the tap refuses."""
    async with asyncio.timeout(LIMIT_S), upstream(act) as server, client_of(read=silence_s) as client:
        async with client.stream("GET", server.base_url) as response:
            assert isinstance(response, LeanResponse)
            response.tap(tap)
            async with aclosing(response.aiter_bytes()) as blocks:
                async for block in blocks:
                    got.append(block)  # noqa: PERF401 (the tap adds to it as well)


def taking(got: list[bytes], turns: Sequence[bool]) -> Tap:
    """A tap that takes or refuses, in these turns."""
    turn = cycle(turns)

    def tap(block: bytes) -> bool:
        if next(turn):
            got.append(block)
            return True
        return False

    return tap


@pytest.mark.parametrize("turns", [[True], [False], [True, False], [False, False, True], [True, True, True, False]])
async def test_what_is_taken_and_what_is_not_are_the_body_in_its_order(turns: list[bool]) -> None:
    got: list[bytes] = []
    await read(stream(*PARTS), taking(got, turns), got)
    assert b"".join(got) == b"".join(PARTS)


async def test_what_arrives_one_by_one_is_taken_while_the_reader_waits() -> None:
    taken, got = list[bytes](), list[bytes]()

    async def one_by_one(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(CHUNKED)
        for number, part in enumerate(PARTS, start=1):
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            while len(got) + len(taken) < number:  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    await read(one_by_one, taking(taken, [True]), got)
    assert [*got, *taken] == PARTS
    assert len(taken) >= len(PARTS) - 1  # the first may have come with the head


async def test_a_body_that_has_to_be_decoded_is_not_offered() -> None:
    body = gzip.compress(b"hello", mtime=0)
    head = OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    offered, got = list[bytes](), list[bytes]()

    async def compressed(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(head + body)

    await read(compressed, taking(offered, [True]), got)
    assert (b"".join(got), offered) == (b"hello", [])


async def test_a_server_that_falls_silent_behind_what_was_taken_is_given_up() -> None:
    got: list[bytes] = []
    with pytest.raises(httpx2.ReadTimeout):
        await read(stream(*PARTS, then=hang), taking(got, [True]), got, FALLEN_SILENT_S)
    assert b"".join(got) == b"".join(PARTS)


async def test_the_next_answer_of_the_connection_is_not_offered() -> None:
    taken: list[bytes] = []
    async with asyncio.timeout(LIMIT_S), upstream(stream(*PARTS), repeat=True) as server, client_of() as client:
        async with client.stream("GET", server.base_url) as response:
            assert isinstance(response, LeanResponse)
            response.tap(taking(taken, [True]))
            rest = await response.aread()
        before = [*taken]
        assert len(b"".join(before)) + len(rest) == len(b"".join(PARTS))
        assert (await client.get(server.base_url)).content == b"".join(PARTS)
        assert (taken, server.connections) == (before, 1)


async def test_an_error_of_the_tap_breaks_the_answer_and_nothing_else() -> None:
    loop, errors, got = asyncio.get_running_loop(), list[dict[str, Any]](), list[bytes]()
    loop.set_exception_handler(lambda _, context: errors.append(context))

    def broken(_: bytes) -> bool:
        raise ZeroDivisionError("planted")

    async def slowly(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(CHUNKED + b"5\r\nhello\r\n")  # it comes with the head, so that it is not offered
        while not got:  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0)
        writer.write(b"5\r\nhello\r\n")
        await hang(reader, writer)

    with pytest.raises(httpx2.ReadError):
        await read(slowly, broken, got)
    assert [type(error["exception"]) for error in errors] == [ZeroDivisionError]

"""web_fetch where servers fail, are slow, never end, send bombs, or are not who they say."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import tracemalloc
import zlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme

from tests.support.fetching import HERE, OK, PLAIN, World, fetch, raw, read
from tests.support.models.upstream import Act, answer, hang, left, upstream
from tools.base.outcome import Progress, ToolFailed
from tools.builtin.web_fetch import FetchLimits, WebFetch
from tools.tool import Context

pytestmark = pytest.mark.anyio

SOON = FetchLimits(seconds=0.4)


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (answer("x", 404), "answers 404 Not Found: check the address"),
        (answer("x", 403), "answers 403 Forbidden: it does not want to be fetched"),
        (answer("x", 429), "answers 429 Too Many Requests: wait before"),
        (answer("x", 500), "answers 500 Internal Server Error: try another page"),
        (answer("x", 799), "answers 799: try another page"),
        (answer("x", 304), "answers 304 Not Modified"),
        (answer("", 302), "answers 302 Found"),
        (answer("x", kind="image/png"), "is image/png, which is not text: look for a page"),
        (answer("x", kind="application/octet-stream"), "is application/octet-stream, which is not text"),
        (answer("x", kind="text/event-stream"), "is text/event-stream, which is not text"),
        (answer("x", kind="text/html\tx/y"), "which is not text"),
        (answer(b"\x7fELF\0\0", kind=PLAIN), "binary file"),
        (answer(b"\0", kind=""), "binary file"),
        (answer("x", kind=PLAIN, content_encoding="br"), "is packed as br, which was not requested"),
        (answer("x", kind=PLAIN, content_encoding="gzip, gzip"), "is packed as gzip, gzip, which was not requested"),
        (answer("no gzip", kind=PLAIN, content_encoding="gzip"), "broke off or is not sent as HTTP should be"),
        (raw(OK + b"x: " + b"y" * 200_000 + b"\r\n\r\nx"), "is not sent as HTTP should be"),
        (raw(OK + b"x: y\r\n" * 100_000 + b"\r\nx"), "is not sent as HTTP should be"),
        (raw(OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n"), "is not sent as HTTP should be"),
        (raw(OK + b"transfer-encoding: chunked\r\n\r\nff\r\nhello"), "broke off"),
        (raw(OK + b"content-length: 100\r\n\r\nhello"), "broke off"),
        (raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "is not sent as HTTP should be"),
        (raw(b""), "broke off"),
    ],
)  # fmt: skip
async def test_a_fault_says_what_to_do(act: Act, told: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        await read(act)
    assert told in str(failed.value)
    assert len(str(failed.value)) < 1_000


async def test_nobody_there() -> None:
    async with upstream() as server:
        port = server.port
    with pytest.raises(ToolFailed, match=r"127\.0\.0\.1 does not answer .*check the address"):
        await fetch(f"http://{HERE}:{port}/", allowed=(HERE,))
    with pytest.raises(ToolFailed, match=r"There is no host no-such\.example: check the name"):
        await fetch("http://no-such.example/")


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async with upstream(answer("here", kind=PLAIN)) as server:
        world = World({"site.example": [["127.0.0.9", HERE]]})
        assert await fetch(f"http://site.example:{server.port}/", world, allowed=("site.example",)) == "here"
        assert (world.looked_up, world.connections) == (["site.example"], 2)


async def drip(reader: StreamReader, writer: StreamWriter) -> None:
    """One byte now and then, until the client leaves."""
    while not reader.at_eof():
        writer.write(b"x")
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.02)


@pytest.mark.parametrize(
    "act",
    [hang, raw(b"HTTP/1.1 200 OK\r\nx: ", then=drip), raw(OK + b"\r\n", then=drip)],
    ids=["silence", "slow headers", "slow body"],
)
async def test_a_slow_server_is_left(act: Act) -> None:
    with pytest.raises(ToolFailed, match=r"was not there after 0\.4 s \(\d+ bytes came\): try another page"):
        await read(act, limits=SOON)


async def test_a_slow_look_up_is_left() -> None:
    async def resolve(host: str, port: int) -> list[object]:
        await asyncio.Event().wait()
        return []

    tool = WebFetch(resolve, limits=SOON)  # type: ignore[arg-type]
    async with aclosing(tool({"url": "http://slow.example/"}, Context(Path("/")))) as news:
        with pytest.raises(ToolFailed, match="was not there after"):
            await anext(news)


async def endless(reader: StreamReader, writer: StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b"line of text\n" * 5_000)
        await writer.drain()


async def test_an_endless_body_is_read_as_far_as_the_limit() -> None:
    text = await read(raw(OK + b"\r\n", then=endless), limits=FetchLimits(bytes=1_000_000))
    assert text.startswith("line of text\n")
    assert "[The page is longer; only its beginning was read.]" in text and "of 1000000. Next page" in text


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
async def test_a_bomb_is_unpacked_as_far_as_the_limit(packing: str) -> None:
    packer = zlib.compressobj(9, wbits=31 if packing == "gzip" else 15)
    bomb = b"".join(packer.compress(b"a" * 1_000_000) for _ in range(200)) + packer.flush()
    assert len(bomb) < 250_000
    act = answer(bomb, kind=PLAIN, content_encoding=packing)
    await read(answer("warm", kind=PLAIN))
    tracemalloc.start()
    try:
        text = await read(act, limits=FetchLimits(bytes=1_000_000))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert "of 1000000. Next page" in text


async def test_a_packed_page_is_unpacked() -> None:
    assert await read(answer(gzip.compress(b"hello"), kind=PLAIN, content_encoding="gzip")) == "hello"
    assert await read(answer(zlib.compress(b"hello"), kind=PLAIN, content_encoding="deflate")) == "hello"


async def test_what_has_come_is_told_while_it_comes() -> None:
    seen: list[Progress] = []
    more = asyncio.Event()

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(OK + b"\r\nhello")
        await writer.drain()
        await more.wait()
        writer.close()

    async with upstream(act) as server:
        tool = WebFetch()
        context = Context(Path("/"), private_hosts=(HERE,))
        async with aclosing(tool({"url": f"http://{HERE}:{server.port}/"}, context)) as news:
            async for one in news:
                if isinstance(one, Progress):
                    seen.append(one)
                    if one.bytes:
                        more.set()
    assert seen[-1].bytes == 5


async def test_whoever_leaves_closes_the_connection() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        asked.set()
        await left(gone)(reader, writer)

    async with upstream(act) as server:
        fetching = asyncio.create_task(fetch(f"http://{HERE}:{server.port}/", allowed=(HERE,)))
        async with asyncio.timeout(30):
            await asked.wait()
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
            await gone.wait()


@asynccontextmanager
async def encrypted(ca: trustme.CA, name: str, named: list[str | None]) -> AsyncGenerator[int, None]:
    """A server with a certificate for `name`; `named` is which names clients asked it for."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(name).configure_cert(context)
    context.sni_callback = lambda _connection, asked, _context: named.append(asked)

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"connection: close\r\ncontent-length: 4\r\n\r\nsafe")
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_tls_is_checked_for_the_name_and_not_for_the_address() -> None:
    ca, named = trustme.CA(), list[str | None]()
    trusted = ssl.create_default_context()
    ca.configure_trust(trusted)
    names = {"site.example": [[HERE]], "evil.example": [[HERE]]}
    async with encrypted(ca, "site.example", named) as port:
        world = World(names, trusted=trusted)
        assert await fetch(f"https://site.example:{port}/", world, allowed=("site.example",)) == "safe"
        assert named == ["site.example"]
        with pytest.raises(ToolFailed, match=r"No safe connection to evil\.example \(.*evil\.example"):
            await fetch(f"https://evil.example:{port}/", world, allowed=("127.0.0.0/8",))


async def test_a_certificate_that_nobody_trusts_is_said_to_be_one() -> None:
    async with encrypted(trustme.CA(), "site.example", []) as port:
        tool = WebFetch(World({"site.example": [[HERE]]}).resolve)
        context = Context(Path("/"), private_hosts=("site.example",))
        async with aclosing(tool({"url": f"https://site.example:{port}/"}, context)) as news:
            with pytest.raises(ToolFailed, match=r"No safe connection to site\.example .*Nothing was fetched"):
                async for _ in news:
                    pass


async def test_a_server_that_speaks_no_tls_is_said_to_be_unsafe() -> None:
    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ToolFailed, match="No safe connection to"):
            await fetch(f"https://{HERE}:{port}/", allowed=(HERE,))


async def test_a_character_that_the_limit_cuts_does_not_change_the_encoding() -> None:
    assert "é" * 10 in await read(answer("é" * 1_000, kind=PLAIN), limits=FetchLimits(bytes=1_001))

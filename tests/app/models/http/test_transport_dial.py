"""How connections of our transport begin: which address is taken, whom TLS trusts, and when httpx2's own serves."""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest
import trustme

from app.models.http.client import LIMITS, model_client
from app.models.http.transport.dial import first_answer
from app.models.http.transport.lean import LeanTransport
from tests.support.models.sockets import (
    LIMIT_S,
    LOOPS,
    OK,
    SILENCE_S,
    Serve,
    answering,
    bounded,
    client_of,
    close_at_once,
    outcome,
    serving_bytes,
    transports,
)
from tests.support.models.upstream import hang

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]
HERE = "127.0.0.1"


@contextmanager
def nobody_answers() -> Iterator[int]:
    """A port that takes no connection and refuses none."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind((HERE, 0))
        full.listen(0)
        port = full.getsockname()[1]
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex((HERE, port))
        yield port


@contextmanager
def nobody_listens() -> Iterator[int]:
    with socket.socket() as bound:
        bound.bind((HERE, 0))
        yield bound.getsockname()[1]


async def test_a_host_that_refuses_is_told_from_one_that_is_silent() -> None:
    with nobody_listens() as refuses, nobody_answers() as silent:
        for transport in transports().values():
            async with client_of(transport, connect=LIMIT_S) as client:
                with pytest.raises(httpx2.ConnectError):
                    await client.get(f"http://localhost:{refuses}/")
                with pytest.raises(httpx2.ConnectTimeout):
                    await client.get(f"http://localhost:{silent}/", timeout=SILENCE_S)


async def test_the_address_that_answers_is_taken() -> None:
    with nobody_answers() as silent, nobody_listens() as refuses, socket.create_server((HERE, 0)) as listener:
        here = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (HERE, port)) for port in (silent, refuses)]
        good = (socket.AF_INET, socket.SOCK_STREAM, 0, "", listener.getsockname())
        async with asyncio.timeout(LIMIT_S):
            with await first_answer([*here, good, here[0]]) as sock:
                assert sock.getpeername() == listener.getsockname()
            with pytest.raises(ConnectionRefusedError):
                await first_answer([here[1], here[1]])


@pytest.mark.parametrize("url", ["ftp://example.org/", "example.org", "http+unix://x/"])
async def test_another_protocol_is_not_spoken(url: str) -> None:
    for transport in transports().values():
        async with client_of(transport) as client:
            with pytest.raises(httpx2.UnsupportedProtocol):
                await client.get(url)


@pytest.mark.parametrize("value", ["sk-secret\r\nx-evil: 1", "sk-secret\n", " sk-secret", "sk-\0secret"])
async def test_a_header_cannot_end_early_and_its_value_is_not_repeated(value: str) -> None:
    async with client_of() as client:
        with pytest.raises(httpx2.LocalProtocolError) as refused:
            await client.get("http://127.0.0.1:1/", headers={"authorization": value})
    assert "secret" not in str(refused.value)


# --- TLS ---


@asynccontextmanager
async def encrypted(ca: trustme.CA, serve: Serve) -> AsyncGenerator[tuple[str, list[str | None]], None]:
    """A server whose certificate is for `localhost`, and the names by which it was asked for."""
    context, named = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), list[str | None]()
    ca.issue_cert("localhost").configure_cert(context)
    context.sni_callback = lambda _connection, asked, _context: named.append(asked)
    server = await asyncio.start_server(bounded(serve), HERE, 0, ssl=context)
    async with server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}/", named


@contextmanager
def trusting(ca: trustme.CA | None) -> Iterator[dict[str, httpx2.AsyncBaseTransport]]:
    context = ssl.create_default_context()
    if ca:
        ca.configure_trust(context)
    yield {
        "lean": LeanTransport(LIMITS, verify=context),
        "stock": httpx2.AsyncHTTPTransport(limits=LIMITS, verify=context),
    }


@pytest.mark.parametrize(
    "serve", [answering(OK + b"content-length: 5\r\n\r\nhello", hang), answering(OK + b"\r\nhello", close_at_once)]
)
async def test_tls_is_spoken_with_whom_it_should_be(serve: Serve) -> None:
    ca = trustme.CA()
    async with encrypted(ca, serve) as (url, named):
        with trusting(ca) as both:
            assert {await outcome(one, url) for one in both.values()} == {(200, b"hello")}
            assert named == ["localhost", "localhost"]


async def test_tls_is_not_spoken_with_anybody_else() -> None:
    ca, other = trustme.CA(), trustme.CA()
    async with encrypted(ca, answering(OK + b"\r\nhello", close_at_once)) as (url, _):
        with trusting(other) as both:
            assert {await outcome(one, url) for one in both.values()} == {("ConnectError", b"")}
        with trusting(ca) as both:
            by_address = url.replace("localhost", HERE)
            assert {await outcome(one, by_address) for one in both.values()} == {("ConnectError", b"")}

    async def plainly(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        await reader.read()

    async with serving_bytes(plainly) as plain:
        with trusting(ca) as both:
            got = {await outcome(one, plain.replace("http:", "https:")) for one in both.values()}
            assert got == {("ConnectError", b"")}


async def test_whom_to_trust_may_stand_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with encrypted(ca, answering(OK + b"\r\nhello", close_at_once)) as (url, _):
        assert await outcome(LeanTransport(LIMITS, trust_env=True), url) == (200, b"hello")
        assert await outcome(LeanTransport(LIMITS, trust_env=False), url) == ("ConnectError", b"")


# --- which transport ---


@pytest.mark.parametrize(
    ("url", "proxies", "kind", "lean"),
    [
        ("http://127.0.0.1:1/v1", {}, "lean", True),
        ("https://api.example.org/v1", {}, "lean", True),
        ("https://api.example.org/v1", {}, "httpx2", False),
        ("https://api.example.org/v1", {"HTTPS_PROXY": "http://proxy:1"}, "lean", False),
        ("https://api.example.org/v1", {"NO_PROXY": "localhost"}, "lean", True),
        ("http://127.0.0.1:1/v1", {"HTTP_PROXY": "http://proxy:1"}, "lean", True),
    ],
)
async def test_httpx2_own_transport_serves_where_a_proxy_does(
    url: str, proxies: dict[str, str], kind: str, lean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in proxies.items():
        monkeypatch.setenv(name, value)
    async with model_client(url, transport="httpx2" if kind == "httpx2" else "lean") as client:
        assert isinstance(client._transport, LeanTransport) == lean

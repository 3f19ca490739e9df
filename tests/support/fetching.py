"""web_fetch with collaborators that keep a record, and pages on real servers of this machine."""

from __future__ import annotations

import ssl
from asyncio import StreamReader, StreamWriter
from contextlib import aclosing
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import httpx2

from tests.support.models.upstream import Act, upstream
from tools.base.outcome import Progress
from tools.builtin.web_fetch import FetchLimits, WebFetch
from tools.tool import Context
from tools.web.addresses import Address

HERE = "127.0.0.1"
HTML, PLAIN = "text/html", "text/plain"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


@dataclass
class World:
    """Names and their addresses, a list for each look-up (the last goes on), and what was asked of it."""

    names: dict[str, list[list[str]]] = field(default_factory=dict)
    answers: dict[str, httpx2.Response] = field(default_factory=dict)  # by address, in place of the network
    trusted: ssl.SSLContext | None = None
    looked_up: list[str] = field(default_factory=list)
    connections: int = 0
    requests: list[httpx2.Request] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> list[Address]:
        self.looked_up.append(host)
        if host not in self.names:
            raise OSError("no such name")
        answers = self.names[host]
        return [ip_address(one) for one in (answers.pop(0) if len(answers) > 1 else answers[0])]

    async def connect(self) -> httpx2.AsyncBaseTransport:
        self.connections += 1
        if self.answers:
            return httpx2.MockTransport(self._said)
        return httpx2.AsyncHTTPTransport(verify=self.trusted or ssl.create_default_context(), trust_env=False)

    def _said(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return self.answers[request.url.host]


async def fetch(
    url: str,
    world: World | None = None,
    *,
    allowed: tuple[str, ...] = (),
    offset: int = 0,
    limits: FetchLimits | None = None,
    seen: list[Progress] | None = None,
) -> str:
    """What the model is told. Raises ToolFailed."""
    world = world or World()
    text = ""
    tool = WebFetch(world.resolve, world.connect, limits)
    context = Context(Path("/"), private_hosts=allowed)
    async with aclosing(tool({"url": url, "offset": offset}, context)) as news:
        async for one in news:
            if not isinstance(one, Progress):
                text = one.text
            elif seen is not None:
                seen.append(one)
    return text


async def read(act: Act, *, offset: int = 0, limits: FetchLimits | None = None) -> str:
    """What the model is told of a page that a server answers with."""
    async with upstream(act) as server:
        url = f"http://{HERE}:{server.port}/"
        return await fetch(url, allowed=(f"{HERE}:{server.port}",), offset=offset, limits=limits)


def raw(*parts: bytes, then: Act | None = None) -> Act:
    """Bytes on the wire as they are; then the connection ends, or what `then` does."""

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then:
            await then(reader, writer)
        writer.close()

    return act

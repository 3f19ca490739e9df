"""The requests of one connection to a host of secrets: each is read, given its values, and passed on.

The command's side is an HTTP server, ended here; the host's side is a client of its own. h11 reads and writes both, so
that no request is passed on that the two sides could read differently. Bodies are streamed, both ways at a time.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import h11

from tools.sandbox.network.injection import Headers, Mask, Origin, with_values
from tools.sandbox.network.proxy import BLOCK, MAX_HEAD, NOT_PASSED_ON, Streams, answer
from tools.sandbox.network.secrets import BoxSecret

Unpack = Callable[[bytes], Iterator[bytes]]

_LINGER_S = 5.0  # for a body that is still being sent when its answer has come
# A part of an answer, or one that is compressed, could hold a part of a value that is not recognised.
_NOT_ASKED_FOR = (*NOT_PASSED_ON, b"te", b"trailer", b"accept-encoding", b"range", b"if-range", b"http2-settings")
_NOT_ANSWERED = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"upgrade", b"trailer", b"alt-svc"))


class NotPassedOn(Exception):
    """A request that is not passed on, or an answer that is not. The message says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Gone(Exception):
    """One side has ended the connection."""


class Peer:
    """One side of the connection, as events of h11."""

    def __init__(self, role: type[h11.CLIENT | h11.SERVER], streams: Streams, received: bytes = b"") -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self.reader, self.writer = streams
        if received:
            self.http.receive_data(received)

    async def receive(self) -> h11.Event:
        """Raises Gone, NotPassedOn."""
        try:
            while (event := self.http.next_event()) is h11.NEED_DATA:
                self.http.receive_data(await self.reader.read(BLOCK))
        except h11.RemoteProtocolError as error:
            raise NotPassedOn(error.error_status_hint, f"This is not HTTP/1.1 as it is read here: {error}.") from None
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise Gone
        assert isinstance(event, h11.Event)
        return event

    async def send(self, *events: h11.Event) -> None:
        """Raises h11.LocalProtocolError."""
        self.writer.write(b"".join(self.http.send(event) or b"" for event in events))
        await self.writer.drain()

    @property
    def is_done(self) -> bool:
        return self.http.our_state is h11.DONE and self.http.their_state is h11.DONE


class Exchange:
    """One connection from the box, and the host's. `withhold` notes the secrets that a request does not get."""

    def __init__(
        self,
        origin: Origin,
        secrets: tuple[BoxSecret, ...],
        mask: Mask,
        withhold: Callable[[str], None],
    ) -> None:
        self._origin = origin
        self._secrets = secrets
        self._mask = mask
        self._withhold = withhold

    async def __call__(self, here: Streams, there: Streams, received: bytes = b"") -> None:
        """Serve until either side ends. `received` was read already."""
        self._here = Peer(h11.SERVER, here, received)
        self._there = Peer(h11.CLIENT, there)
        try:
            while await self._one():
                self._here.http.start_next_cycle()
                self._there.http.start_next_cycle()
        except Gone:
            pass
        except NotPassedOn as refused:
            await self._refuse(refused)
        except h11.LocalProtocolError:  # whose message may hold the header
            await self._refuse(NotPassedOn(400, "With the secret in it a header cannot be sent."))
        finally:
            self._here.writer.close()  # at once: the host may take its time to end its own connection

    async def _one(self) -> bool:
        """Pass on one request and its answer; return whether there can be another. Raises Gone, NotPassedOn."""
        # No longer than the host keeps its connection: a program that sees it closed opens a new one.
        async with tasks(self._here.receive(), self._there.reader.read(1)) as (asked, closed):
            await asyncio.wait({asked, closed}, return_when=asyncio.FIRST_COMPLETED)
            if closed.done() or not isinstance(request := asked.result(), h11.Request):
                raise Gone
        await self._there.send(self._passed_on(request))
        async with tasks(self._send_body(), self._send_answer()) as (up, down):
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if up.done():
                up.result()
            await down
            await asyncio.wait({up}, timeout=_LINGER_S)
        return self._here.is_done and self._there.is_done

    def _passed_on(self, request: h11.Request) -> h11.Request:
        """Raises NotPassedOn."""
        origin, method, headers = self._origin, request.method, list(request.headers.raw_items())
        if request.http_version not in (b"1.0", b"1.1"):
            raise NotPassedOn(505, "HTTP/1.1 alone is spoken with a host of a secret.")
        if method in (b"CONNECT", b"TRACE"):
            raise NotPassedOn(501, f"{method.decode()} is not passed on to a host of a secret.")
        if not request.target.startswith((b"/", b"*")):
            raise NotPassedOn(400, "Ask for a path, not for a whole URL, in a connection that goes to one host.")
        named = dict(request.headers)
        host = named.get(b"host", b"").decode("latin-1").lower()
        if host not in {"", *origin.spellings}:
            raise NotPassedOn(421, f"The Host header must name {origin.host}, to which this connection goes.")
        if b"upgrade" in named:
            raise NotPassedOn(
                501, "No other protocol, such as WebSocket, is spoken with a host of a secret: use HTTP/1.1."
            )
        if b"transfer-encoding" in named and b"content-length" in named:
            raise NotPassedOn(400, "Send Content-Length or Transfer-Encoding, not both.")
        dropped = {*_NOT_ASKED_FOR, *(word.strip().lower() for word in named.get(b"connection", b"").split(b","))}
        kept = [(name, value) for name, value in headers if name.lower() not in dropped]

        def withhold(secret: BoxSecret) -> None:
            shown = ascii(f"{method.decode()} {request.target.decode()}"[:80])[1:-1]
            self._withhold(f"the secret {secret.name} is for {', '.join(secret.paths)} alone, and not in {shown}")

        filled = with_values(self._secrets, method, request.target, kept, withhold)
        own = [(b"Host", min(origin.spellings, key=len).encode()), (b"Accept-Encoding", b"identity")]
        return h11.Request(method=method, target=request.target, headers=[*own, *filled])

    async def _send_body(self) -> None:
        """To its end, or until the host takes no more: it may have answered. Raises Gone, NotPassedOn."""
        passed: h11.Event | None = None
        while not isinstance(passed, h11.EndOfMessage):
            match await self._here.receive():
                case h11.Data(data=data):
                    passed = h11.Data(data=bytes(data))
                case h11.EndOfMessage():
                    passed = h11.EndOfMessage()
                case _:
                    raise Gone
            try:
                await self._there.send(passed)
            except OSError:
                return

    async def _send_answer(self) -> None:
        """Raises Gone, NotPassedOn."""
        unpack: Unpack = _as_it_is
        while True:
            try:
                event = await self._there.receive()
            except NotPassedOn:
                raise NotPassedOn(502, f"{self._origin.host} does not answer in HTTP/1.1.") from None
            match event:
                case h11.InformationalResponse(status_code=100):
                    await self._here.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
                case h11.InformationalResponse():
                    pass
                case h11.Response():
                    head, unpack = self._head(event)
                    await self._here.send(head)
                case h11.Data(data=data):
                    for piece in unpack(bytes(data)):
                        if masked := self._mask.feed(piece):
                            await self._here.send(h11.Data(data=masked))
                case h11.EndOfMessage():
                    if rest := self._mask.flush():
                        await self._here.send(h11.Data(data=rest))
                    return await self._here.send(h11.EndOfMessage())
                case _:
                    raise Gone

    def _head(self, response: h11.Response) -> tuple[h11.Response, Unpack]:
        """The head of the answer, and how its body is unpacked. Raises NotPassedOn."""
        mask, named = self._mask, dict(response.headers)
        dropped = {*_NOT_ANSWERED}
        unpack: Unpack = _as_it_is
        packing = named.get(b"content-encoding", b"identity").lower()
        if packing in (b"gzip", b"x-gzip", b"deflate"):  # although it was asked not to
            dropped |= {b"content-encoding", b"content-length"}
            unpack = Unpacking()
        elif packing != b"identity":
            raise NotPassedOn(502, f"{self._origin.host} compressed its answer, which cannot be read here.")
        headers: Headers = [
            (name, mask.whole(value))
            for name, value in response.headers.raw_items()
            if name.lower() not in dropped and not mask.is_in(name)
        ]
        if named.get(b"connection", b"").lower() == b"close":
            headers.append((b"Connection", b"close"))
        reason = mask.whole(bytes(response.reason))
        return h11.Response(status_code=response.status_code, headers=headers, reason=reason), unpack

    async def _refuse(self, refused: NotPassedOn) -> None:
        """Answer in words where an answer is still possible."""
        if self._here.http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer(self._here.writer, refused.status, str(refused))
            await self._here.writer.drain()


@asynccontextmanager
async def tasks(*work: Coroutine[Any, Any, Any]) -> AsyncGenerator[list[asyncio.Task[Any]], None]:
    """Run these at a time, none of them longer than the block."""
    begun = [asyncio.create_task(one) for one in work]
    try:
        yield begun
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


def _as_it_is(data: bytes) -> Iterator[bytes]:
    yield data


class Unpacking:
    """Unpacks gzip and deflate in pieces, so that a bomb takes no memory."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """Raises NotPassedOn."""
        while data:
            try:
                yield self._unpacker.decompress(data, BLOCK)
            except zlib.error:
                raise NotPassedOn(502, "The answer is compressed, and broken.") from None
            data = self._unpacker.unconsumed_tail
            if self._unpacker.eof and (data := self._unpacker.unused_data):  # gzip may have several parts
                self._unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

"""HTTP client for model servers, and normalisation of their URLs."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2
from msgspec import Struct

from app.models.http.transport.lean import LeanTransport, head_of
from tools.base.hidden_fields import repr_without

CONNECT_LIMIT_S = 10.0
INACTIVITY_S = 300.0
# Hundreds of idle connections slow every request down. Active ones are limited per endpoint (max_requests).
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=10)
# A kept-alive connection that the server has closed, without notice, fails only when it is used.
CLOSED = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
PASTED = ("/chat/completions", "/messages", "/models")  # paths that users paste with the base URL
MOST_PREPARED = 32  # URLs and keys of one client
NO_BODY = httpx2.ByteStream(b"")
TRANSIENT = (408, 425, 429)  # as are all 5xx


TransportKind = Literal["lean", "httpx2"]
T = TypeVar("T")


class CompletionRequest(Struct, frozen=True):
    """A request to POST. `key` is redacted from error texts; `inactivity_s` overrides the client's inactivity limit."""

    url: str
    content: bytes
    headers: Mapping[str, str]
    key: str | None = None
    inactivity_s: float | None = None
    traceparent: str = ""

    __repr__ = repr_without("headers", "key")


class ModelClient(httpx2.AsyncClient):
    """A client with a short way for completion requests, which differ in nothing but their body.

    Of what httpx2 does for a request only cookies matter here; without them `lean` is called directly.
    """

    def __init__(self, lean: LeanTransport | None, **options: Any) -> None:
        super().__init__(transport=lean, **options)
        self._lean = lean
        self._prepared = lru_cache(MOST_PREPARED)(self._prepare)  # nothing else of a request changes

    async def send_completion(self, completion: CompletionRequest) -> httpx2.Response:
        """POST a body; return the response with its own unread. Raises httpx2.HTTPError and httpx2.InvalidURL."""
        prepared = self._prepared(completion.url, tuple(completion.headers.items()), completion.inactivity_s)
        if self._lean is None or self.cookies or self.is_closed:
            return await self._send_by_httpx2(prepared, completion.content, completion.traceparent)
        content, head = completion.content, prepared.head
        if completion.traceparent:
            head += b"traceparent: %s\r\n" % completion.traceparent.encode()
        head += b"content-length: %d\r\n\r\n" % len(content)
        try:
            response = await self._lean.send(prepared.request, head, httpx2.ByteStream(content))
        except httpx2.RequestError as error:
            error.request = prepared.request
            raise
        response.request = prepared.request
        if response.sets_cookies:  # a load balancer's
            self.cookies.extract_cookies(response)
        return response

    def _prepare(self, url: str, headers: tuple[tuple[str, str], ...], inactivity_s: float | None) -> _Prepared:
        parsed = httpx2.URL(url)
        limits = self.timeout.as_dict()
        if inactivity_s is not None:
            limits["read"] = inactivity_s
        fields = {
            "host": parsed.netloc.decode("ascii"),
            **self.headers,
            "content-type": "application/json",
            "accept": "text/event-stream",
            **dict(headers),
        }
        request = httpx2.Request("POST", parsed, headers=fields, stream=NO_BODY, extensions={"timeout": limits})
        return _Prepared(request, head_of(request).removesuffix(b"\r\n"))

    async def _send_by_httpx2(self, prepared: _Prepared, content: bytes, traceparent: str) -> httpx2.Response:
        of = prepared.request
        fields = [*of.headers.raw, (b"content-length", b"%d" % len(content))]
        if traceparent:
            fields.append((b"traceparent", traceparent.encode()))
        stream = httpx2.ByteStream(content)
        request = httpx2.Request(of.method, of.url, headers=fields, stream=stream, extensions=dict(of.extensions))
        if self.cookies:
            self.cookies.set_cookie_header(request)
        response = await self.send(request, stream=True)
        request.stream = NO_BODY  # a long conversation is not held in memory while it is answered
        return response


class _Prepared(Struct, frozen=True):
    """A request without its body, and its head but for the length of that."""

    request: httpx2.Request
    head: bytes

    __repr__ = repr_without("head")


def model_client(
    base_url: str, *, inactivity_s: float = INACTIVITY_S, transport: TransportKind = "lean"
) -> ModelClient:
    """Return a client for one model server. Proxies of the environment apply to remote hosts only.

    Raises OSError, ValueError, ImportError, httpx2.InvalidURL for invalid proxies or certificate files in the
    environment: here, not in the middle of a run.
    """
    timeout = httpx2.Timeout(inactivity_s, connect=min(CONNECT_LIMIT_S, inactivity_s), pool=None)
    # A compressed stream would arrive in blocks; identity keeps it live.
    headers = {"accept-encoding": "identity", "user-agent": "dragoman"}
    trust_env = not is_local(base_url)
    lean = transport == "lean" and not (trust_env and has_proxies())
    return ModelClient(
        _lean(base_url, trust_env=trust_env) if lean else None,
        limits=LIMITS,
        timeout=timeout,
        headers=headers,
        trust_env=trust_env,
    )


def _lean(base_url: str, *, trust_env: bool) -> LeanTransport:
    if urlsplit(base_url).scheme != "https":
        return LeanTransport(LIMITS, trust_env=trust_env)
    return LeanTransport(LIMITS, verify=httpx2.create_ssl_context(trust_env=trust_env))


def has_proxies() -> bool:
    """Return whether the environment names a proxy, which only httpx2's own transport supports."""
    return bool(getproxies().keys() - {"no"})


def is_local(url: str) -> bool:
    """Return whether the host is this machine or in a private network."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith((".localhost", ".local")):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def base_url_of(url: str) -> str:
    """Normalise a base URL: add `/v1` to a bare host, and remove the path of an endpoint that was pasted with it."""
    base = url.strip().rstrip("/")
    for pasted in PASTED:
        base = base.removesuffix(pasted)
    return base if urlsplit(base).path else f"{base}/v1"


async def retried(send: Callable[[], Awaitable[T]]) -> T:
    """Send a request, and once more if its connection turns out to be closed."""
    try:
        return await send()
    except CLOSED:
        return await send()


class NoAnswer(ValueError):
    """The server did not send the requested JSON. `lasting`: a later request would fail, too."""

    def __init__(self, reason: str, *, lasting: bool, status: int | None = None) -> None:
        super().__init__(reason)
        self.lasting = lasting
        self.status = status


async def json_answer(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    key: str | None = None,
    *,
    most: int,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Request a JSON value of at most `most` bytes. Raises NoAnswer and httpx2.HTTPError."""
    headers = {**authorization(key), **(headers or {})}
    headers |= {"content-type": "application/json"} if content is not None else {}
    async with client.stream(method, url, headers=headers, content=content) as response:
        status = response.status_code
        if status != 200:
            raise NoAnswer(f"status {status}", lasting=status < 500 and status not in TRANSIENT, status=status)
        body = bytearray()
        async with aclosing(response.aiter_bytes()) as blocks:
            async for block in blocks:
                body += block
                if len(body) > most:
                    raise NoAnswer("too long", lasting=True)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NoAnswer("not JSON", lasting=True) from error


def authorization(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}

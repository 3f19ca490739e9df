"""The HTTP client that talks to model servers, and the shape of their addresses."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2

from app.models.http.transport.lean import LeanTransport

CONNECT_LIMIT_S = 10.0
INACTIVITY_S = 300.0
# Idle connections cost: hundreds left over slow every request down. The number of active ones is the admin's affair.
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=10)
# A kept-alive connection that the server has ended shows itself only when it is used.
CLOSED = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
PASTED = ("/chat/completions", "/messages", "/models")  # what people have asked their server by hand
PASSING = (408, 425, 429)  # refusals of this moment only; so are a server's own faults


TransportKind = Literal["lean", "httpx2"]


def model_client(
    base_url: str, *, inactivity_s: float = INACTIVITY_S, transport: TransportKind = "lean"
) -> httpx2.AsyncClient:
    """A client for one model server. Proxies of the environment apply to remote hosts only.

    Raises OSError, ValueError, ImportError, httpx2.InvalidURL where the environment names files of certificates or
    proxies that cannot be used: here, not in the middle of a run.
    """
    timeout = httpx2.Timeout(inactivity_s, connect=min(CONNECT_LIMIT_S, inactivity_s), pool=None)
    # A compressed stream would arrive in blocks; identity keeps it live.
    headers = {"accept-encoding": "identity", "user-agent": "dragoman"}
    trust_env = not is_local(base_url)
    lean = transport == "lean" and not (trust_env and has_proxies())
    return httpx2.AsyncClient(
        limits=LIMITS,
        timeout=timeout,
        headers=headers,
        trust_env=trust_env,
        transport=_lean(base_url, trust_env=trust_env) if lean else None,
    )


def _lean(base_url: str, *, trust_env: bool) -> LeanTransport:
    if urlsplit(base_url).scheme != "https":
        return LeanTransport(LIMITS, trust_env=trust_env)
    return LeanTransport(LIMITS, verify=httpx2.create_ssl_context(trust_env=trust_env))


def has_proxies() -> bool:
    """Does the environment name one? httpx2's own transport knows how to ask it."""
    return bool(getproxies().keys() - {"no"})


def is_local(url: str) -> bool:
    """Is the host this machine or in a private network?"""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith((".localhost", ".local")):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def base_url_of(url: str) -> str:
    """The base URL as the client wants it: a bare host gets `/v1`, a pasted endpoint loses its last part."""
    base = url.strip().rstrip("/")
    for pasted in PASTED:
        base = base.removesuffix(pasted)
    return base if urlsplit(base).path else f"{base}/v1"


class NoAnswer(ValueError):
    """The server answered something else than was asked for. `lasting`: it will not answer better later."""

    def __init__(self, why: str, *, lasting: bool, status: int | None = None) -> None:
        super().__init__(why)
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
    """The JSON value that the server answers with. Raises NoAnswer and httpx2.HTTPError."""
    headers = {**authorization(key), **(headers or {})}
    headers |= {"content-type": "application/json"} if content is not None else {}
    async with client.stream(method, url, headers=headers, content=content) as response:
        status = response.status_code
        if status != 200:
            raise NoAnswer(f"status {status}", lasting=status < 500 and status not in PASSING, status=status)
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

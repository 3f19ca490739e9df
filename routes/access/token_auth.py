"""The command line's authentication: its token goes to the intended server only.

Anybody's program can listen where a server used to. On this machine the token is sent only if the kernel says that
this account, or root, listens there; or else if the server proves that it knows the token: by an HMAC with the token's
hash over a number that is new each time, and over the port, so that what listens on another one cannot pass the
question on. Each request is checked, also the one after a connection was lost. To other machines HTTPS proves it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Generator

import httpx2

from routes.access.peers import uid_of_listener
from routes.access.token_text import fingerprint

PROOF = "/proof"
PROOF_HEADER = "x-dragoman-proof"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_PORTS = {"http": 80, "https": 443}
ROOT = 0


class NotProven(httpx2.TransportError):
    """The server may be another's: nothing was sent to it. The message says what to do."""


def is_local(url: str) -> bool:
    """Return whether the URL leads to this machine: then no proxy is used, and a server may be started here."""
    return httpx2.URL(url).host in LOOPBACK


def proof_id(token_sha256: str) -> str:
    """An identifier of a token for a server that knows it; it reveals nothing of the token."""
    return hashlib.sha256(f"dragoman proof of {token_sha256}".encode()).hexdigest()


def proof(token_sha256: str, nonce: str, port: int) -> str:
    return hmac.new(token_sha256.encode(), f"{nonce} {port}".encode(), hashlib.sha256).hexdigest()


class TokenAuth(httpx2.Auth):
    """Signs requests with `token`, the one given; without one, with this account's own where the server asks for it."""

    def __init__(self, token: str | None, own: str | None = None) -> None:
        self._token = token
        self._own = own

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Raises NotProven."""
        url = request.url
        if self._token:
            if problem := (yield from self._doubt(url, self._token)):
                raise NotProven(f"{problem} Your token was not sent to it.", request=request)
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request
            return
        if _is_anothers(url):
            message = (
                f"The program listening at {_place(url)} belongs to another account. To use it, give one of its tokens."
            )
            raise NotProven(f"{message} Your message was not sent.", request=request)
        response = yield request
        if response.status_code == 401 and self._own and url.host in LOOPBACK:
            if (yield from self._proves(url, self._own)):  # always: once there are other tokens it is none
                request.headers["Authorization"] = f"Bearer {self._own}"
            yield request

    def _doubt(self, url: httpx2.URL, token: str) -> Generator[httpx2.Request, httpx2.Response, str]:
        """Return why the server may not be the one that the token is for; empty if there is no doubt."""
        if url.scheme == "https":
            return ""
        if url.host not in LOOPBACK:
            return f"Anyone on the way to {url.host} could read the token: use https, or a tunnel to this machine."
        if _listener(url) in (ROOT, os.geteuid()) or (yield from self._proves(url, token)):
            return ""
        return f"The program listening at {_place(url)} does not know your token: it may belong to another account."

    def _proves(self, url: httpx2.URL, token: str) -> Generator[httpx2.Request, httpx2.Response, bool]:
        """Return whether the answer proves that the server knows the token."""
        nonce, digest = secrets.token_hex(16), fingerprint(token)
        proof_url = url.copy_with(path=PROOF, query=f"token={proof_id(digest)}&nonce={nonce}".encode(), fragment=None)
        answer = yield httpx2.Request("GET", proof_url)
        expected = proof(digest, nonce, _port(url))
        return hmac.compare_digest(answer.headers.get(PROOF_HEADER, "").encode(), expected.encode())


def _is_anothers(url: httpx2.URL) -> bool:
    return url.scheme == "http" and url.host in LOOPBACK and _listener(url) not in (None, ROOT, os.geteuid())


def _listener(url: httpx2.URL) -> int | None:
    return uid_of_listener(url.host, _port(url))


def _port(url: httpx2.URL) -> int:
    return url.port or DEFAULT_PORTS[url.scheme]


def _place(url: httpx2.URL) -> str:
    return f"{url.host}:{_port(url)}"

"""Who may come in: Host and Origin are checked first, then the token becomes a principal.

With no tokens there is only the local user, on loopback; the Host check keeps DNS rebinding out, the Origin check
keeps other web pages out. Pure ASGI: a BaseHTTPMiddleware doubles what a streamed token costs.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.people import LOCAL_USER, Principal, Role
from app.store import Store, StoreFailed
from routes.errors import REFUSALS, Refused, refusal

TOKEN_PREFIX = "dgm_"
OPEN_PATHS = frozenset({"/livez", "/readyz"})  # for probes, which have no token
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def new_token() -> str:
    """256 random bits behind a prefix that secret scanners can recognise."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def fingerprint(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether a bind address is reachable from this machine only; a name counts only if it is `localhost`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, slots=True)
class Access:
    """ASGI middleware: `scope["state"]["principal"]` says who asks, or the request is refused."""

    app: ASGIApp
    store: Store
    host: str  # the address that the server is bound to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                principal = await self._admit(Headers(scope=scope), scope["path"])
            except (Refused, StoreFailed) as refused:
                await refusal(REFUSALS[type(refused)](refused))(scope, receive, send)
                return
            scope.setdefault("state", {})["principal"] = principal
        await self.app(scope, receive, send)

    async def _admit(self, headers: Headers, path: str) -> Principal | None:
        tokens = {row.sha256: row for row in await self.store.tokens()}
        if not tokens:
            self._check_host(headers.get("host", ""))
        self._check_origin(headers.get("origin"), headers.get("host", ""))
        if path in OPEN_PATHS:
            return None
        if not tokens:
            return LOCAL_USER
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared by hash: a look-up's timing tells nothing about a token that is not already known.
        row = tokens.get(fingerprint(given.strip())) if scheme.lower() == "bearer" else None
        if row is None:
            message = "Send Authorization: Bearer TOKEN; `dragoman token create --name NAME` on the server makes one."
            raise Refused(401, "unauthorized", message)
        return Principal(row.name, Role(row.role))

    def _check_host(self, host: str) -> None:
        name = _name(host)
        if name not in LOCAL_NAMES and name != self.host:
            message = f"The Host header {host[:80]!a} is not this server's; use http://localhost or make a token."
            raise Refused(403, "wrong_host", message)

    def _check_origin(self, origin: str | None, host: str) -> None:
        """Only a page that this server has served may call it from a browser."""
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "wrong_origin", f"Pages of {origin[:80]!a} may not call this server.")


def _name(host: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
    except ValueError:
        return ""
    return (parts.hostname or "").rstrip(".") if parts.netloc == host and "@" not in host else ""

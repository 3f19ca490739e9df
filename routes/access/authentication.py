"""Authentication: Host, Origin and Sec-Fetch-Site are checked first, then the token becomes a principal.

As long as there was never a token there is only the local admin, on loopback: the account that runs the server. The
Host check keeps DNS rebinding out, the other two keep other web pages out. Pure ASGI: a BaseHTTPMiddleware doubles
what a streamed token costs.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct, field
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.config.sign_in_settings import TrustedHeaderSpec
from app.core.log_context import enter_principal
from app.mcp.sign_ins import CALLBACK
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.people.sign_ins import SignInStore
from app.storage.principals import LOCAL_USER, Principal, in_use, principal_of
from app.storage.tokens import TokenRow, TokenStore
from routes.access.accounts import Person, account_of, named_person
from routes.access.local_admin import LocalAdmin, uid_of
from routes.access.members import MEMBER_HEADER, NO_MEMBERS, Speakers, outside_name
from routes.access.metrics_access import MetricsAccess
from routes.access.oidc import CALLBACK as PROVIDER_CALLBACK
from routes.access.rate_limits import HOLD, RateLimiter, client_network
from routes.access.request_rates import WRONG, Limits, Rates, Window, check_rate
from routes.access.sign_ins import SIGN_IN_HEADER, Shown, shown_by, sign_in_of
from routes.access.token_auth import PROOF
from routes.access.token_text import fingerprint
from routes.page import wants_page
from routes.protocol.errors import Refused, TooSoon
from tools.base.patterns import lazy_pattern
from tools.base.rights import Role

HELLO = "/api/hello"  # Claude Code looks here, without its token, if the server can be reached
OPENAPI = "/openapi.json"
# For probes, clients in doubt, browsers that come back.
OPEN_PATHS = frozenset({"/livez", "/readyz", PROOF, CALLBACK, HELLO, OPENAPI})
PROVIDER_PATHS = "/oidc"  # with what is below: a sign-in begins without a token, and its parts prove themselves
KEY_HEADER = "x-api-key"
PAGE = "/page/"
SHARED = "/shared/"  # a link is its own proof, for one conversation to read
DECIDE = "/decide"  # as such a link is, for one decision: GET below it shows the call, POST to it decides
OWN_SITES = frozenset({"same-origin", "none"})  # `none`: an address that a person has typed
LINKABLE = frozenset({"/", CALLBACK, PROVIDER_CALLBACK})  # what links of other sites may lead to
WRONG_PER_MINUTE = 10  # tokens, from one client
NOTED_PER_MINUTE = 100  # refusals, from all clients: one each
ADVICE = "Send Authorization: Bearer TOKEN; `dragoman token create --name NAME` on the server makes one."
NONE_LEFT = "No token is active any more: `dragoman token create --name NAME` on the server makes a new one."
DELIVERY = lazy_pattern(r"/triggers/[^/]+")  # by POST: it proves itself with the secret of the trigger
ANY_USER = Principal("", Role.USER)
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger(__name__)


@lru_cache(16)
def is_loopback(host: str) -> bool:
    """Return whether a bind address is reachable from this machine only; the only name that counts is `localhost`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Store(TokenStore, SignInStore, Protocol):
    """The stores that tokens and lasting sign-ins are read from."""


class Access(Struct, frozen=True):
    """ASGI middleware: `scope["state"]["principal"]` says who asks, or Refused is raised."""

    app: ASGIApp
    store: Store
    rates: Rates
    host: str  # the address that the server is bound to
    limits: Limits
    speakers: Speakers
    local: LocalAdmin = field(default_factory=LocalAdmin)
    metrics: MetricsAccess = MetricsAccess()
    header: TrustedHeaderSpec | None = None
    vouched: bool = False  # a provider or a proxy vouches for people: then there is no local admin
    oidc: bool = False  # without a provider the sign-ins of its people are worth nothing
    public_host: str = ""
    noted: RateLimiter = field(default_factory=RateLimiter)  # refusals in the audit, by client and altogether

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            state = scope.setdefault("state", {})
            hold = state.pop(HOLD, None)  # refers to the connection, which refers to this scope
            state["principal"] = principal = await self._admit(scope)
            if principal:
                enter_principal(principal.name)
            if principal and hold:
                hold()
        await self.app(scope, receive, send)

    async def _admit(self, scope: Scope) -> Principal | None:
        headers, now = Headers(scope=scope), time.time()
        account = uid_of(scope) if is_loopback(self.host) else None  # before any wait: it may close meanwhile
        given = token_of(headers)
        is_open = _open_to_all(scope, headers)
        person = await self._named(scope, headers, now)
        if person:  # whatever else the request has
            row, window, signed_in = None, None, ""
        else:
            row, window, signed_in = await self._found(given, shown_by(headers), now, counts=not is_open)
        ever = self.vouched or row is not None or (await self.store.token_counts(now)).all > 0
        if person or not ever:
            self._check_host(headers.get("host", ""), self.public_host if person else "")
        self._check_origin(headers.getlist("origin"), headers.get("host", ""))
        check_fetch_site(scope, headers)
        if is_open or self.metrics.lets_in(scope["method"], scope["path"], given):
            return None
        if person:
            row = await account_of(self.store, person)
        if not ever and is_loopback(self.host):  # never again once there was a token, whatever became of it
            if objection := self.local.objection(account, headers, given):
                raise await self._refused(scope, "", objection, now, given=given is not None)
            await check_rate(self.rates, self.limits, LOCAL_USER)
            if MEMBER_HEADER in headers:
                raise Refused(403, "no_members", NO_MEMBERS)
            return LOCAL_USER
        if row is None or not in_use(row, now):
            counts = await self.store.token_counts(now)
            sent = any(name in headers for name in ("authorization", KEY_HEADER, SIGN_IN_HEADER))
            why = f"{_objection(row, given=sent)} {ADVICE if counts.in_use or self.vouched else NONE_LEFT}"
            raise await self._refused(scope, row.name if row else "", why, now, given=sent)
        principal = principal_of(row, signed_in)
        await check_rate(self.rates, self.limits, principal, window)
        if (member := outside_name(headers, MEMBER_HEADER)) is None:
            return principal
        return await self.speakers.speaking(principal, member)

    async def _found(
        self, given: str | None, shown: Shown | None, now: float, *, counts: bool
    ) -> tuple[TokenRow | None, Window | None, str]:
        """By its hash: how long that takes tells nothing about a token. The request is counted if that costs nothing.

        Then it counts, too, if it is refused for another reason than the token. A lasting sign-in stands for the token
        that it was made from; its id is the third value.
        """
        signed_in = ""
        if given is not None:
            print_of_given = fingerprint(given)
        elif shown and (row := await sign_in_of(self.store, shown, now)) and (self.oidc or ":" not in row.token):
            print_of_given, signed_in = row.token, row.id
        else:
            return None, None, ""
        window = None
        if counts:
            token, window = await self.rates.token(
                print_of_given, now, always=self.limits(ANY_USER).requests_per_minute is not None
            )
        else:
            token = await self.store.token(print_of_given)
        found = token is not None and hmac.compare_digest(token.sha256, print_of_given)
        return (token, window, signed_in) if found else (None, None, "")

    async def _named(self, scope: Scope, headers: Headers, now: float) -> Person | None:
        """The person that a proxy in front names. Raises Refused."""
        try:
            return named_person(self.header, scope, headers) if self.header else None
        except Refused as refused:
            client = client_network(scope["client"][0] if scope.get("client") else None)
            await self._note("", f"{refused.message.partition('. ')[0]}. From {client}.", client, now)
            raise

    async def _refused(self, scope: Scope, name: str, why: str, now: float, *, given: bool) -> Refused:
        client = client_network(scope["client"][0] if scope.get("client") else None)
        await self._note(name, f"{why.partition('. ')[0].rstrip('.')}. From {client}.", client, now)
        if given:
            tries, reset = await self.rates.count(WRONG, client, now)
            if tries > WRONG_PER_MINUTE:
                message = f"{tries - 1} wrong tokens came from {client} within a minute. Wait, then send the right one."
                return TooSoon("too_many_wrong_tokens", message, reset)
        return Refused(401, "unauthorized", why)

    async def _note(self, name: str, why: str, client: str, now: float) -> None:
        """Record a failure in the audit, at a bounded rate: a client without a token must not fill it."""
        if self.noted.count(client, now)[0] > 1 or self.noted.count("", now)[0] > NOTED_PER_MINUTE:
            return
        try:
            await self.store.write([AuditRow(now, name, "sign_in", "refused", why=why, by="server")])
        except StoreFailed as failure:
            _log.error("a refusal could not be noted (%s): %s", why, failure)

    def _check_host(self, host: str, also: str) -> None:
        name = _name(host)
        if name not in LOCAL_NAMES and name not in (self.host, also or self.host):
            message = f"The Host header {host[:80]!a} is not this server's; use http://localhost or make a token."
            raise Refused(403, "wrong_host", message)

    def _check_origin(self, origins: Sequence[str], host: str) -> None:
        """Only a page that this server has served may call it from a browser, which says once which page that is."""
        if len(origins) > 1:
            raise Refused(403, "wrong_origin", "The request has more than one Origin header; send one, or none.")
        for origin in origins:
            if origin not in (f"http://{host}", f"https://{host}"):
                raise Refused(403, "wrong_origin", f"Pages of {origin[:80]!a} may not call this server.")


def token_of(headers: Headers) -> str | None:
    """The token of a request; None where there is none. Clients of Anthropic's API send theirs as `x-api-key`."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    return headers[KEY_HEADER].strip() if KEY_HEADER in headers else None


def check_fetch_site(scope: Scope, headers: Headers) -> None:
    """Keep out what a browser asks for another site's page, unless a person follows a link to a page of ours.

    `same-site` is another site, too: another port of localhost is another program. Where browsers do not say
    (Sec-Fetch-* is for HTTPS and loopback only), Origin does. https://www.w3.org/TR/fetch-metadata/
    """
    sites = headers.getlist("sec-fetch-site")
    if all(site.lower() in OWN_SITES for site in sites):
        return
    followed = scope["method"] == "GET" and headers.get("sec-fetch-mode", "").lower() == "navigate"
    if not (followed and (scope["path"] in LINKABLE or scope["path"].startswith((SHARED, f"{DECIDE}/")))):
        raise Refused(403, "wrong_site", "Pages of other sites may not call this server. Open it in its own tab.")


def _open_to_all(scope: Scope, headers: Headers) -> bool:
    """The page has no secrets: it asks for a token itself, once it is there. Deliveries prove themselves."""
    path = scope["path"]
    if scope["method"] == "POST" and DELIVERY.fullmatch(path):
        return True
    if scope["method"] in ("GET", "HEAD") and path.startswith((SHARED, f"{DECIDE}/")):
        return True
    if scope["method"] == "POST" and path == DECIDE:
        return True
    if path == PROVIDER_PATHS or path.startswith(f"{PROVIDER_PATHS}/"):
        return True
    return path in OPEN_PATHS or path.startswith(PAGE) or (path == "/" and wants_page(headers))


def _name(host: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
    except ValueError:
        return ""
    return (parts.hostname or "").rstrip(".") if parts.netloc == host and "@" not in host else ""


def _objection(row: TokenRow | None, *, given: bool) -> str:
    if row is None:
        return "This is not a token of this server." if given else "A token is required."
    if row.revoked is None and row.disabled_at is not None:
        return f"The token of {row.name} is disabled."
    return f"The token of {row.name} has been revoked." if row.revoked else f"The token of {row.name} has expired."

"""/oidc: sign-in at an OpenID provider.

The page begins with a key that it has made and keeps; the answer sets a cookie. State, nonce and PKCE verifier are made
of both, and kept nowhere else: a code is worth something in the browser, and for the page, that began the sign-in, and
every server of a database can finish it. The provider leads back to the callback, which hands the answer to the page.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64encode
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct
from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.core.settings_fields import DAY_S
from app.core.strict_model import StrictModel
from app.storage.audit import AuditRow
from app.storage.principals import in_use, principal_of
from routes.access.accounts import PROVIDER, account_of
from routes.access.oidc import CALLBACK, Provider
from routes.access.rate_limits import client_network
from routes.access.request_rates import PROVIDER_SIGN_INS
from routes.access.sign_ins import cookie_name, end_sign_in, make_sign_in
from routes.http.people.sign_ins import set_cookie
from routes.protocol.errors import ASCIIResponse, Refused, TooSoon
from routes.protocol.raw_body import BodyLimits, read_body
from routes.protocol.redaction_middleware import SHOWN_ONCE
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, services_of
from tools.base.patterns import lazy_pattern

FLOW_S = 600  # in which a person signs in at the provider
PER_MINUTE = 60  # sign-ins from one client
SECRET = lazy_pattern(r"[A-Za-z0-9_-]{43}")
LOGOUT = BodyLimits(64 * 1024, 64 * 1024, 1, "A logout request is at most 64 KiB.")
EXPIRED = "This sign-in was not begun in this browser, or more than ten minutes ago. Begin again."
EXAMPLE_KEY = "0" * 64


class BeginRequest(StrictModel):
    """The body of POST /oidc/begin: 32 random bytes of the page in hexadecimal digits."""

    key: str = Field(pattern=r"^[0-9a-f]{64}$")


class FinishRequest(BeginRequest):
    """The body of POST /oidc/finish: the page's key, and the provider's answer."""

    state: str = Field(max_length=256)
    code: str = Field(min_length=1, max_length=8192)
    iss: str | None = Field(default=None, max_length=1024)


class Flow(Struct, frozen=True):
    """A sign-in under way. `id` has the time of its beginning, `secret` is in the cookie, `key` in the page."""

    id: str
    secret: str
    key: str

    @property
    def state(self) -> str:
        return f"{self.id}.{self.derived('state')}"

    def derived(self, purpose: str) -> str:
        text = f"{purpose} {self.id} {self.key}".encode()
        return _base64url(hmac.digest(self.secret.encode(), text, hashlib.sha256))

    def is_current(self, now: float) -> bool:
        begun = self.id.partition("-")[0]
        return begun.isascii() and begun.isdigit() and 0 <= now - int(begun[:12]) <= FLOW_S


async def show_provider(request: Request) -> Response:
    """The provider at which people sign in: `label`, null without one."""
    provider = services_of(request).provider
    return ASCIIResponse({"label": provider.spec.label if provider else None})


async def begin(request: Request) -> Response:
    """Begin a sign-in: `url` is the provider's page for it.

    Sets a cookie for ten minutes. The address must be that of `public_url`.
    """
    provider = await _counted(request)
    body = await read_fields(request, BeginRequest, plain=True)
    origin = request.headers.get("origin", "")
    if origin and origin != "{0.scheme}://{0.netloc}".format(urlsplit(provider.public_url)):
        raise Refused(409, "other_address", f"Sign in at {provider.public_url}, where the provider leads back to.")
    flow = Flow(f"{int(time.time())}-{secrets.token_urlsafe(9)}", secrets.token_urlsafe(32), body.key)
    challenge = _base64url(hashlib.sha256(flow.derived("verifier").encode()).digest())
    answer = ASCIIResponse({"url": await provider.sign_in_url(flow.state, flow.derived("nonce"), challenge)})
    set_cookie(request, answer, f"oidc-{flow.id}", flow.secret, FLOW_S)
    setattr(request.state, SHOWN_ONCE, True)
    return answer


async def lead_back(request: Request) -> Response:
    """The redirect target of a sign-in. The page finishes it: the answer is behind the `#`, which is sent nowhere."""
    return RedirectResponse(f"/#oidc?{request.url.query}", 303)


async def finish(request: Request) -> Response:
    """Finish a sign-in in the browser and the page that began it; only this answer has the key and the cookie.

    As of `POST /sign-ins`. `logout` is the provider's page that ends its session, if it has one.
    """
    services, provider = services_of(request), await _counted(request)
    body = await read_fields(request, FinishRequest, plain=True)
    try:
        return await _finished(request, services, provider, body)
    except Refused as refused:
        client = client_network(request.client.host if request.client else None)
        why = f"{refused.message.partition('. ')[0].rstrip('.')}. From {client}."
        await services.store.write([AuditRow(time.time(), "", "sign_in", "refused", why=why, by=PROVIDER)])
        raise


async def _finished(request: Request, services: Services, provider: Provider, body: FinishRequest) -> Response:
    """Raises Refused, StoreFailed."""
    flow = _flow_of(request, body)
    verifier, nonce = flow.derived("verifier"), flow.derived("nonce")
    claims = await provider.claims(body.code, verifier, nonce, body.iss)
    row = await account_of(services.store, provider.person_of(claims))
    if not in_use(row, time.time()):
        raise Refused(403, "not_admitted", f"An admin has ended the access of {row.name} to this server.")
    logout = await provider.sign_out_url()
    seconds = min(provider.spec.hours * 3600, services.settings.sign_in_days * DAY_S)
    device, session = request.headers.get("user-agent", ""), provider.session_of(claims)
    made = await make_sign_in(services.store, principal_of(row), device, seconds, session=session)
    setattr(request.state, SHOWN_ONCE, True)
    fields = {"id": made.row.id, "key": f"{made.row.id}.{made.key}", "expires": made.row.expires}
    answer = ASCIIResponse(fields | {"logout": logout}, 201)
    set_cookie(request, answer, f"oidc-{flow.id}", "", 0)
    set_cookie(request, answer, made.row.id, made.secret, seconds)
    return answer


async def log_out(request: Request) -> Response:
    """End the sign-ins of a session that has ended at the provider (OpenID Connect Back-Channel Logout).

    The body is a form with `logout_token`, which the provider has signed.
    """
    services, provider = services_of(request), _provider(services_of(request))
    sent = (await read_body(request, LOGOUT)).decode("latin-1")
    try:
        form = parse_qs(sent, max_num_fields=10)
    except ValueError:
        raise Refused(400, "invalid_request", "Send a form of 10 fields at most, with logout_token.") from None
    try:
        person, session = await provider.logged_out(form.get("logout_token", [""])[0])
    except Refused as refused:
        raise Refused(400 if refused.status == 403 else refused.status, refused.code, refused.message) from None
    for row in await services.store.sign_ins():
        if (row.session == session if session else True) and (row.token == person if person else bool(session)):
            await end_sign_in(services.store, row, PROVIDER)
    await services.presence.look_for_ended_sign_ins()
    return ASCIIResponse({})


def _flow_of(request: Request, body: FinishRequest) -> Flow:
    """The flow that this browser and this page have begun. Raises Refused."""
    id = body.state.rpartition(".")[0]
    names = [cookie_name(f"oidc-{id}", secure=secure) for secure in (True, False)]
    secret = next((request.cookies[name] for name in names if name in request.cookies), "")
    flow = Flow(id, secret, body.key)
    fits = SECRET.fullmatch(secret) and hmac.compare_digest(flow.state.encode(), body.state.encode())
    if not fits or not flow.is_current(time.time()):
        raise Refused(403, "sign_in_expired", EXPIRED)
    return flow


async def _counted(request: Request) -> Provider:
    """The provider, within bounds: a stranger can cause requests to it. Raises Refused."""
    services = services_of(request)
    provider = _provider(services)
    client = client_network(request.client.host if request.client else None)
    tries, reset = await services.rates.count(PROVIDER_SIGN_INS, client, time.time())
    if tries > 2 * PER_MINUTE:  # each has a beginning and an end
        raise TooSoon("too_many_requests", f"More than {PER_MINUTE} sign-ins came from {client} in a minute.", reset)
    return provider


def _provider(services: Services) -> Provider:
    if services.provider is None:
        raise Refused(404, "not_found", "There is no OpenID provider here (the setting oidc). Sign in with a token.")
    return services.provider


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


ROUTES = tagged(
    "Server",
    Route("GET /oidc", show_provider, rights="open", answer={"label": "text?"}),
    Route(
        "POST /oidc/begin",
        begin,
        rights="open",
        answer={"url": "text"},
        errors=(404, 409, 429, 502),
        body=Body(BeginRequest, {"key": EXAMPLE_KEY}),
    ),
    Route(f"GET {CALLBACK}", lead_back, rights="open", statuses=(303,)),
    Route(
        "POST /oidc/finish",
        finish,
        rights="open",
        answer={"id": "text", "key": "text", "expires": "number", "logout": "text?"},
        statuses=(201,),
        errors=(403, 404, 409, 429, 502),
        body=Body(FinishRequest, {"key": EXAMPLE_KEY, "state": "...", "code": "..."}),
    ),
    Route("POST /oidc/backchannel-logout", log_out, rights="open", answer={}, errors=(400, 404, 502)),
)

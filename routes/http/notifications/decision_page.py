"""/decide: the page of a link that decides one waiting call, for those who have the link. It works without scripts.

What fetches the link, such as the preview of a chat, only reads: a form with the token in its body decides. The token
is all that the request needs, so another site cannot make a browser decide with what it has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from html import escape
from http import HTTPStatus
from typing import Literal
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from app.policy.approvals import AlreadyDecided, ApprovalExpired, is_over
from app.policy.current_rights import principal_named
from app.policy.doors import DOORS
from app.policy.entitlements import Kind, check_entitled
from app.policy.stored_grants import Review
from app.storage.approvals import ApprovalRow, DecisionLink
from app.storage.notices.notifications import ACTIVE
from app.storage.principals import Principal
from app.transcript.run_request import NotFound
from routes.access.authentication import DECIDE, WRONG_PER_MINUTE
from routes.access.rate_limits import client_network
from routes.access.request_rates import WRONG_LINKS
from routes.access.token_text import fingerprint
from routes.http.workspace.rights import may_use
from routes.protocol.errors import Refused, TooSoon
from routes.protocol.raw_body import BodyLimits, read_body
from routes.protocol.refusals import FORESEEN, refuse
from routes.protocol.route import Route, tagged
from routes.services import Services, services_of
from routes.texts import ENGLISH, languages, text
from routes.texts.exact import exact, exact_json, one_line

LONGEST_TOKEN = 100
MOST_BYTES = 1024
GONE = "This link does not exist, or its conversation was deleted."
OFF = "This call cannot be decided by link any more. Open dragoman and decide there."
EXPIRED = "This link has expired. The call still waits: open dragoman and decide there."
OTHER_CALL = "The call is not the one that this link was made for. Open dragoman and look at it there."
DECISIONS: Mapping[str, Literal["approve", "deny"]] = {"approve": "approve", "deny": "deny"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    # The address of the page goes nowhere. With `no-referrer` the form's Origin would be `null`, which is refused.
    "Referrer-Policy": "strict-origin",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "X-DNS-Prefetch-Control": "off",
    "Vary": "Accept-Language",
}
PAGE = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<meta name="robots" content="noindex, nofollow, noarchive" />
<title>dragoman</title>
<link rel="stylesheet" href="/page/css/tokens.css" />
<link rel="stylesheet" href="/page/css/base.css" />
<link rel="stylesheet" href="/page/css/later/decision.css" />
</head>
<body class="decision">
<main>
<h1>{title}</h1>
{content}
</main>
</body>
</html>
"""
FORM = '<form method="post" action="{path}"><input type="hidden" name="token" value="{token}" />{buttons}</form>'
BUTTON = '<button name="decision" value="{value}">{words}</button>'


class Page:
    """Makes answers in the language of a request."""

    def __init__(self, request: Request) -> None:
        given = request.headers.get("accept-language", "").partition(",")[0].partition("-")[0].strip().lower()
        self._language = given if given in languages() else ENGLISH

    def text(self, key: str, **values: object) -> str:
        return text(key, {"LANG": self._language}, **values)

    def answer(self, title: str, content: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        body = PAGE.format(language=self._language, title=escape(title), content=content)
        return HTMLResponse(body.encode("utf-8", "replace"), status, HEADERS | dict(headers or {}))

    def question(self, row: ApprovalRow, token: str, services: Services) -> Response:
        """The call as it is, and the forms that decide it."""
        arguments = services.redactor.redact_value(json.loads(row.arguments))
        facts = [(self.text("approvals.reason"), exact(row.reason)), *_values(arguments)]
        if row.expires is not None:
            until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(row.expires))
            facts.append((self.text("decide.until"), until))
        choices = {"approve": "approvals.approve", "deny": "approvals.deny"}
        buttons = (BUTTON.format(value=value, words=escape(self.text(key))) for value, key in choices.items())
        form = FORM.format(path=DECIDE, token=escape(token), buttons="".join(buttons))
        about = f"<p>{escape(self.text('decide.about', name=row.principal))}</p>"
        return self.answer(self.text("decide.title", name=one_line(row.name)), about + _table(facts) + form)

    def outcome(self, row: ApprovalRow, status: int) -> Response:
        """Show the decision that stands: by whom, and by which door."""
        door = self.text(f"approvals.door.{row.door}") if row.door in DOORS else ""
        by = f"{row.by or ''} {door}".strip()
        words = self.text(f"approvals.elsewhere.{row.state}", by=by)
        return self.answer(words, f"<p><code>{escape(one_line(row.name))}</code></p>", status)

    def refusal(self, error: Exception) -> Response:
        if isinstance(error, AlreadyDecided):
            return self.outcome(error.row, HTTPStatus.CONFLICT)
        refused = refuse(error)
        return self.answer(
            self.text("decide.impossible"), f"<p>{escape(exact(refused.message))}</p>", refused.status, refused.headers
        )


def _values(arguments: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    for name, value in arguments.items():
        yield one_line(name), exact(value if isinstance(value, str) else exact_json(value))


def _table(facts: Iterable[tuple[str, str]]) -> str:
    rows = (f'<dt>{escape(name)}</dt><dd><pre dir="ltr">{escape(value)}</pre></dd>' for name, value in facts)
    return f"<dl>{''.join(rows)}</dl>"


async def show_decision(request: Request) -> Response:
    """Show the page of a decision link: the call, and the forms.

    A [link](notifications.md#links-that-decide) of a webhook. It decides nothing: 404, 409 or 410 where nothing is left
    to decide, with the decision that stands.
    """
    page, token = Page(request), request.path_params["token"]
    try:
        _, row, _ = await _waiting(request, token)
    except FORESEEN as error:
        return page.refusal(error)
    return page.question(row, token, services_of(request))


async def decide_by_link(request: Request) -> Response:
    """Decide a call by its link. A form with `token` and `decision`: once, for this call, as it is."""
    page, services = Page(request), services_of(request)
    try:
        token, decision = await _form(request)
        link, _, owner = await _waiting(request, token)
        row = await services.runs.decide(link.run, link.call, owner, Review(decision, door="link"))
    except FORESEEN as error:
        return page.refusal(error)
    return page.outcome(row, HTTPStatus.OK)


async def _form(request: Request) -> tuple[str, Literal["approve", "deny"]]:
    """Raises Refused."""
    limits = BodyLimits(MOST_BYTES, MOST_BYTES, MOST_BYTES, "The form is too long. Open the link again.")
    fields = dict(parse_qsl((await read_body(request, limits)).decode("utf-8", "replace")))
    if (decision := DECISIONS.get(fields.get("decision", ""))) is None:
        raise Refused(422, "invalid_request", "decision is neither approve nor deny. Open the link again.")
    return fields.get("token", ""), decision


async def _waiting(request: Request, token: str) -> tuple[DecisionLink, ApprovalRow, Principal]:
    """Return the link, its call and its owner, as long as all of them may decide.

    Raises Refused, AlreadyDecided, ApprovalExpired, StoreFailed.
    """
    services, now = services_of(request), time.time()
    link = await services.store.decision_link(fingerprint(token[:LONGEST_TOKEN]))
    row = await services.store.approval(link.run, link.call) if link else None
    if link is None or row is None:
        raise await _unknown(request, services, now)
    if row.state not in ("pending", "expired"):
        raise AlreadyDecided(row)
    if row.state == "expired" or is_over(row):
        raise ApprovalExpired
    if link.expires <= now:
        raise Refused(HTTPStatus.GONE, "link_expired", EXPIRED)
    if row.fingerprint != link.fingerprint:
        raise Refused(HTTPStatus.CONFLICT, "other_call", OTHER_CALL)
    return link, row, await _owner(services, row, link.target)


async def _unknown(request: Request, services: Services, now: float) -> Refused:
    """Return the refusal of a token that is none, at a bounded rate as for tokens of sign-ins. Raises StoreFailed."""
    client = client_network(request.client.host if request.client else None)
    tries, reset = await services.rates.count(WRONG_LINKS, client, now)
    if tries > WRONG_PER_MINUTE:
        message = f"{tries - 1} wrong links came from {client} within a minute. Wait, then open the right one."
        return TooSoon("too_many_wrong_links", message, reset)
    return Refused(HTTPStatus.NOT_FOUND, "not_found", GONE)


async def _owner(services: Services, row: ApprovalRow, target: str) -> Principal:
    """Return the owner of a call, who may decide it by link now. Raises Refused."""
    try:
        owner = await principal_named(services.store, row.principal)
        check_entitled(owner, Kind.WEBHOOKS)
    except NotFound as problem:
        raise Refused(HTTPStatus.FORBIDDEN, "forbidden", str(problem)) from None
    is_forbidden = row.name in services.factory.tools.by_name and not await may_use(services, owner, row.name)
    is_labelled = bool(await services.store.session_labels([row.session]))
    webhook = services.notifications.targets.get(target)
    is_off = webhook is None or not webhook.decides or webhook.state != ACTIVE
    if is_forbidden or is_labelled or is_off or not services.notifications.links.are_on:
        raise Refused(HTTPStatus.FORBIDDEN, "forbidden", OFF)
    return owner


ROUTES = tagged(
    "Notifications",
    Route(
        "GET /decide/{token}",
        show_decision,
        rights="open",
        statuses=(200, 403, 404, 409, 410, 429),
        media=("text/html",),
    ),
    Route(
        "POST /decide",
        decide_by_link,
        rights="open",
        statuses=(200, 403, 404, 409, 410, 422, 429),
        media=("text/html",),
    ),
)

"""Sign-ins that last: a browser keeps a cookie and a key, and is let in with both.

Each is worth nothing alone. The cookie's secret is out of reach of scripts (HttpOnly), but a browser sends it to every
port of the host: another program on this machine can read it. The key is in the page's storage, which belongs to one
origin, port included, and the page sends it in a header: another site's page can make the browser send the cookie, but
no header. The database has the SHA-256 of both together, and a sign-in ends with the token that it was made from.
One that an identity provider vouches for stands for the row of its person, and ends with the session there.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from typing import NamedTuple

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.people.sign_ins import SignInEnded, SignInRow, SignInSeen, SignInsEnded, SignInsExpired, SignInStore
from app.storage.principals import Principal
from routes.access.accounts import PROXY
from routes.access.token_text import fingerprint
from routes.protocol.errors import Refused
from tools.base.patterns import lazy_pattern

SIGN_IN_HEADER = "x-dragoman-sign-in"
MOST = 20  # of one person; the oldest makes room
SEEN_EVERY_S = 3600.0
MOST_DEVICE = 200  # characters of a User-Agent that are kept
SHOWN = lazy_pattern(r"(sgn_[A-Za-z0-9_-]{16})\.([A-Za-z0-9_-]{43})")

_log = logging.getLogger(__name__)


class Shown(Struct, frozen=True):
    """A sign-in as a request shows it: the id of a sign-in, the key of the page, and the secret of the cookie."""

    id: str
    key: str
    secret: str


def cookie_name(id: str, *, secure: bool) -> str:
    """The cookie of a sign-in: several servers on one host, each with its own, do not overwrite each other's.

    Browsers keep `__Host-` cookies from being set by other hosts and without HTTPS. https://www.rfc-editor.org/rfc/rfc6265
    """
    return f"__Host-dragoman-{id}" if secure else f"dragoman-{id}"


def shown_by(headers: Headers) -> Shown | None:
    """The sign-in that a request shows; None where it has none, an empty secret where its cookie is missing."""
    if SIGN_IN_HEADER not in headers:
        return None
    if not (found := SHOWN.fullmatch(headers[SIGN_IN_HEADER])):
        return Shown("", "", "")
    cookies = cookie_parser(headers.get("cookie", ""))
    names = [cookie_name(found[1], secure=secure) for secure in (True, False)]
    return Shown(found[1], found[2], next((cookies[name] for name in names if name in cookies), ""))


async def sign_in_of(store: SignInStore, shown: Shown, now: float) -> SignInRow | None:
    """The sign-in that the request proves to have. Raises StoreFailed."""
    if not shown.secret or (row := await store.sign_in(shown.id)) is None or row.expires <= now:
        return None
    if not hmac.compare_digest(row.sha256, _proof(shown.secret, shown.key)):
        return None
    if now - row.seen > SEEN_EVERY_S:
        try:
            await store.write([SignInSeen(row.id, now)])
        except StoreFailed as failure:  # the request itself may need no writing
            _log.warning("the use of a sign-in was not noted: %s", failure)
    return row


class MadeSignIn(NamedTuple):
    """A new sign-in: the key of the page, the secret of the cookie, and what is kept."""

    key: str
    secret: str
    row: SignInRow


async def make_sign_in(
    store: SignInStore, principal: Principal, device: str, seconds: float, *, session: str = ""
) -> MadeSignIn:
    """`session`: of the identity provider. Raises Refused, StoreFailed."""
    if not principal.token or principal.sign_in or principal.token.startswith(PROXY):
        message = "A lasting sign-in is made from a token: send Authorization: Bearer TOKEN."
        raise Refused(409, "no_token", message)
    now, key, secret = time.time(), secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    device = "".join(character for character in device if character.isprintable())[:MOST_DEVICE]
    row = SignInRow(
        id=f"sgn_{secrets.token_urlsafe(12)}",
        sha256=_proof(secret, key),
        token=principal.token,
        principal=principal.name,
        device=device,
        created=now,
        seen=now,
        expires=now + seconds,
        session=session,
    )
    surplus = (await store.sign_ins(principal.name))[MOST - 1 :]
    until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(row.expires))
    audit = AuditRow(now, principal.name, "sign_in", "made", why=f"lasting, until {until}", by=principal.name)
    await store.write([SignInsExpired(now), *(SignInEnded(one.id) for one in surplus), row, audit])
    return MadeSignIn(key, secret, row)


async def end_sign_in(store: SignInStore, row: SignInRow, by: str) -> None:
    """Raises StoreFailed."""
    audit = AuditRow(time.time(), row.principal, "sign_in", "ended", why="", by=by)
    await store.write([SignInEnded(row.id), audit])


async def end_sign_ins(store: SignInStore, principal: str, by: str) -> None:
    """End all sign-ins of one person. Raises StoreFailed."""
    await store.write([SignInsEnded(principal), AuditRow(time.time(), principal, "sign_in", "ended", why="all", by=by)])


def _proof(secret: str, key: str) -> str:
    return fingerprint(f"{secret}.{key}")

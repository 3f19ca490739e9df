"""People without a token: an identity provider, or a proxy in front, says which one a request is of.

Each has a row among the tokens, so that roles, budgets, the switch of an admin and the audit are those of everyone. In
place of a token's SHA-256 the row has a key that no token has: the kind of sign-in, and the SHA-256 of what is the
person's for ever there (issuer and subject). Another's name or e-mail address, taken at the provider, therefore changes
nothing here. The name here is made of the one there at the first sign-in, and no other row has ever had it.
"""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Collection
from itertools import chain, count

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.types import Scope

from app.config.sign_in_settings import TrustedHeaderSpec
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.principals import LOCAL_USER, in_use
from app.storage.tokens import TokenChanged, TokenRow, TokenStore
from routes.access.peers import PEER, Peer
from routes.access.token_text import fingerprint
from routes.protocol.errors import Refused
from tools.base.patterns import lazy_pattern
from tools.base.rights import Role

PROVIDER, PROXY = "oidc", "proxy"  # kinds
TRIES = 5  # of people who come at the same time under one name
MOST_NAME = 56  # characters, and a number behind them
MOST_GIVEN = 256  # characters of a name in a header
UNFIT = lazy_pattern(r"[^A-Za-z0-9._-]+")
NO_ROLE = (
    "You are signed in, but nothing gives you a role on this server. Ask its operator for a group that has one, or for "
    "`default_role`."
)


class Person(Struct, frozen=True):
    """A person as a provider or a proxy names them now."""

    key: str
    name: str
    role: Role


def key_of(kind: str, *names: str) -> str:
    """The key of a person for ever: `kind`, and a hash of the names that are never given to another."""
    return f"{kind}:{fingerprint(json.dumps(names))}"


def kind_of(row: TokenRow) -> str:
    """The way in of a row's person: `token`, or what vouches for them."""
    kind, colon, _ = row.sha256.partition(":")
    return kind if colon else "token"


def named_person(spec: TrustedHeaderSpec, scope: Scope, headers: Headers) -> Person | None:
    """The person that a proxy names; None where the request has no such header. Raises Refused.

    A request that has it from elsewhere, twice, or in a spelling that other programs take for it (`Remote_User`), is
    refused: it wants to be taken for another's.
    """
    wanted = {name for name in (spec.user, spec.groups) if name}
    found = [name for name in headers if name.replace("_", "-") in wanted]
    if not found:
        return None
    peer = scope.get("state", {}).get(PEER)
    address = peer.address if isinstance(peer, Peer) else None
    if address is None or not any(address in network for network in spec.proxies):
        raise Refused(400, "untrusted_header", f"{found[0]} is for the configured proxies only. Leave it out.")
    if len(found) > len(set(found)) or not wanted.issuperset(found):
        raise Refused(400, "untrusted_header", f"The proxy sends {found[0]} twice, or in two spellings. Correct it.")
    try:
        sent = (headers.get(one or "", "").encode("latin-1").decode() for one in (spec.user, spec.groups))
        name, groups = (text.strip() for text in sent)
    except UnicodeDecodeError:
        raise Refused(400, "untrusted_header", f"The proxy sends {found[0]}, but not in UTF-8. Correct it.") from None
    if not name or len(name) > MOST_GIVEN or not name.isprintable():
        raise Refused(400, "untrusted_header", f"The proxy sends no name in {spec.user}. Correct it.")
    if (role := spec.role_of([one.strip() for one in groups.split(",")])) is None:
        raise Refused(403, "not_admitted", NO_ROLE)
    return Person(key_of(PROXY, name), name, role)


async def account_of(store: TokenStore, person: Person) -> TokenRow:
    """The person's row, made at the first sign-in, with the role of now. Raises Refused, StoreFailed."""
    now = time.time()
    row = await store.token(person.key) or await _made(store, person, now)
    if row.role == person.role or not in_use(row, now):
        return row
    why, by = f"role {person.role} instead of {row.role}", kind_of(row)
    audit = AuditRow(now, row.name, "person", "changed", why=why, by=by)
    await store.change_token(TokenChanged(row.sha256, person.role, None, row.version + 1), now, [audit])
    if (changed := await store.token(person.key)) and changed.role == person.role:
        return changed
    message = f"{row.name} is the last admin, and is not given that role any more: make another admin first, with "
    raise Refused(409, "last_admin", f"{message}`dragoman token create --name NAME --role admin`.")


async def _made(store: TokenStore, person: Person, now: float) -> TokenRow:
    """Raises Refused, StoreFailed."""
    for _ in range(TRIES):
        rows = await store.tokens()
        if found := next((row for row in rows if row.sha256 == person.key), None):
            return found
        name = _free(person.name, {LOCAL_USER.name, *(row.name.lower() for row in rows)})
        row = TokenRow(person.key, name, person.role, now)
        audit = AuditRow(now, row.name, "person", "made", why=f"role {row.role}", by=kind_of(row))
        if await store.add_token(row, [audit]):
            return row
    raise StoreFailed("Many people are signing in under one name. Try again.")


def _free(wished: str, taken: Collection[str]) -> str:
    """A name of a folder and a command line that no row has had. An e-mail address keeps its host: alice-example.org"""
    plain = unicodedata.normalize("NFKD", wished).encode("ascii", "ignore").decode()
    base = UNFIT.sub("-", plain).strip("-.")[:MOST_NAME] or "person"
    names = chain([base], (f"{base}-{number}" for number in count(2)))
    return next(name for name in names if name.lower() not in taken)

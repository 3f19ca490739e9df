"""The header in which a proxy names the person: believed from the addresses of the named proxies only.

A request that has it from elsewhere, twice, or in a spelling that other programs take for it (`Remote_User`), is
refused: it wants to be taken for another's. From the proxy the header counts, whatever else the request has.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from app.config.sign_in_settings import TrustedHeaderSpec
from routes.access.accounts import NO_ROLE, PROXY, Person, key_of
from routes.access.peers import PEER, Peer
from routes.protocol.errors import Refused

MOST = 256  # characters of a name


def named_person(spec: TrustedHeaderSpec, scope: Scope, headers: Headers) -> Person | None:
    """The person that the proxy names; None where the request has no such header. Raises Refused."""
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
    name = headers.get(spec.user, "").strip()
    if not name or len(name) > MOST or not name.isprintable():
        raise Refused(400, "untrusted_header", f"The proxy sends no name in {spec.user}. Correct it.")
    groups = headers.get(spec.groups, "") if spec.groups else ""
    if (role := spec.role_of([one.strip() for one in groups.split(",")])) is None:
        raise Refused(403, "not_admitted", NO_ROLE)
    return Person(key_of(PROXY, name), name, role)

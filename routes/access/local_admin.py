"""The local admin of a server without tokens: only the account that runs it, on this machine.

The kernel says which account a connection is of (`routes.access.peers`), so that nothing has to be typed. Where it
cannot say, a token does that only this account can read: it is made at the first start, in the data directory.

Another account is not let in, and that holds for root: what runs as root and passes other people's requests on (a
container's published port, a forwarded one) would let them in as well. Root can read the file. What a proxy forwards is
never the local admin's, whichever account runs the proxy.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from msgspec import Struct, field
from starlette.datastructures import Headers
from starlette.types import Scope

from app.storage.changes import StoreFailed
from routes.access.peers import PEER, Peer
from routes.access.token_text import fingerprint, is_known

LOCAL_TOKEN = "local.token"
LOCAL_PREFIX = "dgm_local_"
LOCAL_LENGTH = 47  # like every token, so that all are redacted alike; 37 random characters are 222 bits
MAX_TOKEN_BYTES = 256
# What proxies, tunnels, clouds and sign-ins in front of a server add to a request, and no client of its own accord.
FORWARDING = frozenset(
    {"forwarded", "forwarded-for", "via", "cdn-loop", "true-client-ip", "client-ip", "incap-client-ip", "x-varnish"}
    | {"fastly-client-ip", "fastly-ssl", "fastly-ff", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-host"}
    | {"x-scheme", "x-url-scheme", "x-rewrite-url", "x-nginx-proxy", "x-cloud-trace-context", "x-bluecoat-via"}
    | {"front-end-https", "early-data", "surrogate-capability", "proxy-connection", "disguised-host"}
    | {"remote-user", "remote-name", "remote-email", "remote-groups", "x-ms-proxy"}
)
FORWARDING_PREFIXES = (
    *("akamai-", "cf-", "fly-", "ngrok-", "tailscale-", "teleport-", "wl-proxy-", "x-akamai-", "x-amz-cf-"),
    *("x-amzn-", "x-appengine-", "x-arr-", "x-auth-request-", "x-authentik-", "x-azure-", "x-coder-"),
    *("x-envoy-", "x-forward-", "x-forwarded", "x-github-", "x-goog-authenticated-", "x-goog-iap-"),
    *("x-ms-client-principal", "x-nf-", "x-original-", "x-pomerium-", "x-proxy", "x-remote-", "x-sucuri-"),
    *("x-vercel-", "x-waws-"),
)
MAKE_ONE = "`dragoman token create --name NAME`, run by the account that runs the server, makes a token."


def local_token(data_dir: Path) -> str:
    """The token of this data directory, made if there is none that could be one. Raises OSError."""
    path = data_dir / LOCAL_TOKEN
    if (known := read_local_token(data_dir)) is not None:
        return known
    token = (LOCAL_PREFIX + secrets.token_urlsafe(32))[:LOCAL_LENGTH]
    made = path.with_name(f"{LOCAL_TOKEN}.new")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    made.replace(path)  # whole, or not at all
    return token


def read_local_token(data_dir: Path) -> str | None:
    """The token of this data directory; None where there is none, or it is not a file of this account's.

    What another account has written it knows, and could let itself in with, or pass for the server.
    """
    try:
        with os.fdopen(os.open(data_dir / LOCAL_TOKEN, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            token = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return token if token.startswith(LOCAL_PREFIX) and len(token) == LOCAL_LENGTH else None


class LocalAdmin(Struct, frozen=True):
    """The account that runs the server, and the token for where the kernel does not know accounts."""

    token_sha256: str = ""  # none is let in by an empty one
    token_file: Path = Path(LOCAL_TOKEN)
    uid: int = field(default_factory=os.geteuid)

    def objection(self, uid: int | None, headers: Headers, bearer: str | None) -> str | None:
        """Return why a request of this account is not the local admin's, and what to do; None if it is."""
        if proxied(headers):
            return f"This request came through a proxy, which requires a token. {MAKE_ONE}"
        if uid == self.uid or is_known(bearer, self.token_sha256):
            return None
        if bearer is not None:
            return f"This is not a token of this server. {MAKE_ONE}"
        if uid is not None:
            return f"Without a token, this server accepts only the account that runs it, not this one. {MAKE_ONE}"
        return (
            "The system does not report which account opened this connection. Open the address that the server "
            f"printed, or send Authorization: Bearer TOKEN with the token in {self.token_file}."
        )


def opened_local_admin(data_dir: Path) -> LocalAdmin:
    """Raises StoreFailed when the data directory cannot be written."""
    try:
        return LocalAdmin(fingerprint(local_token(data_dir)), data_dir / LOCAL_TOKEN)
    except OSError as error:
        advice = "Remove it, or set DRAGOMAN_DATA_DIR to a writable folder of your own."
        raise StoreFailed(f"{data_dir / LOCAL_TOKEN} cannot be made: {error.strerror}. {advice}") from error


def uid_of(scope: Scope) -> int | None:
    """The account that has sent this request; None where the kernel cannot say."""
    peer = scope.get("state", {}).get(PEER)
    return peer.uid if isinstance(peer, Peer) else None


def proxied(headers: Headers) -> bool:
    """Return whether the request's headers say that a proxy passed it on."""
    return any(name in FORWARDING or name.startswith(FORWARDING_PREFIXES) for name in headers)

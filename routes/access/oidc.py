"""The OpenID provider: its documents, its keys, and what is believed of what it says.

The authorization code flow with PKCE (https://openid.net/specs/openid-connect-core-1_0.html,
https://www.rfc-editor.org/rfc/rfc9700). Requests go to what the issuer's discovery document names, by the rules of all
outbound requests: https, public hosts or `private_hosts`, no redirects; the issuer's own host is allowed by naming it.
Only tokens signed with a key of the provider's, by an asymmetric algorithm, for this client are believed.
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx2

from app.config.secret_spec import SecretSpec
from app.config.settings import Settings
from app.config.sign_in_settings import OidcSpec, is_loopback_url
from app.notifications.sender import Sender, UnfitUrl
from app.redaction.redactor import Redactor
from app.secrets.sources import SecretSources, SecretUnavailable
from app.storage.people.secrets import SecretRow
from routes.access.accounts import NO_ROLE, PROVIDER, Person, key_of
from routes.protocol.errors import Refused
from tools.web.bodies import ACCEPT_ENCODING, UnknownPacking, read_body
from tools.web.url_target import PORTS

if TYPE_CHECKING:
    from jwt import PyJWK

CALLBACK = "/oidc/callback"
DISCOVERY = "/.well-known/openid-configuration"
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
KEY_TYPES = ("RSA", "EC", "OKP")
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
LEEWAY_S = 60  # between the clocks
LOGOUT_AGE_S = 600
KEPT_S = 3600.0  # discovery and keys
KEYS_EVERY_S = 10.0  # at most, for tokens with an unknown key
MOST_BYTES = 1 << 20
NAMES = ("preferred_username", "email", "sub")  # of people without the configured claim

GetSecret = Callable[[], Awaitable[str | None]]
Claims = Mapping[str, Any]


class Provider:
    """One issuer and our client there. All methods raise Refused with a sentence for the person."""

    def __init__(self, spec: OidcSpec, public_url: str, sender: Sender, secret: GetSecret) -> None:
        self.spec, self.public_url = spec, public_url.rstrip("/")
        self._sender, self._secret = sender, secret
        self._metadata: tuple[float, Claims] = (-KEPT_S, {})
        self._keys: tuple[float, dict[str, PyJWK]] = (-KEPT_S, {})
        self._keys_tried = -KEPT_S
        self._reading_keys = asyncio.Lock()

    async def sign_in_url(self, state: str, nonce: str, challenge: str) -> str:
        """The provider's page for a sign-in."""
        asked = {
            "response_type": "code",
            "client_id": self.spec.client_id,
            "redirect_uri": self.public_url + CALLBACK,
            "scope": " ".join(dict.fromkeys(("openid", *self.spec.scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(await self._endpoint("authorization_endpoint"), asked)

    async def sign_out_url(self) -> str | None:
        """The provider's page that ends its session; None where it has none."""
        if "end_session_endpoint" not in await self.metadata():
            return None
        asked = {"client_id": self.spec.client_id, "post_logout_redirect_uri": f"{self.public_url}/"}
        return _with_query(await self._endpoint("end_session_endpoint"), asked)

    async def claims(self, code: str, verifier: str, nonce: str, issuer: str | None) -> Claims:
        """The claims about the person that a code stands for. `issuer` is the `iss` of the answer (RFC 9207)."""
        metadata = await self.metadata()
        named = metadata.get("authorization_response_iss_parameter_supported") is True or issuer is not None
        if named and issuer != self.spec.issuer:
            raise _refused("The answer is of another provider.")
        answer = await self._exchange_code(code, verifier, metadata)
        claims = await self._verified(answer.get("id_token"), ("exp", "iat", "sub"))
        if claims.get("nonce") != nonce:
            raise _refused("The ID token is for another sign-in (nonce).")
        if "userinfo_endpoint" in metadata and isinstance(answer.get("access_token"), str):
            headers = {"Authorization": f"Bearer {answer['access_token']}"}
            status, more = await self._ask("GET", await self._endpoint("userinfo_endpoint"), headers)
            if status == 200 and more.get("sub") == claims["sub"]:
                claims = {**more, **claims}
        return claims

    async def logged_out(self, token: str) -> tuple[str, str]:
        """The keys of the person, and of the session, that a logout token names; one may be empty."""
        claims = await self._verified(token, ("iat",))
        events = claims.get("events")
        if not isinstance(events, dict) or LOGOUT_EVENT not in events or "nonce" in claims:
            raise _refused("This is no logout token.")
        if time.time() - claims["iat"] > LOGOUT_AGE_S:
            raise _refused("The logout token is too old.")
        sub, sid = claims.get("sub"), claims.get("sid")
        if not (sub or sid):
            raise _refused("The logout token names neither a person nor a session.")
        return self._key(PROVIDER, sub) if sub else "", self._key("sid", sid) if sid else ""

    def session_of(self, claims: Claims) -> str:
        return self._key("sid", claims["sid"]) if claims.get("sid") else ""

    def person_of(self, claims: Claims) -> Person:
        spec = self.spec
        if spec.domains:
            domain = str(claims.get("email", "")).rpartition("@")[2].lower()
            if domain not in spec.domains or claims.get("email_verified") is not True:
                raise Refused(403, "not_admitted", f"Only verified addresses of {', '.join(spec.domains)} enter.")
        groups = _claim(claims, spec.role_claim)
        given = [str(one) for one in (groups if isinstance(groups, list) else [groups])]
        if (role := spec.role_of(given)) is None:
            raise Refused(403, "not_admitted", NO_ROLE)
        names = (_claim(claims, name) for name in (spec.name_claim, *NAMES))
        name = next(one for one in names if isinstance(one, str) and one)
        return Person(self._key(PROVIDER, claims["sub"]), name, role)

    async def metadata(self) -> Claims:
        """The discovery document, kept for an hour."""
        read, document = self._metadata
        if time.monotonic() - read < KEPT_S:
            return document
        status, document = await self._ask("GET", self.spec.issuer.rstrip("/") + DISCOVERY)
        if status != 200 or document.get("issuer") != self.spec.issuer:
            raise _down(f"{DISCOVERY} answers {status}, for the issuer {str(document.get('issuer'))[:200]!a}")
        self._metadata = time.monotonic(), document
        return document

    async def check(self) -> None:
        """That the provider answers, and the secret is there."""
        await self._client_secret()
        await self._read_keys()

    def _key(self, kind: str, name: str) -> str:
        return key_of(kind, self.spec.issuer, str(name))

    async def _endpoint(self, name: str) -> str:
        url = (await self.metadata()).get(name)
        local = is_loopback_url(self.spec.issuer) and isinstance(url, str) and is_loopback_url(url)
        if not isinstance(url, str) or not (url.startswith("https://") or (local and url.startswith("http://"))):
            raise _down(f"its {name} is no https URL")
        return url

    async def _exchange_code(self, code: str, verifier: str, metadata: Claims) -> Claims:
        secret = await self._client_secret()
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
        form |= {"redirect_uri": self.public_url + CALLBACK}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if secret and "client_secret_post" not in metadata.get("token_endpoint_auth_methods_supported", ()):
            pair = f"{quote_plus(self.spec.client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self.spec.client_id} | ({"client_secret": secret} if secret else {})
        status, answer = await self._ask("POST", await self._endpoint("token_endpoint"), headers, form)
        if status == 200:
            return answer
        error = str(answer.get("error"))[:80]
        if error == "invalid_grant":
            raise _refused("The provider does not accept the code: it was used before, or is too old (invalid_grant).")
        raise _down(f"its token endpoint answers {status} ({error}); check client_id and client_secret")

    async def _verified(self, token: object, required: tuple[str, ...]) -> dict[str, Any]:
        """The claims of a token for us: of its signature, `iss`, `aud`, `azp`, `exp`, `nbf` and `iat`."""
        import jwt  # with it come 0.2 s of cryptography

        if not isinstance(token, str) or len(token) > MOST_BYTES:
            raise _refused("The provider sent no token.")
        try:
            key = await self._key_of(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self.spec.client_id,
                issuer=self.spec.issuer,
                leeway=LEEWAY_S,
                options={"require": ["iss", "aud", *required], "enforce_minimum_key_length": True},
            )
        except (jwt.ImmatureSignatureError, jwt.ExpiredSignatureError):
            raise _refused("The times of the provider's token and of this server differ: check both clocks.") from None
        except jwt.PyJWTError as error:
            raise _refused(f"The provider's token is not valid ({error}).") from None
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else self.spec.client_id) != self.spec.client_id:
            raise _refused("The provider's token is for another client (azp).")
        return claims

    async def _key_of(self, kid: object) -> PyJWK:
        """The key of a token; the keys are read again for an unknown one, which follows a rotation."""
        async with self._reading_keys:  # unauthenticated requests have tokens, too
            (read, keys), now = self._keys, time.monotonic()
            if now - read > KEPT_S:
                keys = {}
            if _chosen(keys, kid) is None and now - self._keys_tried > KEYS_EVERY_S:
                self._keys_tried = now
                keys = await self._read_keys()
        if (key := _chosen(keys, kid)) is None:
            raise _refused("The provider's token is signed with a key that the provider does not publish.")
        return key

    async def _read_keys(self) -> dict[str, PyJWK]:
        status, document = await self._ask("GET", await self._endpoint("jwks_uri"))
        if status != 200 or not (keys := _usable_keys(document)):
            raise _down(f"its keys answer {status}, with none that can be used")
        self._keys = time.monotonic(), keys
        return keys

    async def _client_secret(self) -> str | None:
        try:
            return await self._secret()
        except SecretUnavailable as missing:
            raise _down(str(missing)) from None

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, form: Mapping[str, str] | None = None
    ) -> tuple[int, Claims]:
        """Return the status and the JSON object of an answer."""
        head = {"Accept": "application/json", "Accept-Encoding": ACCEPT_ENCODING} | dict(headers or {})
        body = urlencode(form).encode() if form else None
        try:
            return await self._sender.exchange(method, url, head, body, _object_of)
        except TimeoutError:
            raise _down("it does not answer in time") from None
        except (UnfitUrl, httpx2.HTTPError, UnknownPacking, ValueError, RecursionError) as error:
            raise _down(str(error)[:200] or type(error).__name__) from None


def opened_provider(settings: Settings, redactor: Redactor, sources: SecretSources) -> Provider | None:
    if (spec := settings.oidc) is None:
        return None
    parts = urlsplit(spec.issuer)
    own = f"{parts.hostname}:{parts.port or PORTS[parts.scheme]}"

    async def secret() -> str | None:
        if spec.client_secret is None:
            return None
        row = SecretRow("oidc.client_secret", "", None, "", 0.0)
        value = await sources.value(row, SecretSpec(source=spec.client_secret))
        redactor.add(value)
        return value

    sender = Sender((*settings.private_hosts, own), (settings.port,))
    return Provider(spec, settings.public_url or "", sender, secret)


async def _object_of(response: httpx2.Response) -> tuple[int, Claims]:
    """Raises ValueError."""
    body, more = await read_body(response, MOST_BYTES)
    if more:
        raise ValueError("its answer is too long")
    try:
        value = json.loads(body)
    except ValueError:
        value = {}  # a page of a proxy in between: the status says more
    return response.status_code, value if isinstance(value, dict) else {}


def _usable_keys(document: Claims) -> dict[str, PyJWK]:
    import jwt

    keys: dict[str, PyJWK] = {}
    rows = document.get("keys")
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        if isinstance(row, dict) and row.get("kty") in KEY_TYPES and row.get("use", "sig") == "sig":
            try:
                keys[str(row.get("kid", number))] = jwt.PyJWK(row)
            except (jwt.PyJWTError, TypeError):
                continue  # of a kind that is not known here
    return keys


def _chosen(keys: Mapping[str, PyJWK], kid: object) -> PyJWK | None:
    if kid is None:
        return next(iter(keys.values())) if len(keys) == 1 else None
    return keys.get(str(kid))


def _claim(claims: Claims, name: str) -> Any:
    """A claim by its name, or by a path to it such as `realm_access.roles`."""
    if name in claims or "." not in name:
        return claims.get(name)
    first, _, rest = name.partition(".")
    inside = claims.get(first)
    return _claim(inside, rest) if isinstance(inside, dict) else None


def _with_query(url: str, fields: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"


def _refused(why: str) -> Refused:
    return Refused(403, "provider_refused", f"{why} Sign in again.")


def _down(why: str) -> Refused:
    message = f"The identity provider cannot be used now: {why}. Try again later; access tokens work all the same."
    return Refused(502, "provider_unavailable", message)

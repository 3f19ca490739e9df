"""ID tokens and logout tokens that are not the provider's, not for us, or not for this sign-in."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.models.scripted import Scripted
from routes.access.oidc import LOGOUT_EVENT
from tests.support.access.identity import SECRET, FakeIssuer, Forge, browsing_as, configure, fake_issuer
from tests.support.access.people import LIMIT_S
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
OTHER_KEY = generate_private_key(65537, 2048)


def _without(name: str) -> Forge:
    return lambda issuer, claims: issuer.signed({k: v for k, v in claims.items() if k != name})


def _with(**more: Any) -> Forge:
    return lambda issuer, claims: issuer.signed(claims | more)


def _hmac(issuer: FakeIssuer, claims: dict[str, Any], secret: bytes) -> str:
    """A token signed with a text that is known: PyJWT itself refuses to sign with a public key."""
    import hashlib
    import hmac

    parts = [{"alg": "HS256", "kid": "one", "typ": "JWT"}, claims]
    head = b".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    return (head + b"." + urlsafe_b64encode(hmac.digest(secret, head, hashlib.sha256)).rstrip(b"=")).decode()


def _by_public_key(issuer: FakeIssuer, claims: dict[str, Any]) -> str:
    pem = issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return _hmac(issuer, claims, pem)


def _embedded_key(issuer: FakeIssuer, claims: dict[str, Any]) -> str:
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(OTHER_KEY.public_key(), as_dict=True)
    return jwt.encode(claims, OTHER_KEY, "RS256", headers={"kid": "one", "jwk": jwk, "jku": "http://127.0.0.1:9/"})


NOW = int(time.time())
ATTACKS: dict[str, Forge] = {
    "unsigned": lambda issuer, claims: jwt.encode(claims, "", "none", headers={"kid": "one"}),
    "cut": lambda issuer, claims: issuer.signed(claims).rpartition(".")[0] + ".",
    "HMAC with the public key": _by_public_key,
    "HMAC with the client's secret": lambda issuer, claims: _hmac(issuer, claims, SECRET.encode()),
    "another key under its name": lambda issuer, claims: jwt.encode(claims, OTHER_KEY, "RS256", headers={"kid": "one"}),
    "a key in the token": _embedded_key,
    "an unknown key": lambda issuer, claims: jwt.encode(claims, OTHER_KEY, "RS256", headers={"kid": "two"}),
    "another issuer": _with(iss="https://evil.example"),
    "no issuer": _without("iss"),
    "another audience": _with(aud="other"),
    "no audience": _without("aud"),
    "several audiences": _with(aud=["dragoman", "other"]),
    "another party": _with(azp="other"),
    "no nonce": _without("nonce"),
    "another nonce": _with(nonce="x"),
    "expired": _with(exp=NOW - 600),
    "never expires": _without("exp"),
    "of the future": _with(iat=NOW + 600, exp=NOW + 1200),
    "not yet valid": _with(nbf=NOW + 600),
    "without a time": _without("iat"),
    "without a person": _without("sub"),
    "a person who is no text": _with(sub=7),
    "a time that is no number": _with(iat="now"),
    "a logout token": lambda issuer, claims: issuer.signed(issuer.claims(events={LOGOUT_EVENT: {}})),
    "no token": lambda issuer, claims: "",
    "no text": lambda issuer, claims: cast(str, [1]),
    "deep": lambda issuer, claims: urlsafe_b64encode(b"[" * 50_000).decode().rstrip("=") + ".e30.e30",
}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)


async def test_only_a_token_of_the_provider_for_this_sign_in_is_believed(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * LIMIT_S), fake_issuer() as issuer:
        configure(tmp_path, issuer.url)
        async with serving(tmp_path, Scripted([])) as served, browsing_as(served) as browser:
            let_in = {}
            for name, forge in ATTACKS.items():
                issuer.forge = forge
                answer = await issuer.sign_in(browser)
                if answer.status_code != 403 or answer.json()["error"]["code"] != "provider_refused":
                    let_in[name] = answer.text
            assert (
                not let_in and not await served.services.store.sign_ins() and not await served.services.store.tokens()
            )
            issuer.forge = _with(aud=["dragoman", "other"], azp="dragoman", iat=NOW + 30)
            assert (await issuer.sign_in(browser)).status_code == 201  # a clock half a minute ahead
            issuer.forge = FakeIssuer.forge
            # Mix-up (RFC 9207): the answer of another provider, and one that does not say whose it is.
            issuer.iss = "https://evil.example"
            assert (await issuer.sign_in(browser)).status_code == 403
            assert served.services.provider
            issuer.metadata, issuer.iss = {"authorization_response_iss_parameter_supported": True}, None
            served.services.provider._metadata = (-1e9, {})
            assert (await issuer.sign_in(browser)).status_code == 403
            issuer.iss = issuer.url
            assert (await issuer.sign_in(browser)).status_code == 201
            # A discovery document for another issuer, or with addresses that a browser must not open.
            for wrong in ({"issuer": "https://evil.example"}, {"authorization_endpoint": "javascript:alert(1)"}):
                issuer.metadata = wrong
                served.services.provider._metadata = (-1e9, {})
                begun = await browser.here.post("/oidc/begin", json={"key": browser.key})
                assert (begun.status_code, begun.json()["error"]["code"]) == (502, "provider_unavailable"), begun.text


Change = Callable[[dict[str, Any]], dict[str, Any]]
BAD_LOGOUTS: dict[str, Change] = {
    "an ID token": lambda claims: {k: v for k, v in claims.items() if k != "events"} | {"nonce": "n"},
    "another event": lambda claims: claims | {"events": {"x": {}}},
    "with a nonce": lambda claims: claims | {"nonce": "n"},
    "old": lambda claims: claims | {"iat": NOW - 3600, "exp": NOW + 3600},
    "for another": lambda claims: claims | {"aud": "other"},
    "of another": lambda claims: claims | {"iss": "https://evil.example"},
    "of no person": lambda claims: {k: v for k, v in claims.items() if k not in ("sub", "sid")},
}


async def test_only_a_logout_token_of_the_provider_ends_sign_ins(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * LIMIT_S), fake_issuer() as issuer:
        configure(tmp_path, issuer.url)
        async with serving(tmp_path, Scripted([])) as served, browsing_as(served) as one, browsing_as(served) as two:

            async def log_out(token: str) -> int:
                sent = await served.client.post("/oidc/backchannel-logout", data={"logout_token": token})
                return sent.status_code

            assert (await issuer.sign_in(one)).status_code == 201
            issuer.forge = _with(sid="s2")
            assert (await issuer.sign_in(two)).status_code == 201
            good = issuer.claims(events={LOGOUT_EVENT: {}})
            for name, change in BAD_LOGOUTS.items():
                assert await log_out(issuer.signed(change(good))) == 400, name
            for token in ("", "x", jwt.encode(good, "", "none"), _by_public_key(issuer, good)):
                assert await log_out(token) == 400
            assert [await one.status(), await two.status()] == [200, 200]
            assert await log_out(issuer.signed(good | {"sub": "2"})) == 200  # the session of another person
            assert await log_out(issuer.signed(good | {"sid": "s3"})) == 200
            assert [await one.status(), await two.status()] == [200, 200]
            assert await log_out(issuer.signed({k: v for k, v in good.items() if k != "sub"})) == 200
            assert [await one.status(), await two.status()] == [401, 200]
            assert await log_out(issuer.signed({k: v for k, v in good.items() if k not in ("sid", "exp")})) == 200
            assert [await one.status(), await two.status()] == [401, 401]


async def test_strangers_cannot_flood_the_provider_or_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Logout tokens with unknown keys cause one request for the keys in some seconds; odd forms are answered."""
    async with asyncio.timeout(2 * LIMIT_S), fake_issuer() as issuer:
        configure(tmp_path, issuer.url)
        async with serving(tmp_path, Scripted([])) as served, browsing_as(served) as browser:

            async def log_out(**sent: Any) -> int:
                return (await served.client.post("/oidc/backchannel-logout", **sent)).status_code

            token = jwt.encode(issuer.claims(), OTHER_KEY, "RS256", headers={"kid": "two"})
            assert {await one for one in [log_out(data={"logout_token": token}) for _ in range(3)]} == {400}
            several = [log_out(data={"logout_token": token}) for _ in range(20)]
            assert set(await asyncio.gather(*several)) == {400}
            assert issuer.keys_asked == 1
            assert (await issuer.sign_in(browser)).status_code == 201
            assert served.services.provider
            served.services.provider._keys_tried -= 60  # as a minute later
            assert set(await asyncio.gather(*(log_out(data={"logout_token": token}) for _ in range(20)))) == {400}
            assert issuer.keys_asked == 2
            assert await log_out(content=b"a=1&" * 20) == 400
            assert not [record for record in caplog.records if record.exc_info]


async def test_a_proxy_does_not_keep_the_sign_ins_of_a_provider_that_is_gone(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * LIMIT_S), fake_issuer() as issuer:
        configure(tmp_path, issuer.url)
        async with serving(tmp_path, Scripted([])) as served, browsing_as(served) as ann:
            assert (await issuer.sign_in(ann)).status_code == 201 and await ann.status() == 200
        lines = ['public_url = "http://localhost:1"', "[trusted_header]", 'from = ["192.0.2.7"]']
        (tmp_path / "dragoman.toml").write_text("\n".join([*lines, 'default_role = "user"']))
        async with serving(tmp_path, Scripted([])) as served, browsing_as(served) as again:
            again.kept, again.here.cookies = ann.kept, ann.here.cookies
            assert await again.status() == 401

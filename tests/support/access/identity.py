"""Identity providers on loopback: oidc-provider of npm, one that signs whatever is wanted, and a person's browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import jwt
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from routes.access.sign_ins import SIGN_IN_HEADER
from tests import ROOT
from tests.support.server.serving import NO_TLS, Served, running

PACKAGE = ROOT / ".cache/mcp/oidc/node_modules/oidc-provider/lib/index.js"
SECRET = "a-secret-of-tests-1234"
PUBLIC_URL = "http://localhost:1"
STARTED_S = 30
FORM = re.compile(r'<form[^>]*action="([^"]+)".*?</form>', re.DOTALL)
INPUT = re.compile(r'<input[^>]*type="hidden"[^>]*name="([^"]+)"[^>]*value="([^"]+)"')
STAFF: dict[str, Any] = {"groups": ["staff"], "email": "a@example.org", "email_verified": True}
People = Mapping[str, Mapping[str, Any]]


def configure(folder: Path, issuer: str, *more: str, public_url: str = PUBLIC_URL) -> None:
    """Write the settings of a server whose people sign in at this issuer."""
    lines = [
        f'public_url = "{public_url}"',
        "[oidc]",
        f'issuer = "{issuer}"',
        'client_id = "dragoman"',
        'client_secret = "env:OIDC_SECRET"',
        'label = "Example"',
        'roles = {staff = "user", chiefs = "admin"}',
        *more,
    ]
    (folder / "dragoman.toml").write_text("\n".join(lines))


@asynccontextmanager
async def real_provider(
    port: int, people: People, served: Served, public_url: str = PUBLIC_URL
) -> AsyncGenerator[None, None]:
    """oidc-provider, which knows these people, and the server as its client. Its keys are new each time."""
    if not PACKAGE.exists() or not shutil.which("node"):
        fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        fail("oidc-provider or node is not installed: run `make real-servers`.")
    client = {
        "client_id": "dragoman",
        "client_secret": SECRET,
        "redirect_uris": [f"{public_url}/oidc/callback"],
        "post_logout_redirect_uris": [f"{public_url}/"],
        "id_token_signed_response_alg": "ES256",
        "backchannel_logout_uri": f"{served.client.base_url}/oidc/backchannel-logout",
        "backchannel_logout_session_required": True,
    }
    config = json.dumps({"port": port, "package": str(PACKAGE), "client": client, "people": people})
    script = str(ROOT / "fixtures/oidc/provider.mjs")
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec("node", script, config, stdout=pipe, stderr=null)
    assert process.stdout
    try:
        async with asyncio.timeout(STARTED_S):
            assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def browsing_as(served: Served, login: str = "alice") -> AsyncGenerator[Browser, None]:
    options: dict[str, Any] = {"trust_env": False, "verify": NO_TLS, "timeout": STARTED_S}
    async with (
        httpx2.AsyncClient(base_url=served.client.base_url, **options) as here,
        httpx2.AsyncClient(**options) as there,
    ):
        yield Browser(here, there, login)


@dataclass
class Browser:
    """A person's browser, with the page of our server in it; cookies of both servers are kept."""

    here: httpx2.AsyncClient
    there: httpx2.AsyncClient
    login: str
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    kept: str = ""  # the key of the sign-in

    async def begin(self) -> str:
        answer = await self.here.post("/oidc/begin", json={"key": self.key})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["url"])

    async def answer_of(self, url: str) -> dict[str, str]:
        """Sign in at the provider, and agree; the answer that it leads back with."""
        answer = await self.there.get(url)
        while True:
            if answer.is_redirect:
                target = str(httpx2.URL(url).join(answer.headers["location"]))
                if "/oidc/callback" in target:
                    return dict(parse_qsl(urlsplit(target).query))
                answer = await self.there.get(target)
            else:
                answer = await self._sent(answer)

    async def _sent(self, page: httpx2.Response) -> httpx2.Response:
        assert page.status_code == 200, page.text
        form = FORM.search(page.text)
        assert form, page.text
        fields = dict(INPUT.findall(form[0]))
        if fields.get("prompt") == "login":
            fields |= {"login": self.login, "password": "x"}
        return await self.there.post(str(page.url.join(unescape(form[1]))), data=fields)

    async def finish(self, answer: Mapping[str, str], **more: str) -> httpx2.Response:
        fields = {name: answer[name] for name in ("state", "code", "iss") if name in answer}
        finished = await self.here.post("/oidc/finish", json={"key": self.key} | fields | more)
        if finished.status_code == 201:
            self.kept = finished.json()["key"]
        return finished

    async def sign_in(self) -> httpx2.Response:
        return await self.finish(await self.answer_of(await self.begin()))

    async def sign_out_there(self, issuer: str) -> None:
        page = await self.there.get(f"{issuer}/session/end")
        form = FORM.search(page.text)
        assert form, page.text
        data = dict(INPUT.findall(form[0])) | {"logout": "yes"}
        assert (await self.there.post(unescape(form[1]), data=data)).status_code in (200, 303)

    async def status(self, path: str = "/sessions") -> int:
        return (await self.here.get(path, headers={SIGN_IN_HEADER: self.kept})).status_code


Forge = Callable[["FakeIssuer", dict[str, Any]], str]


@dataclass
class FakeIssuer:
    """An issuer whose ID tokens are what a test makes of good claims; it agrees to each sign-in."""

    url: str = ""
    key: RSAPrivateKey = field(default_factory=lambda: generate_private_key(65537, 2048))
    forge: Forge = lambda issuer, claims: issuer.signed(claims)
    nonce: str = ""
    iss: str | None = None  # of the answer
    keys_asked: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def signed(self, claims: Mapping[str, Any], **header: Any) -> str:
        return jwt.encode(dict(claims), self.key, "RS256", headers={"kid": "one"} | header)

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        return {"iss": self.url, "aud": "dragoman", "sub": "1", "iat": now, "exp": now + 300, "sid": "s1"} | more

    def public_jwk(self) -> dict[str, Any]:
        jwk = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {**jwk, "kid": "one", "use": "sig"}

    async def discover(self, _: Request) -> JSONResponse:
        names = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "jwks"}
        return JSONResponse({"issuer": self.url} | {k: f"{self.url}/{v}" for k, v in names.items()} | self.metadata)

    async def keys(self, _: Request) -> JSONResponse:
        self.keys_asked += 1
        strange = {"kty": "RSA", "kid": "strange", "alg": ["RS256"], "n": "AQ", "e": "AQ"}
        return JSONResponse({"keys": [strange, self.public_jwk()]})

    async def token(self, _: Request) -> JSONResponse:
        claims = self.claims(nonce=self.nonce, groups=["staff"], preferred_username="ann")
        return JSONResponse({"id_token": self.forge(self, claims), "token_type": "Bearer"})

    async def sign_in(self, browser: Browser) -> httpx2.Response:
        asked = dict(parse_qsl(urlsplit(await browser.begin()).query))
        self.nonce = asked["nonce"]
        answer = {"state": asked["state"], "code": "c"} | ({"iss": self.iss} if self.iss else {})
        return await browser.finish(answer)


@asynccontextmanager
async def fake_issuer() -> AsyncGenerator[FakeIssuer, None]:
    issuer = FakeIssuer()
    routes = [
        Route("/.well-known/openid-configuration", issuer.discover),
        Route("/jwks", issuer.keys),
        Route("/token", issuer.token, methods=["POST"]),
    ]
    config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=0, log_level="error")
    async with running(config) as server:
        issuer.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield issuer

"""An OAuth issuer and a resource that trusts it, both real servers on loopback, each on a port of its own."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import httpx2
import uvicorn
from mcp.server.auth.provider import AccessToken, AuthorizationCode, AuthorizationParams, RefreshToken
from mcp.server.auth.routes import create_auth_routes, create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.server.serving import running


def _is_set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class Issuer:
    """Registers whoever asks, agrees to every sign-in, and rotates refresh tokens: an old one is worth nothing."""

    lifetimes: list[int] = field(default_factory=list)  # of the next access tokens, in seconds; then an hour
    down: bool = False  # as far as tokens are concerned
    asked: list[str] = field(default_factory=list)  # paths
    granted: list[str] = field(default_factory=list)  # grant types
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    refreshers: dict[str, RefreshToken] = field(default_factory=dict)
    taken: asyncio.Event = field(default_factory=asyncio.Event)  # a refresh token was exchanged; the answer waits for
    go: asyncio.Event = field(default_factory=_is_set)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or [],
            expires_at=4e9,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return f"{params.redirect_uri}?code={code.code}&state={params.state}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._grant("authorization_code", client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refreshers.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refreshers[refresh_token.token]
        granted = self._grant("refresh_token", client.client_id, scopes)
        self.taken.set()
        await self.go.wait()
        return granted

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def verify_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)

    async def exchange_identity_assertion(self, client: OAuthClientInformationFull, params: object) -> OAuthToken:
        raise NotImplementedError

    def _grant(self, kind: str, client: str, scopes: list[str]) -> OAuthToken:
        self.granted.append(kind)
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.tokens[access] = AccessToken(token=access, client_id=client, scopes=scopes)
        self.refreshers[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        lifetime = self.lifetimes.pop(0) if self.lifetimes else 3600
        return OAuthToken(access_token=access, expires_in=lifetime, scope=" ".join(scopes), refresh_token=refresh)

    def app(self, url: str) -> ASGIApp:
        options = ClientRegistrationOptions(enabled=True, valid_scopes=["tools"], default_scopes=["tools"])
        inner = Starlette(routes=create_auth_routes(self, AnyHttpUrl(url), client_registration_options=options))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                self.asked.append(scope["path"])
                if self.down and scope["path"] == "/token":
                    await PlainTextResponse("later", 503)(scope, receive, send)
                    return
            await inner(scope, receive, send)

        return app


@dataclass
class Resource:
    """An MCP server with one tool, and beside it a page for the same tokens, that waits for `go` when told to."""

    issuer: Issuer
    url: str
    wait: bool = False
    waiting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    go: asyncio.Event = field(default_factory=asyncio.Event)
    refused: int = 0
    misled: list[str] = field(default_factory=list)  # what only the issuer should be asked

    def app(self, issuer_url: str) -> ASGIApp:
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(issuer_url),
            resource_server_url=AnyHttpUrl(self.url),
            required_scopes=["tools"],
            validate_token_resource=False,
        )
        server = MCPServer("closed", token_verifier=self.issuer, auth=settings)

        @server.tool()
        def double(number: int) -> int:
            """Twice the number."""
            return 2 * number

        app = server.streamable_http_app()
        app.add_route("/page", self.page)
        app.add_route("/token", self.token, methods=["POST"])
        return app

    async def page(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.issuer.tokens:
            self.refused += 1
            where = create_protected_resource_routes(AnyHttpUrl(self.url), [AnyHttpUrl(self.url)])[0].path
            met = f'Bearer resource_metadata="{self.url.removesuffix("/mcp")}{where}"'
            return Response(status_code=401, headers={"WWW-Authenticate": met})
        if self.wait:
            self.waiting.release()
            await self.go.wait()
        return PlainTextResponse("welcome")

    async def token(self, request: Request) -> Response:
        self.misled.append(request.url.path)
        return Response(status_code=404)


@asynccontextmanager
async def served(app: ASGIApp, bound: socket.socket) -> AsyncGenerator[None, None]:
    """A server on a socket that listens already: whoever connects too early waits."""
    async with running(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1), [bound]):
        yield


def listening() -> tuple[socket.socket, str]:
    bound = socket.create_server(("127.0.0.1", 0))
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound, f"http://127.0.0.1:{bound.getsockname()[1]}"


@asynccontextmanager
async def closed_server() -> AsyncGenerator[Resource, None]:
    """A resource at `url` and its issuer."""
    (at_issuer, issuer_url), (at_resource, resource_url) = listening(), listening()
    issuer = Issuer()
    resource = Resource(issuer, f"{resource_url}/mcp")
    async with served(issuer.app(issuer_url), at_issuer), served(resource.app(issuer_url), at_resource):
        yield resource


CALLBACK = "http://localhost:8724/mcp/callback"
WITHIN_S = 20


async def callback_of(page: str) -> dict[str, str]:
    """What the browser brings back to the callback."""
    async with httpx2.AsyncClient(timeout=WITHIN_S, trust_env=False) as browser:
        answer = await browser.get(page)
    assert answer.headers["location"].startswith("http")
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}

"""The SDK's OAuth client, adapted to a long-running server: its state survives a restart, one request refreshes the
tokens for all, calls do not wait for each other, and nothing waits for a person.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from contextvars import Context
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthTokenError
from mcp.client.auth.utils import extract_field_from_www_auth
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from pydantic import AnyUrl, BaseModel, ValidationError

from tools.base.tasks import retrieve
from tools.mcp.auth.sign_in import SignIn, is_loopback, refuse_open
from tools.mcp.auth.token_file import TokenFile
from tools.mcp.connection.http import LastFailure, client_for
from tools.mcp.model import NeedsAuth, ServerConfig, SignInFailed

_log = logging.getLogger(__name__)

_LONG_AGO = 1.0  # seconds since the epoch; the SDK takes 0 for "never ends"
_BUSY = 429
RENEW_S, CLOSE_S = 30.0, 1.0


class _Expected(logging.Filter):
    """Drops the traceback that the SDK logs whenever a sign-in is needed."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], NeedsAuth))


logging.getLogger("mcp.client.auth.oauth2").addFilter(_Expected())


class Flow(OAuthClientProvider):
    """The sign-in to one server. It outlives the connections, which end when a sign-in is needed."""

    def __init__(
        self,
        config: ServerConfig,
        file: TokenFile,
        callback_url: str,
        client_metadata_url: str | None,
        private_hosts: Sequence[str],
    ) -> None:
        local = is_loopback(urlsplit(callback_url).hostname or "")
        metadata = OAuthClientMetadata(
            client_name="dragoman",
            redirect_uris=[AnyUrl(callback_url)],
            application_type="native" if local else "web",
        )
        super().__init__(config.url, metadata, self, client_metadata_url=client_metadata_url)
        self._config = config
        self._file = file
        self._private_hosts = private_hosts
        self._sign_in: SignIn | None = None
        self._renewing: asyncio.Task[None] | None = None

    def waits_for(self, state: str) -> bool:
        sign_in = self._sign_in
        return (
            sign_in is not None and sign_in.is_open() and hmac.compare_digest(sign_in.state().encode(), state.encode())
        )

    def finish(self, state: str, code: str, issuer: str | None) -> str:
        if self._sign_in:
            self._sign_in.answer.set_result(AuthorizationCodeResult(code=code, state=state, iss=issuer))
        return self._config.name

    def refuse(self, reason: str) -> str:
        if self._sign_in:
            self._sign_in.answer.set_exception(
                SignInFailed(f"The sign-in was refused: {reason}. Reconnect to try again.")
            )
        return self._config.name

    async def follow(self) -> bool:
        """Take over tokens that another process has got meanwhile; return True if there are such."""
        kept = await self._file.read()
        token = (kept.get("tokens") or {}).get("access_token")
        if not token or token == self._token():
            return False
        self.drop_sign_in()
        self._restore(kept)
        self._initialized = True
        return True

    def drop_sign_in(self) -> None:
        if self._sign_in:
            self._sign_in.close()
        self._sign_in = None

    async def close(self) -> None:
        """Close, after a running token refresh has been stored."""
        self.drop_sign_in()
        if self._renewing:
            await asyncio.wait({self._renewing}, timeout=CLOSE_S)
            self._renewing.cancel()

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Replace the SDK's flow, which holds a lock during each call and loses new tokens when one is cancelled."""
        context = self.context
        async with context.lock:
            if not self._initialized:
                await self._initialize()
        context.protocol_version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        await self._renew()
        sent = self._sign(request)
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED and sent:
            if self._token() == sent:  # not refreshed since
                context.token_expiry_time = _LONG_AGO
            await self._renew()
            if self._token() not in ("", sent):
                self._sign(request)
                response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED or _wants_more(response):
            self._drop_moved_client()
            signed = request.headers.get("Authorization")
            async with aclosing(super()._auth_flow(request)) as steps:
                step = await _next(steps, None)
                while step is not None:
                    if (
                        step is not request or step.headers.get("Authorization") != signed
                    ):  # otherwise its response is known
                        response = yield step
                    step = await _next(steps, response)

    async def _renew(self) -> None:
        """Refresh the tokens when they have expired and can be refreshed: once for all waiting calls.

        It continues when the waiting call is cancelled: the issuer has consumed the old refresh token by then.
        """
        if self._renewing is None or self._renewing.done():
            if not self._has_answer() and (self.context.is_token_valid() or not self.context.can_refresh_token()):
                return
            self._renewing = asyncio.create_task(self._renewed(), context=Context())
            self._renewing.add_done_callback(retrieve)
        await asyncio.shield(self._renewing)

    async def _renewed(self) -> None:
        async with self._file.place.lock(self._file.name):
            # Another server may have got tokens meanwhile.
            if self._has_answer() or not (self._file.place.is_shared and await self.follow()):
                await self._exchange()

    async def _exchange(self) -> None:
        take: Callable[[httpx2.Response], Awaitable[object]]
        if (sign_in := self._sign_in) and sign_in.exchange and self._has_answer():
            self._sign_in = None
            request, take = await sign_in.exchange, self._handle_token_response
        else:
            request, take = await self._refresh_token(), self._handle_refresh_response
        # The client of the call that needs the tokens ends with it.
        client = client_for(self._config, None, self._private_hosts, LastFailure(), lambda why: None)
        async with asyncio.timeout(RENEW_S), client:
            await take(await client.send(request))

    def _has_answer(self) -> bool:
        return self._sign_in is not None and self._sign_in.answer.done()

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        if response.status_code == _BUSY or response.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
            # The SDK would forget the refresh token, and a person would have to sign in again.
            raise OAuthTokenError(f"The token issuer answered {response.status_code}; the tokens are kept. Try again.")
        refreshed = await super()._handle_refresh_response(response)
        if not refreshed:
            await self._keep()
        return refreshed

    async def _perform_authorization(self) -> httpx2.Request:
        """Start a sign-in, or return the page of the pending one. A later connection uses its result."""
        context = self.context
        issuer = context.oauth_metadata
        base = context.get_authorization_base_url(context.server_url)
        for url in (str(issuer.authorization_endpoint), str(issuer.token_endpoint)) if issuer else (base,):
            refuse_open(url)
        self._choose_method()
        client = context.client_info.client_id if context.client_info else None
        target = (str(issuer.issuer) if issuer else base, client, context.client_metadata.scope)
        if self._sign_in is None or not self._sign_in.is_open() or self._sign_in.target != target:
            self.drop_sign_in()
            self._sign_in = SignIn(target)
            context.redirect_handler, context.callback_handler = self._sign_in.show, self._sign_in.answered
            # Away from the context of the request, whose clock the SDK would stop.
            await self._sign_in.open(asyncio.create_task(super()._perform_authorization(), context=Context()))
        raise NeedsAuth(self._sign_in.url)

    def _choose_method(self) -> None:
        """Choose the authentication method of a client with a configured secret: one that the issuer supports."""
        client, issuer = self.context.client_info, self.context.oauth_metadata
        if client and self._config.client_secret:
            known = issuer.token_endpoint_auth_methods_supported if issuer else None
            basic = known is None or "client_secret_basic" in known
            client.token_endpoint_auth_method = "client_secret_basic" if basic else "client_secret_post"

    def _drop_moved_client(self) -> None:
        """A client that was registered with another callback may not come back to this one: register anew."""
        client, ours = self.context.client_info, self.context.client_metadata.redirect_uris or []
        known = client.redirect_uris if client and not self._config.client_id else None
        if known and not {*map(str, ours)} <= {*map(str, known)}:
            self.context.client_info = None

    def _token(self) -> str:
        tokens = self.context.current_tokens
        return tokens.access_token if tokens else ""

    def _sign(self, request: httpx2.Request) -> str:
        """Put the token into the request and return it. The server decides whether it has expired."""
        self._add_auth_header(request)
        return self._token()

    # The SDK's storage protocol.

    async def get_tokens(self) -> OAuthToken | None:
        return self.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await self._keep()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.context.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._keep()

    async def _initialize(self) -> None:
        """Restore all state: the SDK restores tokens only, without their expiry and issuer."""
        self._restore(await self._file.read())
        self._initialized = True

    def _restore(self, kept: dict[str, Any]) -> None:
        context = self.context
        try:
            if kept:
                context.client_info = _read(OAuthClientInformationFull, kept.get("client"))
                context.oauth_metadata = _read(OAuthMetadata, kept.get("issuer"))
                context.protected_resource_metadata = _read(ProtectedResourceMetadata, kept.get("resource"))
                context.auth_server_url = kept.get("auth_server_url")
                context.token_expiry_time = kept.get("ends_at")
                context.current_tokens = _read(OAuthToken, kept.get("tokens"))
        except ValidationError as error:
            _log.warning(
                "the stored sign-in to %s is invalid: %s", self._config.name, error.errors(include_input=False)
            )
        if self._config.client_id:
            context.client_info = OAuthClientInformationFull(
                client_id=self._config.client_id,
                client_secret=self._config.client_secret or None,
                token_endpoint_auth_method=None if self._config.client_secret else "none",
                redirect_uris=context.client_metadata.redirect_uris,
            )
            self._choose_method()

    async def _keep(self) -> None:
        context = self.context
        kept = {
            "tokens": _written(context.current_tokens),
            "ends_at": context.token_expiry_time,
            "client": None if self._config.client_id else _written(context.client_info),
            "issuer": _written(context.oauth_metadata),
            "resource": _written(context.protected_resource_metadata),
            "auth_server_url": context.auth_server_url,
        }
        await self._file.write(self._expected_issuer(), kept)


Model = TypeVar("Model", bound=BaseModel)


def _read(model: type[Model], kept: object) -> Model | None:
    return None if kept is None else model.model_validate(kept)


def _written(model: BaseModel | None) -> dict[str, Any] | None:
    return model.model_dump(mode="json", exclude_none=True) if model else None


async def _next(
    steps: AsyncGenerator[httpx2.Request, httpx2.Response], answer: httpx2.Response | None
) -> httpx2.Request | None:
    """The next request of a flow; None at its end."""
    try:
        return await (anext(steps) if answer is None else steps.asend(answer))
    except StopAsyncIteration:
        return None


def _wants_more(response: httpx2.Response) -> bool:
    """Return whether the tokens are valid, but lack a scope."""
    refused = response.status_code == httpx2.codes.FORBIDDEN
    return refused and extract_field_from_www_auth(response, "error") == "insufficient_scope"

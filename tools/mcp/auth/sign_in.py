"""One sign-in at a token issuer's page, which a person completes while nothing waits."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from tools.base.tasks import retrieve

SIGN_IN_S = 900.0  # how long the page is valid


class SignIn:
    """One sign-in: the issuer's page, and the token request that its answer allows."""

    def __init__(self, target: tuple[str | None, ...]) -> None:
        self.target = target
        self.url = ""
        self.since = time.monotonic()
        self.answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self.exchange: asyncio.Task[httpx2.Request] | None = None
        self._shown = asyncio.Event()

    async def show(self, url: str) -> None:
        self.url = url
        self._shown.set()

    async def answered(self) -> AuthorizationCodeResult:
        return await self.answer

    async def open(self, exchange: asyncio.Task[httpx2.Request]) -> None:
        """Begin, up to the page to open. Raises what is wrong with the issuer."""
        self.exchange = exchange
        exchange.add_done_callback(retrieve)
        shown = asyncio.ensure_future(self._shown.wait())
        try:
            await asyncio.wait({shown, exchange}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            shown.cancel()
        if not self.url:
            await exchange

    def is_open(self) -> bool:
        return not self.answer.done() and time.monotonic() - self.since < SIGN_IN_S

    def state(self) -> str:
        return parse_qs(urlsplit(self.url).query).get("state", [""])[0]

    def close(self) -> None:
        self.answer.cancel()
        if self.exchange:
            self.exchange.cancel()


def is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def refuse_open(url: str) -> None:
    """Raise unless codes and tokens go over https, or stay on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise OAuthFlowError(
            f"Signing in at {parts.scheme}://{parts.netloc} would send the tokens unencrypted: https is needed."
        )

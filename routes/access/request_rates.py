"""Requests a minute of principals, clients and triggers: counted in memory, or over all servers of a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from app.storage.principals import Budget, Principal
from app.storage.tokens import Counted, SharedRateStore, TokenRow, TokenStore
from routes.access.rate_limits import WINDOW_S, RateLimiter
from routes.protocol.errors import TooSoon

REQUESTS = "request"  # by principal
WRONG = "wrong token"  # by client
WRONG_DELIVERIES = "unproven delivery"  # by client
DELIVERIES = "delivery"  # by trigger
SHARED = "shared page"  # by client
WRONG_LINKS = "wrong link"  # by client
WRONG_CODES = "wrong member code"  # by the token that sends them, and by the member
PROVIDER_SIGN_INS = "provider sign-in"  # by client
APPS = "request of an app"  # by call
KINDS = (REQUESTS, WRONG, WRONG_DELIVERIES, DELIVERIES, SHARED, WRONG_LINKS, WRONG_CODES, PROVIDER_SIGN_INS, APPS)
Limits = Callable[[Principal], Budget]


class Window(NamedTuple):
    """The number of requests in the current window, and the Unix time at which it ends."""

    requests: int
    reset: float


class Rates(Protocol):
    """Both methods raise StoreFailed."""

    async def token(self, sha256: str, now: float, *, always: bool) -> tuple[TokenRow | None, Window | None]:
        """Find a token. Where that takes no longer, a request of its principal is counted, and the window returned.

        `always`: principals have a limit whose tokens do not say so.
        """
        ...

    async def count(self, kind: str, key: str, now: float) -> Window:
        """Count one more."""
        ...


class MemoryRates:
    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._limiters = {kind: RateLimiter() for kind in KINDS}

    async def token(self, sha256: str, now: float, *, always: bool) -> tuple[TokenRow | None, Window | None]:
        return await self._store.token(sha256), None

    async def count(self, kind: str, key: str, now: float) -> Window:
        return Window(*self._limiters[kind].count(key, now))


class SharedRates:
    def __init__(self, store: SharedRateStore) -> None:
        self._store = store

    async def token(self, sha256: str, now: float, *, always: bool) -> tuple[TokenRow | None, Window | None]:
        row, counted = await self._store.counted_token(sha256, f"{REQUESTS}\n", always=always)
        return row, window(counted, now) if counted else None

    async def count(self, kind: str, key: str, now: float) -> Window:
        return window(await self._store.count_request(f"{kind}\n{key}"), now)


def window(counted: Counted, now: float) -> Window:
    # A count whose transaction began before the one that opened the window sees it end a few milliseconds later.
    return Window(counted.requests, now + min(counted.left_s, WINDOW_S))


def rates_of(store: TokenStore) -> Rates:
    """Return the rates of a server; shared, if its database has several."""
    return SharedRates(store) if isinstance(store, SharedRateStore) else MemoryRates(store)


async def check_rate(rates: Rates, limits: Limits, principal: Principal, window: Window | None = None) -> None:
    """Count a request of a principal, if it is not in the window yet. Raises TooSoon, StoreFailed."""
    most = limits(principal).requests_per_minute
    if most is None:
        return
    requests_made, reset = window or await rates.count(REQUESTS, principal.name, time.time())
    if requests_made > most:
        message = f"{principal.name} may send {most} requests per minute. Try again later."
        raise TooSoon("too_many_requests", message, reset)

"""Look up a principal's current rights: runs that start by themselves get those of their owner now."""

from __future__ import annotations

import time

from app.storage.principals import LOCAL_USER, Principal, in_use, principal_of
from app.storage.tokens import TokenStore
from app.transcript.run_request import NotFound


async def principal_named(store: TokenStore, name: str) -> Principal:
    """Return the principal with its current rights. Raises NotFound."""
    tokens = await store.tokens()
    if not tokens and name == LOCAL_USER.name:
        return LOCAL_USER
    for row in tokens:
        if row.name == name and in_use(row, time.time()):
            return principal_of(row)
    raise NotFound(f"{name} no longer has a valid token.")

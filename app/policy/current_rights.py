"""Who has a name today: what begins by itself has the rights that its owner has now."""

from __future__ import annotations

import time

from app.storage.principals import LOCAL_USER, Principal, in_use, principal_of
from app.storage.tokens import TokenStore
from app.transcript.run_request import NotFound


async def principal_named(store: TokenStore, name: str) -> Principal:
    """Someone with the rights of today, whoever asks. Raises NotFound."""
    tokens = await store.tokens()
    if not tokens and name == LOCAL_USER.name:
        return LOCAL_USER
    for row in tokens:
        if row.name == name and in_use(row, time.time()):
            return principal_of(row)
    raise NotFound(f"{name} has no token any more.")

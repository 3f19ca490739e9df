"""Checkpoints go with their sessions: those that were deleted, by a person or for their age, are looked for."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.looks import NO_SESSION
from app.storage.changes import StoreFailed

EVERY_S = 300.0
PERSON_KEPT_S = 7 * 86_400.0  # the changes of people, which belong to no session
logger = logging.getLogger(__name__)

OwnerOf = Callable[[str], Awaitable[str | None]]
"""Return the owner of a session, None if there is no such session. Raises StoreFailed."""


async def tidy_forever(checkpoints: Checkpoints, owner_of: OwnerOf) -> None:
    """Tidy every few minutes; a store that fails is tried again."""
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            await tidy(checkpoints, owner_of)
        except StoreFailed as failure:
            logger.warning("checkpoints not tidied, retrying later: %s", failure)


async def tidy(checkpoints: Checkpoints, owner_of: OwnerOf) -> None:
    """Forget the checkpoints of sessions that are gone, and old changes of people. Raises StoreFailed."""
    known = await checkpoints.sessions()
    gone = {session for session in known - {NO_SESSION} if await owner_of(session) is None}
    if gone:
        await checkpoints.forget(gone)
    if NO_SESSION in known:
        await checkpoints.forget({NO_SESSION}, before=time.time() - PERSON_KEPT_S)

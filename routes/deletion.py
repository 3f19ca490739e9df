"""The deletion of a conversation, with all that it has begun; temporary ones are deleted when they are over."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path

from app.checkpoints.scratch import remove_folder
from app.config.folders import FolderUnsafe
from app.core.profile_spec import GONE_WITH_IT
from app.policy.current_rights import principal_named
from app.profiles.library import defaults_of
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from app.storage.sessions import SessionRow
from app.transcript.run_request import NotFound
from routes.services import Services
from tools.base.rights import Role

EVERY_S = 60.0
logger = logging.getLogger(__name__)


async def delete_conversation(services: Services, principal: Principal, session: str) -> None:
    """Stop what runs in it, its helpers and background jobs included, and delete what is kept of it.

    Raises NotFound, StoreFailed.
    """
    folder = await _own_folder(services, principal, await services.runs.session(session, principal))
    await services.automation.scheduler.remove_with(session, principal.name)
    await services.runs.delete_session(session, principal)
    await services.jobs.forget(principal.name, session)  # last: until it is stopped, a run may start another
    helpers = await _helpers_below(services, session)  # only now: no run begins others any more
    for one in helpers:
        await services.runs.delete_session(one, principal)
        await services.jobs.forget(principal.name, one)
    if services.checkpoints:
        await services.checkpoints.forget({session, *helpers})
    await services.factory.scratch.forget(session)
    if folder:
        with suppress(OSError):
            await asyncio.to_thread(remove_folder, folder)
        if services.checkpoints:
            await services.checkpoints.forget_scratch(session, str(folder))


async def end_temporary_forever(services: Services) -> None:
    """Delete temporary conversations that are over, now and once a minute; a store that fails is tried again."""
    while True:
        try:
            await end_temporary(services, time.time() - services.settings.temporary_idle_s)
        except StoreFailed as failure:
            logger.warning("temporary conversations not deleted, retrying later: %s", failure)
        await asyncio.sleep(EVERY_S)


async def end_temporary(services: Services, before: float) -> None:
    """Delete the temporary conversations that were used last before then, and that no client follows here."""
    for row in await services.store.temporary_sessions(before):
        last = await services.store.session(row.id)  # the deletions before this one take their time
        if last is None or last.updated >= before:
            continue
        if services.runs.notifier.has(row.id) or await services.runs.under_way(row.id):
            continue
        try:
            with suppress(NotFound):
                await delete_conversation(services, await _owner(services, row), row.id)
        except StoreFailed as failure:  # such as a folder that cannot be used; the others go on
            logger.warning("temporary conversation %s not deleted, retrying later: %s", row.id, failure)


async def _owner(services: Services, row: SessionRow) -> Principal:
    try:
        return await principal_named(services.store, row.principal)
    except NotFound:  # its token is gone
        return Principal(row.principal, Role.USER)


async def _own_folder(services: Services, principal: Principal, row: SessionRow) -> Path | None:
    """Return the workspace folder that goes with a temporary conversation."""
    modes = defaults_of(row.options) if row.temporary else None
    if modes is None or not (modes.workspace or "").startswith(GONE_WITH_IT):
        return None
    with suppress(FolderUnsafe):
        return await services.factory.workspace_of(principal, row.id)
    return None


async def _helpers_below(services: Services, session: str) -> list[str]:
    """Return the sessions of all helpers below a session, those of helpers included."""
    found = [row.session for row in await services.store.helpers(session)]
    return [*found, *[deeper for one in found for deeper in await _helpers_below(services, one)]]

"""The deletion of a conversation, with all that it has begun."""

from __future__ import annotations

from app.storage.principals import Principal
from routes.services import Services


async def delete_conversation(services: Services, principal: Principal, session: str) -> None:
    """Stop what runs in it, its helpers and background jobs included, and delete what is kept of it.

    Raises NotFound, StoreFailed.
    """
    await services.runs.session(session, principal)
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


async def _helpers_below(services: Services, session: str) -> list[str]:
    """Return the sessions of all helpers below a session, those of helpers included."""
    found = [row.session for row in await services.store.helpers(session)]
    return [*found, *[deeper for one in found for deeper in await _helpers_below(services, one)]]

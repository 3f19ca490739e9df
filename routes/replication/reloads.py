"""Reloads of what a server holds in memory, after changes of the others.

    change                                  held by                  read anew
    state paused                            KillSwitch               before the write ends, at every server
    settings, decisions on project files    RuntimeSettings, Project soon, and under the lock that changes them
    endpoints, sealed keys                  EndpointRegistry         soon
    MCP servers, trust, pins                McpServers               soon
    secrets                                 Secrets                  soon, and before a call that goes with one
    notification targets, deliveries        Targets                  soon; the server on duty then delivers
    schedules                               Scheduler                soon, and under the lock that begins their runs
    labels of files                         FileLabels               before the write ends, at every server
    options of sessions                     Profiles                 before the write ends, at every server
    tokens                                  Presence                 before the write ends, at every server
    documents                               the page's feed          soon; models read the store
    memories and their vectors              Memories                 soon, those of one owner
    jobs of digests and of memories         whose duty they are      soon

Profiles, sessions, runs, approvals, grants, triggers, memories and files are read from the store whenever they are
wanted. Jobs, checkpoints, served models and the local admin belong to one machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from app.config.runtime_changes import STATE as SETTINGS
from app.context.project_files import STATE as PROJECT
from app.mcp.servers import McpServers
from app.mcp.sign_ins import KIND as OAUTH
from app.replicas import changes
from app.replicas.peers import Answerer, Body, Refusal
from app.replicas.sharing import Reload
from app.runs.run_factory import RunFactory
from app.storage.changes import StoreFailed
from app.storage.kill_switch import NAME as PAUSED
from routes.replication.one_server import Held
from tools.base.pause_check import Paused
from tools.mcp.model import SignInFailed

END_ALL, SIGNED_IN = "end all", "signed in"  # questions


def reloads_of(held: Held) -> dict[str, Reload]:
    factory, notifications = held.factory, held.notifications
    labels, memories, documents = factory.labels, factory.memories, factory.runs.documents

    async def of_documents(sessions: changes.Parts) -> None:
        documents.changed_elsewhere(sessions or list(documents.changes))

    async def of_vectors(owners: changes.Parts) -> None:
        for owner in owners:
            memories.forget_vectors(owner)
        if owners == changes.ALL:
            memories.forget_all_vectors()

    async def of_sealed(kinds: changes.Parts) -> None:
        if kinds == changes.ALL or OAUTH in kinds:
            await factory.mcp.follow_sign_ins()

    async def of_targets(_: changes.Parts) -> None:
        await notifications.targets.load()
        notifications.courier.wake_all()

    reloads: dict[str, Reload] = {
        f"{changes.STATE}{PAUSED}": _whole(factory.switch.reload),
        f"{changes.STATE}{SETTINGS}": _whole(held.settings.reload),
        f"{changes.STATE}{PROJECT}": _whole(factory.project.reload),
        changes.ENDPOINTS: _whole(held.registry.reload),
        changes.SECRETS: _whole(factory.secrets.reload),
        changes.MCP: _whole(factory.mcp.reload),
        changes.SEALED: of_sealed,
        changes.OPTIONS: _whole(factory.profiles.load),
        changes.DOCUMENTS: of_documents,
        changes.VECTORS: of_vectors,
        changes.MEMORY_JOBS: _whole(memories.jobs.set),
        changes.TARGETS: of_targets,
        changes.DELIVERIES: of_targets,
        changes.SCHEDULES: _whole(held.automation.scheduler.load),
        changes.TOKENS: _whole(held.presence.look),
    }
    if labels:
        reloads[changes.LABELS] = _whole(partial(labels.book.reload, factory.store))
    if held.digests:
        reloads[changes.DIGESTS] = _whole(held.digests.wake)
    return reloads


def answerers_of(factory: RunFactory) -> dict[str, Answerer]:
    """By question, what this server answers the others."""
    return {SIGNED_IN: partial(_signed_in, factory.mcp), END_ALL: partial(_end_all, factory)}


async def _signed_in(mcp: McpServers, body: Body) -> str:
    """The name of the MCP server, if its sign-in waits here. Raises Refusal."""
    try:
        return await mcp.signed_in(body["state"], body["code"], body["issuer"])
    except (SignInFailed, Paused) as failure:
        raise Refusal("sign_in_failed", str(failure)) from failure


async def _end_all(factory: RunFactory, _: Body) -> None:
    """End what runs at this server. Raises StoreFailed."""
    ends = (factory.runs.cancel_all("paused"), factory.jobs.cancel_all(), factory.mcp.manager.stop_all())
    for result in await asyncio.gather(*ends, return_exceptions=True):
        if isinstance(result, BaseException):
            raise StoreFailed(f"Not all that ran was ended: {result}") from result


def _whole(work: Callable[[], Any]) -> Reload:
    """The reload of what is read anew as a whole."""

    async def reload(_: changes.Parts) -> None:
        if (reading := work()) is not None:
            await reading

    return reload

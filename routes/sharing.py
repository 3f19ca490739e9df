"""The joints of a server with others: what it holds in memory follows their changes. Nothing of it for one alone.

    change                                  held by                  read anew
    state paused                            KillSwitch               before the write ends, at every server
    settings, decisions on project files    RuntimeSettings, Project soon, and under the lock that changes them
    endpoints, sealed keys                  EndpointRegistry         soon
    MCP servers, trust, pins                McpServers               soon
    notification targets, deliveries        Targets                  soon; the server on duty then delivers
    schedules                               Scheduler                soon, and under the lock that begins their runs
    labels of files                         LabelBook                before the write ends, at every server
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
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, cast

from app.config.runtime_changes import STATE as SETTINGS
from app.config.runtime_changes import RuntimeSettings
from app.config.settings import Settings
from app.context.project_files import STATE as PROJECT
from app.mcp.servers import McpServers
from app.mcp.sign_ins import KIND as OAUTH
from app.models.endpoints.registry import EndpointRegistry
from app.notifications.service import Notifications
from app.replicas.changes import (
    ALL,
    DELIVERIES,
    DIGESTS,
    DOCUMENTS,
    ENDPOINTS,
    LABELS,
    MCP,
    MEMORY_JOBS,
    OPTIONS,
    SCHEDULES,
    SEALED,
    STATE,
    TARGETS,
    TOKENS,
    VECTORS,
    Parts,
)
from app.replicas.peers import Alone, Body, Peers, Refusal, Replicas
from app.replicas.sharing import Messages, Reload, SharedLock, Sharing, opened_sharing
from app.replicas.vault import SealedStore, Vault, opened_vault
from app.runs.connections import Presence
from app.runs.digests.jobs import Digests
from app.runs.run_factory import RunFactory
from app.schedules.service import Automation
from app.storage.changes import Change, StoreFailed
from app.storage.kill_switch import NAME as PAUSED
from app.storage.store import Store
from tools.base.pause_check import Paused
from tools.mcp.model import SignInFailed

END_ALL, SIGNED_IN = "end all", "signed in"  # questions


class Neighbours(Replicas, Protocol):
    """The other servers, as `app.replicas.postgres.peers` knows them."""

    messages: Messages


class Announcing(Protocol):
    """A store that calls back."""

    on_written: Callable[[Sequence[Change]], Awaitable[None]] | None


@asynccontextmanager
async def opened_sharing_of(
    factory: RunFactory,
    *,
    registry: EndpointRegistry,
    notifications: Notifications,
    automation: Automation,
    settings: RuntimeSettings,
    presence: Presence,
    digests: Digests | None,
    vault: Vault | None,
) -> AsyncGenerator[Sharing | None, None]:
    """Follow the other servers of the database; None where there are none. Raises StoreFailed."""
    runs = factory.runs
    if isinstance(runs.peers, Alone):
        yield None
        return
    neighbours, store = cast("Neighbours", runs.peers), cast("Announcing", factory.store)
    lock_all(runs.peers, factory, notifications, automation, settings)
    async with opened_sharing(neighbours, neighbours.messages, runs.notifier, runs.documents.journal.flush) as sharing:
        sharing.reloads |= of_runs(factory, settings, registry) | of_others(notifications, automation, presence)
        sharing.reloads[DIGESTS] = _whole(digests.wake if digests else _nothing)
        runs.documents.announce = lambda session: sharing.announce({DOCUMENTS: frozenset({session})})
        if vault:
            vault.on_put = lambda kind: sharing.announce({SEALED: frozenset({kind})})
        neighbours.answerers[SIGNED_IN] = partial(_signed_in, factory.mcp)
        neighbours.answerers[END_ALL] = partial(_end_all, factory)
        store.on_written = sharing.written
        try:
            for reload in sharing.reloads.values():  # what has changed since it was read first
                await reload(ALL)
            yield sharing
        finally:
            store.on_written = None


async def vault_of(settings: Settings, store: Store) -> Vault | None:
    """The secrets that servers share; None for a server alone. Raises StoreFailed."""
    if settings.postgres_url is None:
        return None
    key = settings.secret_key.get_secret_value() if settings.secret_key else None
    return await opened_vault(cast("SealedStore", store), key)


def lock_all(
    peers: Peers, factory: RunFactory, notifications: Notifications, automation: Automation, settings: RuntimeSettings
) -> None:
    """Let what one server changes be changed at no other one meanwhile, and be made of what the store has."""
    targets, scheduler = notifications.targets, automation.scheduler
    targets.changing = SharedLock(peers, "held", "targets", targets.load)
    scheduler.lock = SharedLock(peers, "schedules", "", scheduler.read)
    scheduler.changing = SharedLock(peers, "held", "schedules", scheduler.read)
    automation.triggers.changing = SharedLock(peers, "held", "triggers")
    settings.changing = SharedLock(peers, "held", SETTINGS, settings.reload)
    factory.project.changing = SharedLock(peers, "held", PROJECT, factory.project.reload)
    factory.profiles.session_change = SharedLock(peers, "held", "options")
    factory.mcp.changing = SharedLock(peers, "held", "mcp")


def of_runs(factory: RunFactory, settings: RuntimeSettings, registry: EndpointRegistry) -> dict[str, Reload]:
    """The reloads of what runs are made of."""
    labels, memories, documents = factory.labels, factory.memories, factory.runs.documents

    async def of_documents(sessions: Parts) -> None:
        documents.changed_elsewhere(sessions or list(documents.changes))

    async def of_vectors(owners: Parts) -> None:
        for owner in owners:
            memories.forget_vectors(owner)
        if owners == ALL:
            memories.forget_all_vectors()

    async def of_sealed(kinds: Parts) -> None:
        if kinds == ALL or OAUTH in kinds:
            await factory.mcp.follow_sign_ins()

    async def of_labels(_: Parts) -> None:
        if labels:
            await labels.book.reload(factory.store)

    return {
        f"{STATE}{PAUSED}": _whole(factory.switch.reload),
        f"{STATE}{SETTINGS}": _whole(settings.reload),
        f"{STATE}{PROJECT}": _whole(factory.project.reload),
        ENDPOINTS: _whole(registry.reload),
        MCP: _whole(factory.mcp.reload),
        SEALED: of_sealed,
        OPTIONS: _whole(factory.profiles.load),
        LABELS: of_labels,
        DOCUMENTS: of_documents,
        VECTORS: of_vectors,
        MEMORY_JOBS: _whole(memories.jobs.set),
    }


def of_others(notifications: Notifications, automation: Automation, presence: Presence) -> dict[str, Reload]:
    """The reloads of what is beside runs."""

    async def of_targets(_: Parts) -> None:
        await notifications.targets.load()
        notifications.courier.wake_all()

    return {
        TARGETS: of_targets,
        DELIVERIES: of_targets,
        SCHEDULES: _whole(automation.scheduler.load),
        TOKENS: _whole(presence.look),
    }


async def _signed_in(mcp: McpServers, body: Body) -> str:
    """The name of the MCP server, if its sign-in waits here. Raises Refusal."""
    try:
        return await mcp.signed_in(body["state"], body["code"], body["issuer"])
    except (SignInFailed, Paused) as failure:
        raise Refusal("sign_in_failed", str(failure)) from failure


async def _end_all(factory: RunFactory, _: Body) -> None:
    """End what runs at this server. Raises StoreFailed."""
    ends = (factory.runs.cancel_all("paused"), factory.jobs.cancel_all(), factory.mcp.stop_all())
    for result in await asyncio.gather(*ends, return_exceptions=True):
        if isinstance(result, BaseException):
            raise StoreFailed(f"Not all that ran was ended: {result}") from result


def _whole(work: Callable[[], Any]) -> Reload:
    """The reload of what is read anew as a whole."""

    async def reload(_: Parts) -> None:
        if (reading := work()) is not None:
            await reading

    return reload


def _nothing() -> None:
    """Nothing has to be done."""

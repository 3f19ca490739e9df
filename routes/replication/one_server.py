"""A server that has its database for itself, and the protocol behind which others have several.

For one server nothing else of this room is needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from app.budget.budgets import Ledger
from app.config.runtime_changes import RuntimeSettings
from app.log.event_writer import EventWriter
from app.metrics.recorder import Metrics
from app.models.endpoints.registry import EndpointRegistry
from app.notifications.service import Notifications
from app.policy.approvals import Approvals
from app.redaction.redactor import Redactor
from app.replicas.peers import Alone, Peers, Replicas
from app.replicas.secret_store import SecretStore
from app.runs.connections import Presence
from app.runs.digests.jobs import Digests
from app.runs.run_factory import RunFactory
from app.runs.run_manager import MakeOutbox, RunManager
from app.schedules.service import Automation
from app.storage.kill_switch import KillSwitch
from app.storage.store import Store
from tools.jobs.manager import Jobs


class RunParts(Struct, frozen=True, kw_only=True):
    """The parts of a run manager. `make_ledger` takes where budgets and places are kept, if not in this server."""

    store: Store
    journal: EventWriter
    switch: KillSwitch
    approvals: Approvals
    outboxes: Sequence[MakeOutbox]
    make_ledger: Callable[..., Ledger]
    metrics: Metrics


class Held(Struct, frozen=True, kw_only=True):
    """All that a server holds in memory of its database."""

    factory: RunFactory
    registry: EndpointRegistry
    notifications: Notifications
    automation: Automation
    settings: RuntimeSettings
    presence: Presence
    digests: Digests | None


class Replication(Protocol):
    """The other servers of the database."""

    @property
    def peers(self) -> Peers: ...

    @property
    def replicas(self) -> Replicas | None:
        """Their part that can be asked; None if there is no other server."""

    async def opened_vault(self) -> SecretStore | None:
        """The secrets that servers share. Raises StoreFailed."""

    def opened_runs(self, parts: RunParts) -> AbstractAsyncContextManager[RunManager]:
        """Raises StoreFailed."""

    def jobs(self, folder: Path, redactor: Redactor, **options: Any) -> Jobs: ...

    def following(self, held: Held) -> AbstractAsyncContextManager[None]:
        """Let what is held follow the other servers. Raises StoreFailed."""

    async def end_all_elsewhere(self) -> None:
        """End what runs at the others. Raises StoreFailed."""

    async def signed_in_elsewhere(self, state: str, code: str, issuer: str | None) -> str | None:
        """The name of the MCP server whose sign-in waited at another server. Raises StoreFailed."""


class OneServer:
    """A server that has its database for itself."""

    replicas = None

    def __init__(self) -> None:
        self.peers = Alone()

    async def opened_vault(self) -> None:
        """It keeps its secrets in files."""

    @asynccontextmanager
    async def opened_runs(self, parts: RunParts) -> AsyncGenerator[RunManager, None]:
        yield RunManager(
            parts.store,
            parts.journal,
            parts.switch,
            parts.approvals,
            parts.make_ledger(),
            peers=self.peers,
            outboxes=parts.outboxes,
        )

    def jobs(self, folder: Path, redactor: Redactor, **options: Any) -> Jobs:
        return Jobs(folder, **options)

    @asynccontextmanager
    async def following(self, held: Held) -> AsyncGenerator[None, None]:
        yield

    async def end_all_elsewhere(self) -> None:
        """There is no other server."""

    async def signed_in_elsewhere(self, state: str, code: str, issuer: str | None) -> None:
        """There is no other server."""

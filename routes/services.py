"""Everything a server is made of, opened in order and closed in reverse."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from msgspec import Struct, field
from starlette.requests import Request

from app.checkpoints.checkpoints import Checkpoints, kept_by
from app.config.runtime_changes import RuntimeSettings
from app.config.settings import Settings
from app.mcp.servers import McpServers
from app.metrics.recorder import Metrics
from app.models.endpoints.downloads import Downloads
from app.models.endpoints.model_registry import Models
from app.models.endpoints.registry import EndpointRegistry
from app.models.endpoints.startup import ChooseProvider
from app.notifications.service import Notifications
from app.redaction.redactor import Redactor
from app.runs.composition.unattended import UnattendedRuns
from app.runs.connections import Presence
from app.runs.digests.jobs import opened_digests
from app.runs.run_factory import RunFactory
from app.runs.run_manager import RunManager
from app.schedules.service import Automation, opened_automation
from app.secrets.sources import SecretSources
from app.storage.kill_switch import KillSwitch
from app.storage.principals import Principal
from app.storage.store import Store
from routes.access.local_admin import LocalAdmin, opened_local_admin
from routes.access.members import Speakers
from routes.access.oidc import Provider, opened_provider
from routes.access.request_rates import Rates, rates_of
from routes.management.tools import OwnRoutes
from routes.protocol.application import LazyApplication
from routes.replication.one_server import Held, Replication
from routes.startup.models import opened_models
from routes.startup.run_factory import opened_run_factory
from routes.startup.run_manager import opened_run_manager
from routes.startup.storage import OpenStore, opened_storage
from tools.base.patterns import lazy_pattern
from tools.jobs.manager import Jobs

MCP_SERVER = "routes.mcp_server.application"
TRACEPARENT = lazy_pattern(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Services(Struct, kw_only=True):
    """One server's collaborators. `about_model` is a sentence: which model answers, and why that one."""

    settings: Settings
    store: Store
    runs: RunManager
    switch: KillSwitch
    models: Models
    jobs: Jobs
    redactor: Redactor
    mcp: McpServers
    about_model: str
    presence: Presence
    endpoints: EndpointRegistry
    downloads: Downloads
    factory: RunFactory
    runtime_settings: RuntimeSettings
    notifications: Notifications
    automation: Automation
    metrics: Metrics
    rates: Rates
    replication: Replication
    speakers: Speakers
    own_routes: OwnRoutes
    mcp_server: LazyApplication
    local: LocalAdmin = field(default_factory=LocalAdmin)
    examined: set[str] = field(default_factory=set)  # endpoints whose models are being examined
    provider: Provider | None = None
    draining: bool = False  # from the first signal to stop

    @property
    def checkpoints(self) -> Checkpoints | None:
        return kept_by(self.factory.looks)


@asynccontextmanager
async def open_services(
    settings: Settings, choose: ChooseProvider | None = None, open_store: OpenStore | None = None
) -> AsyncGenerator[Services, None]:
    """Raises StoreFailed when the data directory cannot be used, SettingsError when a key or the tokenizer cannot."""
    async with (
        opened_storage(settings, open_store) as storage,
        opened_run_manager(settings, storage) as manager,
        opened_models(settings, storage, manager.runs, choose) as models,
        opened_run_factory(settings, storage, manager, models) as running,
        opened_automation(UnattendedRuns(running.factory), manager.notifications.keys) as automation,
        aclosing(Downloads(settings, storage.store, models.registry)) as downloads,
        aclosing(LazyApplication(MCP_SERVER)) as mcp_server,
        opened_digests(running.factory, storage.journal) as digests,
        storage.replication.following(
            Held(
                factory=running.factory,
                registry=models.registry,
                notifications=manager.notifications,
                automation=automation,
                settings=running.runtime_settings,
                presence=running.presence,
                digests=digests,
            )
        ),
    ):
        factory, rates = running.factory, rates_of(storage.store)
        yield Services(
            settings=settings,
            store=storage.store,
            runs=manager.runs,
            switch=storage.switch,
            models=models.models,
            jobs=factory.jobs,
            redactor=storage.redactor,
            mcp=manager.mcp,
            about_model=models.about,
            presence=running.presence,
            endpoints=models.registry,
            downloads=downloads,
            factory=factory,
            runtime_settings=running.runtime_settings,
            notifications=manager.notifications,
            automation=automation,
            metrics=storage.metrics,
            rates=rates,
            speakers=Speakers(storage.store, rates, manager.runs.ledger.limits, settings.max_members),
            replication=storage.replication,
            own_routes=running.own_routes,
            mcp_server=mcp_server,
            local=opened_local_admin(settings.data_dir),
            provider=opened_provider(settings, storage.redactor, SecretSources.of(settings, os.environ)),
        )


def services_of(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


def traceparent_of(request: Request, services: Services) -> str:
    """The traceparent of a request (W3C Trace Context), where runs are traced; empty without one."""
    if services.runs.ledger.observers.tracer is None:
        return ""
    given = request.headers.get("traceparent", "").strip().lower()
    return given if TRACEPARENT.fullmatch(given) else ""


def current_principal(request: Request) -> Principal:
    """The principal of a request, as `Access` has set it."""
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal

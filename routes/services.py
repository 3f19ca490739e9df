"""Everything a server is made of, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from starlette.requests import Request

from app.checkpoints.checkpoints import Checkpoints, kept_by
from app.checkpoints.looks import Looks
from app.checkpoints.retention import tidy_forever
from app.checkpoints.undo import recover as recover_checkpoints
from app.config.folders import PEOPLE, lock_data_dir, make_folder
from app.config.runtime_changes import RuntimeSettings
from app.config.search_backend import search_tools
from app.config.settings import Settings
from app.context.project_files import ProjectFiles
from app.hooks.hooks import Hooks, opened_hooks
from app.hooks.run_hooks import ModelHooks
from app.labels.book import LabelBook
from app.labels.run_labels import LabelServices
from app.log.event_writer import EventWriter
from app.mcp.servers import McpServers
from app.mcp.servers import opened as opened_mcp
from app.memory.memories import Memories
from app.memory.startup import memory_tools, opened_memory
from app.metrics.recorder import Metrics
from app.models.endpoints.model_registry import Models
from app.models.endpoints.registry import EndpointRegistry
from app.models.endpoints.startup import ChooseProvider, open_models
from app.notifications.service import Notifications, opened_notifications
from app.policy.approvals import Approvals
from app.policy.current_rights import principal_named
from app.policy.rules.compiling import compiled_rules
from app.profiles.library import Profiles, open_profiles
from app.redaction.logs import redacted_logs
from app.redaction.redactor import Redactor, secrets_in
from app.replicas.peers import Peers
from app.replicas.sharing import Sharing
from app.runs.composition.server_metrics import opened_metrics
from app.runs.composition.unattended import UnattendedRuns
from app.runs.connections import Presence
from app.runs.digests.jobs import opened_digests
from app.runs.follow_up import FollowUps, kept_for_next_run
from app.runs.housekeeping import Housekeeping
from app.runs.job_time import JobTime
from app.runs.recovery.startup import recovered
from app.runs.run_factory import RunFactory
from app.runs.run_manager import RunManager
from app.runs.shared.opening import opened_runs
from app.runs.shared.shared_jobs import SharedJobs
from app.runs.shared.shared_runs import SharedRuns
from app.schedules.service import Automation, opened_automation
from app.storage.changes import Change
from app.storage.database import CHECKPOINTS, DATABASE, open_checkpoints
from app.storage.database import open_store as open_database
from app.storage.files.reading import Files
from app.storage.kill_switch import KillSwitch
from app.storage.principals import Principal
from app.storage.store import Store
from app.telemetry.opening import opened_telemetry
from app.workspace.scanner import ScanLimits
from routes.access.local_admin import LocalAdmin, opened_local_admin
from routes.access.request_rates import Rates, rates_of
from routes.sharing import opened_sharing_of, vault_of
from tools.base.patterns import lazy_pattern
from tools.catalogue import HELPER_TOOLS, SESSION_TOOLS, TOOLS
from tools.jobs.manager import Jobs
from tools.jobs.records import Job
from tools.sandbox.command import GitAuthor
from tools.sandbox.sandbox import NoSandbox, Sandbox, find_sandbox
from tools.tool import Tool

JOBS = "jobs"
TRACEPARENT = lazy_pattern(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_log = logging.getLogger(__name__)


class Services(Struct):
    """One server's collaborators. `about_model` is a sentence: which model answers, and why that one."""

    settings: Settings
    store: Store
    runs: RunManager
    switch: KillSwitch
    models: Models
    sandbox: Sandbox | NoSandbox
    jobs: Jobs
    redactor: Redactor
    mcp: McpServers
    files: Files
    about_model: str
    presence: Presence
    endpoints: EndpointRegistry
    factory: RunFactory
    runtime_settings: RuntimeSettings
    notifications: Notifications
    automation: Automation
    metrics: Metrics
    rates: Rates
    sharing: Sharing | None  # with other servers of the database
    local: LocalAdmin = field(default_factory=LocalAdmin)
    draining: bool = False  # from the first signal to stop

    @property
    def profiles(self) -> Profiles:
        return self.factory.profiles

    @property
    def hooks(self) -> Hooks | None:
        return self.factory.hooks

    @property
    def checkpoints(self) -> Checkpoints | None:
        return kept_by(self.factory.looks)

    @property
    def memories(self) -> Memories:
        assert self.factory.memories
        return self.factory.memories

    @property
    def unattended(self) -> UnattendedRuns:
        return UnattendedRuns(self.factory)


OpenStore = Callable[[Path], Awaitable[Store]]


@asynccontextmanager
async def open_services(
    settings: Settings, choose: ChooseProvider | None = None, open_store: OpenStore | None = None
) -> AsyncGenerator[Services, None]:
    """Raises StoreFailed when the data directory cannot be used, SettingsError when a key or the tokenizer cannot."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        redactor = Redactor(secrets_of(settings))
        stack.enter_context(redacted_logs(redactor))
        stack.enter_context(lock_data_dir(settings.data_dir))
        store = await (open_store or partial(open_database, url=settings.postgres_url))(settings.data_dir / DATABASE)
        stack.push_async_callback(store.close)
        switch, vault = await loaded_switch(store), await vault_of(settings, store)
        journal = await enter(EventWriter(store, redactor, documents=settings.documents, spacing_s=store.spacing_s))
        traced = await enter(opened_telemetry(settings, redactor, os.environ))
        mcp = await enter(
            opened_mcp(
                settings, store, redactor, os.environ, check_paused=switch.check, observe=traced.operations, vault=vault
            )
        )
        approvals = Approvals(store, settings.approval_time_limit_s, settings.grant_time_limit_s or None)
        runs = await enter(opened_runs(settings, store, journal, switch, approvals))
        notifications = await enter(opened_notifications(settings, store, journal, runs, vault))
        hooks = await enter(opened_hooks(settings.hooks, redactor, os.environ))
        runs.ledger.model_checks = ModelHooks(hooks) if hooks else None
        runs.ledger.observers, switch.on_change = traced.observers, [runs.notifier.wake_all, mcp.go_on]
        await enter(keeping_house(settings, store, runs.peers))
        opened = await enter(open_models(settings, store, redactor, os.environ, choose, switch=switch, vault=vault))
        runs.peers.on_count(opened.registry.share)
        looks, built_in = await enter(opened_looks(settings, store, redactor)), built_in_tools(settings, mcp)
        memories = await enter(
            opened_memory(
                settings,
                store,
                models=opened.models,
                ledger=runs.ledger,
                journal=journal,
                switch=switch,
                peers=runs.peers,
            )
        )
        stack.push_async_callback(runs.close)
        sandbox = sandbox_of(settings, people=bool(await store.tokens()))
        jobs = jobs_of(settings, switch, runs, redactor)
        stack.push_async_callback(jobs.close)
        presence = Presence(store, runs, jobs, settings.max_streams)
        stack.push_async_callback(presence.close)
        collaborators = (settings, store, runs, switch, opened.models, sandbox, jobs, redactor, mcp, Files(store))
        project, labels = await loaded_project_files(store), await opened_labels(settings, store, jobs)
        profiles = await open_profiles(settings.profiles, store)
        factory = RunFactory(*collaborators, profiles, built_in, project=project, looks=looks, hooks=hooks)
        factory.memories, factory.labels, factory.rules = memories, labels, compiled_rules(settings.rules)
        metrics = stack.enter_context(opened_metrics(journal, factory, opened.registry))
        runtime_settings = await opened_runtime_settings(settings, store, factory)
        unattended = UnattendedRuns(factory)
        await enter(recovered(store, journal, runs, unattended.restored_agent))
        await follow_jobs(unattended, journal.put, notifications.outbox.job_ended)
        stack.push_async_callback(ended, asyncio.create_task(presence.watch_forever(), name="presence"))
        automation = await enter(opened_automation(unattended, notifications.keys))
        digests = await enter(opened_digests(factory, journal))
        sharing = await enter(
            opened_sharing_of(
                factory,
                registry=opened.registry,
                notifications=notifications,
                automation=automation,
                settings=runtime_settings,
                presence=presence,
                digests=digests,
                vault=vault,
            )
        )
        yield Services(
            *(*collaborators, opened.about, presence, opened.registry, factory, runtime_settings, notifications),
            *(automation, metrics, rates_of(store), sharing, opened_local_admin(settings.data_dir)),
        )


@asynccontextmanager
async def keeping_house(settings: Settings, store: Store, peers: Peers) -> AsyncGenerator[None, None]:
    housekeeping = Housekeeping(store, settings.log_join_after_s, settings.keep_days, settings.audit_days)
    work = asyncio.create_task(peers.on_duty("housekeeping", housekeeping.run_forever), name="housekeeping")
    try:
        yield
    finally:
        await ended(work)


async def loaded_switch(store: Store) -> KillSwitch:
    switch = KillSwitch(store)
    await switch.load()
    return switch


async def loaded_project_files(store: Store) -> ProjectFiles:
    project = ProjectFiles(store)
    await project.load()
    return project


async def opened_runtime_settings(settings: Settings, store: Store, factory: RunFactory) -> RuntimeSettings:
    """The stored changes of settings, which the runs of the factory follow."""
    runtime_settings = RuntimeSettings(settings, store, partial(setattr, factory, "settings"))
    for problem in await runtime_settings.load():
        _log.warning(problem)
    return runtime_settings


async def opened_labels(settings: Settings, store: Store, jobs: Jobs) -> LabelServices | None:
    """The labels of files, as the settings and the store have them; None where no label is configured."""
    policy = settings.label_policy
    if not policy.is_used:
        return None
    book = LabelBook(policy, settings.workspace)
    await book.load(store)
    return LabelServices(book, store, jobs)


@asynccontextmanager
async def opened_looks(settings: Settings, store: Store, redactor: Redactor) -> AsyncGenerator[Looks, None]:
    """The looks at workspaces; if checkpoints are on these, those of a killed server recovered."""
    most = settings.checkpoint_mb << 20
    limits = ScanLimits(
        settings.checkpoint_files, most // 2, settings.checkpoint_file_mb << 20, settings.checkpoint_time_limit_s
    )
    if not settings.checkpoints:
        yield Looks(limits, settings.workspace, [PEOPLE], redactor.is_secret_in)
        return
    kept = open_checkpoints(settings.data_dir / CHECKPOINTS)
    checkpoints = Checkpoints(
        kept, limits, settings.workspace, passed_by=[PEOPLE], store_bytes=most, is_secret=redactor.is_secret_in
    )
    await recover_checkpoints(checkpoints)
    tidying = asyncio.create_task(tidy_forever(checkpoints, store.owner_of), name="checkpoints")
    try:
        yield checkpoints
    finally:
        await ended(tidying)
        kept.close()


async def follow_jobs(unattended: UnattendedRuns, put: Callable[[Change], None], report: Callable[[Job], None]) -> None:
    """Open the jobs: their time counts, and their ends are reported to their sessions."""
    factory = unattended.factory
    jobs, runs, store = factory.jobs, factory.runs, factory.store
    keep = partial(kept_for_next_run, store)
    follow_ups = FollowUps(jobs, runs, unattended.start_follow_up, keep, factory.switch.unpaused)
    job_time = JobTime(jobs, runs.ledger, put, lambda name: principal_named(store, name))
    runs.share_limits(jobs)
    await jobs.open(
        follow_ups.on_end if factory.settings.job_follow_up else None,
        lambda job, ended: runs.notifier.notify_around(job.principal, job_time.count(job, ended)),
        report,
    )


def built_in_tools(settings: Settings, mcp: McpServers) -> Sequence[Tool]:
    """The tools that are switched on: those of each server, and those that begin runs or reach other sessions."""
    delegating = (*(HELPER_TOOLS if settings.helpers else ()), *(SESSION_TOOLS if settings.session_tools else ()))
    return (*TOOLS, *search_tools(settings, mcp.tools), *memory_tools(settings), *delegating)


def sandbox_of(settings: Settings, *, people: bool) -> Sandbox | NoSandbox:
    """A sandbox around the workspace, which is created here; without `people` the only principal is the local user."""
    make_folder(settings.workspace, "workspace")
    folder = settings.workspace / PEOPLE
    if people and not folder.exists() and not folder.is_symlink():
        make_folder(folder, "workspace")  # before any command can put something else there
    kept = [folder] if people else []
    return find_sandbox(
        hidden=[settings.data_dir],
        kept=kept,
        unsafe=settings.unsafe_no_sandbox,
        network=settings.sandbox_network,
        author=GitAuthor(settings.git_author_name, settings.git_author_email),
        private_hosts=settings.private_hosts,
        closed_ports=[settings.port],
    )


def jobs_of(settings: Settings, switch: KillSwitch, runs: RunManager, redactor: Redactor) -> Jobs:
    kind = partial(SharedJobs, runs.replicas, redactor.redact_value) if isinstance(runs, SharedRuns) else Jobs
    return kind(
        settings.data_dir / JOBS,
        limit=settings.job_limit,
        time_limit_s=settings.job_time_limit_s,
        follow_up=settings.job_follow_up,
        check_paused=switch.check,
    )


def secrets_of(settings: Settings) -> list[str]:
    """Secrets that no answer, log or database may hold; access tokens are known by their shape."""
    keys = (settings.model_key, settings.search_key, settings.memory_embeddings_key, settings.metrics_token)
    given = [key.get_secret_value() for key in keys if key]
    return [*secrets_in(os.environ), *given, *settings.database_secrets]


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


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

"""The fourth phase: the factory of runs with their sandbox and jobs. Runs that were left go on before it is open."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from app.checkpoints.checkpoints import kept_by
from app.checkpoints.scratch import SCRATCH, ScratchFolders
from app.config.folders import PEOPLE, make_folder
from app.config.runtime_changes import RuntimeSettings
from app.config.search_backend import search_tools
from app.config.settings import Settings
from app.context.project_files import ProjectFiles
from app.knowledge.startup import knowledge_tools, opened_knowledge
from app.labels.contents import Contents
from app.labels.file_labels import FileLabels
from app.labels.run_labels import LabelServices
from app.mcp.servers import McpServers
from app.memory.startup import memory_tools, tool_meaning_of
from app.policy.current_rights import principal_named
from app.policy.rules.compiling import compiled_rules
from app.profiles.library import Profiles
from app.provenance.mark_index import MarkIndex
from app.runs.composition.server_metrics import recording
from app.runs.composition.unattended import UnattendedRuns
from app.runs.connections import Presence
from app.runs.follow_up import FollowUps, kept_for_next_run
from app.runs.job_time import JobTime
from app.runs.recovery.takeover import recovered
from app.runs.run_factory import RunFactory
from app.storage.changes import Change
from app.storage.files.reading import Files
from app.storage.store import Store
from routes.management.tools import OwnRoutes, management_tools
from routes.startup.models import ModelPhase
from routes.startup.run_manager import ManagerPhase
from routes.startup.storage import StoragePhase
from tools.base.tasks import alone, in_background
from tools.catalogue import HELPER_TOOLS, SESSION_TOOLS, TOOLS
from tools.jobs.manager import Jobs
from tools.jobs.records import Job
from tools.mcp.tool_search import ToolChoices
from tools.sandbox.command import GitAuthor
from tools.sandbox.sandbox import NoSandbox, Sandbox, find_sandbox
from tools.tool import Tool

JOBS = "jobs"

_log = logging.getLogger(__name__)


class FactoryPhase(Struct, frozen=True, kw_only=True):
    factory: RunFactory
    presence: Presence
    runtime_settings: RuntimeSettings
    own_routes: OwnRoutes


@asynccontextmanager
async def opened_run_factory(
    settings: Settings, storage: StoragePhase, manager: ManagerPhase, models: ModelPhase
) -> AsyncGenerator[FactoryPhase, None]:
    """Raises StoreFailed."""
    store, journal, switch, redactor = storage.store, storage.journal, storage.switch, storage.redactor
    runs, registry = manager.runs, models.registry
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runs.close)
        sandbox = sandbox_of(settings, people=bool(await store.tokens()))
        jobs = storage.replication.jobs(
            settings.own_dir / JOBS,
            redactor,
            limit=settings.job_limit,
            time_limit_s=settings.job_time_limit_s,
            follow_up=settings.job_follow_up,
            check_paused=switch.check,
        )
        stack.push_async_callback(jobs.close)
        presence = Presence(store, runs, jobs, settings.max_streams)
        stack.push_async_callback(presence.close)
        project = ProjectFiles(store, runs.peers)
        await project.load()
        profiles = Profiles(settings.profiles, store, runs.peers)
        await profiles.load()
        labels = await opened_labels(settings, store, jobs)
        knowledge = await stack.enter_async_context(
            opened_knowledge(
                settings, store, models.memories, labels, redactor=redactor, sandbox=sandbox, unpaused=switch.unpaused
            )
        )
        factory = RunFactory(
            settings=settings,
            store=store,
            runs=runs,
            switch=switch,
            models=models.models,
            sandbox=sandbox,
            jobs=jobs,
            redactor=redactor,
            mcp=manager.mcp,
            files=Files(store),
            built_in=(
                *built_in_tools(settings, manager.mcp),
                *management_tools(own_routes := OwnRoutes(), settings, store),
            ),
            project=project,
            labels=labels,
            knowledge=knowledge,
            marks=MarkIndex(store, manager.notifications.keys.marks_key, journal.flush, shared=not runs.peers.is_alone),
            profiles=profiles,
            looks=models.looks,
            scratch=ScratchFolders(settings.data_dir / SCRATCH, kept_by(models.looks)),
            hooks=manager.hooks,
            secrets=storage.secrets,
            memories=models.memories,
            choices=ToolChoices(tool_meaning_of(models.memories, stack)),
            rules=compiled_rules(settings.rules),
        )
        stack.enter_context(recording(storage.metrics, journal, factory, registry))
        runtime_settings = await opened_runtime_settings(settings, store, factory)
        unattended = UnattendedRuns(factory)
        cancel_task = manager.mcp.manager.cancel_task
        await stack.enter_async_context(recovered(store, journal, runs, unattended.restored_agent, cancel_task))
        await follow_jobs(unattended, journal.put, manager.notifications.outbox.job_ended)
        await stack.enter_async_context(in_background(presence.watch_forever(), "presence"))
        yield FactoryPhase(factory=factory, presence=presence, runtime_settings=runtime_settings, own_routes=own_routes)


def sandbox_of(settings: Settings, *, people: bool) -> Sandbox | NoSandbox:
    """A sandbox around the workspace, which is created here; without `people` the only principal is the local user."""
    make_folder(settings.workspace, "workspace")
    folder = settings.workspace / PEOPLE
    if people and not folder.exists() and not folder.is_symlink():
        make_folder(folder, "workspace")  # before any command can put something else there
    kept = [folder] if people else []
    find = partial(
        find_sandbox,
        hidden=[settings.data_dir],
        kept=kept,
        unsafe=settings.unsafe_no_sandbox,
        network=settings.sandbox_network,
        author=GitAuthor(settings.git_author_name, settings.git_author_email),
        private_hosts=settings.private_hosts,
        closed_ports=[settings.port],
        authorities=[Path(file) for file in (os.environ.get("SSL_CERT_FILE"),) if file],
    )
    found: Sandbox | NoSandbox = alone(find)  # the command line has begun to try them
    return found


def built_in_tools(settings: Settings, mcp: McpServers) -> Sequence[Tool]:
    """The tools that are switched on: those of each server, and those that begin runs or reach other sessions."""
    delegating = (*(HELPER_TOOLS if settings.helpers else ()), *(SESSION_TOOLS if settings.session_tools else ()))
    searching = (*search_tools(settings, mcp.tools), *memory_tools(settings), *knowledge_tools(settings))
    return (*TOOLS, *searching, *delegating)


async def opened_labels(settings: Settings, store: Store, jobs: Jobs) -> LabelServices | None:
    """The labels of files, as the settings and the store have them; None where no label is configured."""
    policy = settings.label_policy
    if not policy.is_used:
        return None
    book = FileLabels(policy, settings.workspace)
    await book.load(store)
    return LabelServices(book, store, jobs, Contents.of(policy))


async def opened_runtime_settings(settings: Settings, store: Store, factory: RunFactory) -> RuntimeSettings:
    """The stored changes of settings, which the runs of the factory follow."""
    runtime_settings = RuntimeSettings(settings, store, factory.follow_settings, factory.runs.peers)
    for problem in await runtime_settings.load():
        _log.warning(problem)
    return runtime_settings


async def follow_jobs(unattended: UnattendedRuns, put: Callable[[Change], None], report: Callable[[Job], None]) -> None:
    """Open the jobs: their time counts, and their ends are reported to their sessions."""
    factory = unattended.factory
    jobs, runs, store = factory.jobs, factory.runs, factory.store
    keep = partial(kept_for_next_run, store)
    follow_ups = FollowUps(jobs, runs, unattended.start_follow_up, keep, factory.switch.unpaused)
    job_time = JobTime(jobs, runs.ledger, put, lambda name: principal_named(store, name))
    await jobs.open(
        follow_ups.on_end if factory.settings.job_follow_up else None,
        lambda job, ended: runs.notifier.notify_around(job.principal, job_time.count(job, ended)),
        report,
    )

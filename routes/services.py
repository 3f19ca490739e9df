"""Everything a server is made of, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from starlette.requests import Request

from app.budget.budgets import Ledger, usual_budget
from app.budget.run_budget import Spending
from app.budget.side_query import Aside
from app.config.settings import Settings
from app.context.compaction.replay import Folds
from app.context.history_search import Recaller
from app.context.persona import PERSONAS, Persona, persona_in
from app.context.prompt import Override, Prompt, opening
from app.context.view import Opening, view_of
from app.core.clock import Clock
from app.core.events import Notice
from app.core.rules import Mode, WhenAbsent, classified
from app.log.event_writer import Journal
from app.mcp.servers import McpServers
from app.mcp.servers import opened as opened_mcp
from app.models.endpoints.failover import Route
from app.models.endpoints.model_registry import Models, UnknownModel
from app.models.endpoints.registry import Registry
from app.models.endpoints.startup import Choose, opened_models
from app.policy.approvals import Approvals
from app.policy.current_rights import principal_named
from app.policy.gate import Circumstances, Gate, Writes
from app.policy.guards import guards_of
from app.provenance.quotation import Provenance, of_prompt, of_summaries
from app.provenance.read_texts import Source
from app.redaction.logs import redacted_logs
from app.redaction.redactor import Redactor, secrets_in
from app.runs.agent import Agent
from app.runs.connections import Presence
from app.runs.discipline.limit_enforcer import Discipline
from app.runs.discipline.limits import Limits
from app.runs.follow_up import LAST, ROUNDS, FollowUps, NoRoom, kept_for_next_run, room_in
from app.runs.housekeeping import Housekeeping
from app.runs.job_time import JobTime
from app.runs.live_outputs import Outputs
from app.runs.recovery import recover
from app.runs.run_manager import Runs
from app.runs.tool_executor import Calls
from app.runs.tool_results import Results
from app.storage.files.reading import Files
from app.storage.kill_switch import Switch
from app.storage.principals import Principal, folder_name
from app.storage.rows import RunRow
from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store
from app.transcript.run_request import Key, NotFound, Turn
from routes.access.local_admin import LocalAdmin, opened_local_admin
from routes.data_dir import PEOPLE, made, only_server, workspace_of
from routes.protocol.errors import Refused
from routes.protocol.requests import ChatRequest
from tools.base.rights import Role
from tools.catalogue import TOOLS
from tools.jobs.manager import Jobs
from tools.jobs.records import Job
from tools.mcp.tool_search import toolbox_within
from tools.sandbox.command import GitAuthor
from tools.sandbox.sandbox import WAYS_OUT, NoSandbox, Sandbox, find_sandbox
from tools.tool import Context, Tool
from tools.toolbox import Toolbox

DATABASE = "dragoman.db"
JOBS = "jobs"


@dataclass(slots=True)
class Services:
    """One server's collaborators. `about_model` is a sentence: which model answers, and why that one."""

    settings: Settings
    store: Store
    runs: Runs
    switch: Switch
    models: Models
    about_model: str
    sandbox: Sandbox | NoSandbox
    jobs: Jobs
    presence: Presence
    redactor: Redactor
    mcp: McpServers
    endpoints: Registry
    files: Files
    local: LocalAdmin = field(default_factory=LocalAdmin)
    built_in: Sequence[Tool] = TOOLS
    folds: Folds = field(default_factory=Folds)
    outputs: Outputs = field(default_factory=Outputs)
    writes: Writes = field(default_factory=Writes)

    @property
    def tools(self) -> Sequence[Tool]:
        """What there is now; MCP servers come and go."""
        return [*self.built_in, *self.mcp.tools()]

    def gate(
        self,
        principal: Principal,
        mode: Mode | None = None,
        workspace: Path | None = None,
        when_absent: WhenAbsent = WhenAbsent.WAIT,
    ) -> Gate:
        """What decides for a run, in this workspace. Raises Refused for a mode that is not theirs."""
        mode = mode or self.settings.mode_of(principal.role)
        if mode is Mode.AUTO and principal.role is not Role.ADMIN:
            message = f"approval: auto is for admins; {principal.name} is a {principal.role}"
            raise Refused(403, "forbidden", message)
        under = Circumstances(
            mode,
            self.sandbox.boxed,
            self.sandbox.networked,
            WAYS_OUT.get(self.sandbox.level, self.sandbox.blocks),
            workspace or self.settings.workspace,
            commands=self.settings.allowed_commands,
            when_absent=when_absent,
            writes=self.writes,
        )
        return Gate(principal, under, self.settings.taint)

    def toolbox(self, gate: Gate, names: Sequence[str] | None = None, window: int | None = None) -> Toolbox:
        """The tools that `gate` lets be used, for a model with this window; `names` can only narrow them.

        Raises Refused for a name not there.
        """
        tools = [classified(tool, self.settings.tools) for tool in self.tools]
        if names is not None:
            offered = {tool.name: tool for tool in Toolbox(tools, gate.decide, gate.principal.name).offered}
            if unknown := [name for name in names if name not in offered]:
                message = f"tools: there is no {', '.join(map(ascii, unknown[:5]))}; there are {', '.join(offered)}"
                raise Refused(422, "unknown_tool", message)
            tools = [offered[name] for name in names]
        room = self.settings.mcp_tools_share * (window or self.models.default.counter.known_window)
        return toolbox_within(room, tools, gate.decide, gate.principal.name, self.mcp.sources())

    def agent(self, principal: Principal, wish: ChatRequest) -> Agent:
        """A new agent for one run. Raises Refused for a model, a tool or a mode that is not there."""
        try:
            route = self.models.route(wish.model, principal.name)
        except UnknownModel as unknown:
            raise Refused(422, "unknown_model", f"model: {unknown}") from unknown
        utility = self.models.utility(route)
        workspace = workspace_of(self.settings.workspace, principal)
        gate = self.gate(principal, wish.approval, workspace, wish.when_absent)
        toolbox = self.toolbox(gate, wish.tools, route.counter.known_window)
        context = Context(
            workspace,
            self.settings.tool_time_limit_s,
            self.sandbox,
            jobs=self.jobs,
            principal=principal.name,
            private_hosts=self.settings.private_hosts,
            recall=Recaller(self.store),
        )
        discipline = Discipline(self.limits(wish), verify=self.settings.verify)
        spending = Spending(self.runs.ledger, principal, discipline.tool_left_s)
        guards = guards_of(self.settings, principal.name, utility, spending)
        persona, override = self._persona(principal), self.redactor.redact_value(wish.override)
        prompt = self._prompt(persona, override, context.workspace, guards.line, route)
        notes = Aside(utility, spending, lambda: utility.counter, self.settings.summary_time_limit_s)
        return Agent(
            route,
            Calls(
                *(toolbox, gate, context, self.runs.approvals, spending, self.switch.check),
                guards=guards,
                results=Results(self.settings.result_characters, self.store.result),
                outputs=self.outputs,
                parallel_reads=self.settings.parallel_reads,
                provenance=Provenance(partial(self._also_read, persona, override)),
                waiting=discipline.waiting,
            ),
            view_of(
                *(self.settings, route, prompt, notes, self.store.summaries, self.folds, wish.inactivity_s),
                self.files.read,
                describe_files=wish.without_vision == "describe",
            ),
            discipline,
            self.switch.check,
        )

    def _persona(self, principal: Principal) -> Persona:
        return self.redactor.redact_value(persona_in(self.settings.data_dir / PERSONAS / folder_name(principal)))

    async def _also_read(self, persona: Persona, override: Override | None, session: str) -> Sequence[Source]:
        """What a model reads besides the messages of its session, and others than we have written."""
        summaries = await self.store.summaries(session)
        return [*of_prompt(persona, override, self.mcp.tools()), *of_summaries(row.text for row in summaries)]

    def _prompt(
        self, persona: Persona, override: Override | None, workspace: Path, guards: str, route: Route
    ) -> Opening:
        """What a run's requests begin with; persona and `system` stay as they are now in all of its rounds."""
        known = partial(opening, workspace=workspace, persona=persona, override=override, guards=guards)
        return Prompt(Clock(self.settings.time_zone), lambda: route.teach_fences, known)

    def limits(self, wish: ChatRequest) -> Limits:
        return Limits(
            wish.max_rounds or self.settings.max_rounds,
            wish.max_calls or self.settings.max_calls,
            wish.max_tokens or self.settings.max_run_tokens,
            wish.time_limit_s or self.settings.run_time_limit_s,
        )

    async def agent_again(self, row: RunRow) -> tuple[Agent, float]:
        """The agent that a run was begun with, and its time limit. Raises NotFound if it cannot be had any more."""
        principal = await principal_named(self.store, row.principal)
        wish = ChatRequest.again("", row.policy)
        return self._unasked(principal, wish), self.limits(wish).seconds

    def _unasked(self, principal: Principal, wish: ChatRequest) -> Agent:
        """An agent that no request has asked for. Raises NotFound if it cannot be had any more."""
        try:
            return self.agent(principal, wish)
        except Refused as refused:
            raise NotFound(refused.message) from refused

    async def begin_follow_up(self, job: Job, message: str) -> None:
        """Tell a session of its job's end, once. Raises NoRoom and what `Runs.start` raises."""
        principal = await principal_named(self.store, job.principal)
        key = Key(f"follow-up\n{job.id}", "")  # no request can have it: theirs are printable
        room = await room_in(job.session, self.store, self.settings.max_follow_ups)
        if not room and await self.store.key(principal.name, key.value) is None:
            raise NoRoom
        rounds = min(ROUNDS, self.settings.max_rounds, max(1, room.requests))
        last = (await self.store.runs(job.session))[-1:]  # what a person asked for there holds on
        wish = ChatRequest.again(message, last[0].policy if last else "{}")
        agent = self._unasked(principal, wish.model_copy(update={"max_rounds": rounds}))
        limit_s, told = self.limits(wish).seconds, Notice("follow_ups", LAST) if room.last else None
        turn = Turn(message, job.session, key=key, time_limit_s=limit_s, policy=wish.policy(), asked=False, notice=told)
        await self.runs.start(agent, principal, turn)


OpenStore = Callable[[Path], Awaitable[Store]]


@asynccontextmanager
async def open_services(
    settings: Settings, choose: Choose | None = None, open_store: OpenStore = SQLiteStore.open
) -> AsyncGenerator[Services, None]:
    """Raises StoreFailed when the data directory cannot be used, SettingsError when a key or the tokenizer cannot."""
    async with AsyncExitStack() as stack:
        redactor = Redactor(secrets_of(settings))
        stack.enter_context(redacted_logs(redactor))
        stack.enter_context(only_server(settings.data_dir))
        store = await open_store(settings.data_dir / DATABASE)
        stack.push_async_callback(store.close)
        switch = Switch(store)
        await switch.load()
        journal = await stack.enter_async_context(Journal(store, redactor, documents=settings.documents))
        mcp = await stack.enter_async_context(opened_mcp(settings, store, redactor, os.environ, switch.check))
        approvals = Approvals(store, settings.approval_time_limit_s, settings.grant_time_limit_s or None)
        runs = Runs(store, journal, switch, approvals, Ledger(store, usual_budget(settings)))
        switch.on_turn = [runs.bells.ring_all, mcp.go_on]
        housekeeping = Housekeeping(store, settings.log_join_after_s, settings.keep_days, settings.audit_days)
        stack.push_async_callback(ended, asyncio.create_task(housekeeping.for_ever(), name="housekeeping"))
        opened = await stack.enter_async_context(
            opened_models(settings, store, redactor, os.environ, choose, switch=switch)
        )
        models = opened.models
        stack.push_async_callback(runs.close)
        sandbox = sandbox_of(settings, people=bool(await store.tokens()))
        jobs = Jobs(
            settings.data_dir / JOBS,
            limit=settings.job_limit,
            time_limit_s=settings.job_time_limit_s,
            follow_up=settings.job_follow_up,
            check_paused=switch.check,
        )
        stack.push_async_callback(jobs.close)
        presence = Presence(store, runs, jobs, settings.max_streams)
        stack.push_async_callback(presence.close)
        services = Services(
            *(settings, store, runs, switch, models, opened.about, sandbox, jobs, presence, redactor, mcp),
            opened.registry,
            Files(store),
            opened_local_admin(settings.data_dir),
        )
        await recover(store, journal, runs, services.agent_again)
        follow_ups = FollowUps(jobs, runs, services.begin_follow_up, partial(kept_for_next_run, store), switch.unpaused)
        job_time = JobTime(jobs, runs.ledger, journal.put, lambda name: principal_named(store, name))
        await jobs.open(
            follow_ups.on_end if settings.job_follow_up else None,
            lambda job, ended: runs.bells.around(job.principal, job_time.count(job, ended)),
        )
        stack.push_async_callback(ended, asyncio.create_task(presence.watch_for_ever(), name="presence"))
        yield services


def sandbox_of(settings: Settings, *, people: bool) -> Sandbox | NoSandbox:
    """Around the workspace, which is made here; without `people` there is nobody but the local user."""
    made(settings.workspace, "workspace")
    folder = settings.workspace / PEOPLE
    if people and not folder.exists() and not folder.is_symlink():
        made(folder, "workspace")  # before any command can put something else there
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


def secrets_of(settings: Settings) -> list[str]:
    """What no answer, log or database may hold; access tokens are known by their shape."""
    key = settings.model_key
    return [*secrets_in(os.environ), *([key.get_secret_value()] if key else [])]


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def services_of(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


def asker(request: Request) -> Principal:
    """Who asks: `Access` has put it there."""
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal

"""Composing a run's agent: its model, tools, gate, prompt and limits, from the settings and from what a request asks.

The one place where an agent is made: for a request, for a run that goes on after a restart, and for the follow-up of a
background job.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field, structs

from app.budget.run_budget import RunBudget
from app.budget.side_query import SideQuery
from app.checkpoints.call_changes import CallChanges
from app.checkpoints.checkpoints import kept_by
from app.checkpoints.scratch import GONE, ScratchFolders
from app.checkpoints.workspace_scans import WorkspaceScans
from app.config.folders import FolderGone, folder_below, on_one_file_system, workspace_of
from app.config.settings import Settings
from app.context.compaction.replay import HistoryCache
from app.context.compaction.summarise import Summariser
from app.context.history_search import HistorySearch
from app.context.lesson import Lesson
from app.context.persona import PERSONAS, Persona, persona_in
from app.context.project_files import ProjectContext, ProjectFiles, notices_of
from app.context.prompt import NO_PERSONA, PLAN_FIRST, READ_ONLY
from app.context.run_rules import RunFacts, sandbox_facts
from app.context.server_notes import LEAST_WINDOW
from app.context.view import Opening, RelayView, View
from app.core.attachments import File
from app.core.clock import known_zone
from app.core.data_delimiters import RULE
from app.core.rules import ApprovalMode, WhenAbsent
from app.hooks.hooks import Hooks
from app.hooks.run_hooks import hooks_of_run
from app.knowledge.knowledge import CallKnowledge, Knowledge
from app.labels.run_labels import LabelServices, RunLabels, labels_of_run
from app.mcp.servers import McpServers
from app.memory.memories import Memories
from app.memory.startup import memory_of_run
from app.models.endpoints.failover import ModelRoute
from app.models.endpoints.model_registry import Models, UnknownModel
from app.models.wire.structured_output import is_structured
from app.policy.gate import Gate
from app.policy.guards import guards_of
from app.policy.policy_context import PolicyContext
from app.policy.rules.operator_rules import OperatorRules
from app.policy.secret_rights import prompt_line
from app.policy.tool_narrowing import ALL_TOOLS, ToolNarrowing
from app.profiles.library import Profiles
from app.provenance.mark_index import MarkIndex
from app.provenance.origins import Origins
from app.provenance.quotation import Others, Provenance, no_others
from app.provenance.run_marks import RunMarks, ordinary_texts
from app.redaction.redactor import Redactor
from app.runs.agent import Agent, new_call_id
from app.runs.client_tools import ClientToolLists
from app.runs.composition.profiled_options import ProfiledOptions, named_by, narrowing_of
from app.runs.composition.refusals import ModeForbidden, UnknownTool
from app.runs.composition.run_texts import RunTexts
from app.runs.delegation.call_helpers import CallHelpers
from app.runs.delegation.call_sessions import CallSessions
from app.runs.delegation.shared_limits import ParentLimits, SharedLimits
from app.runs.discipline.end_judge import judge_of
from app.runs.discipline.limit_enforcer import LimitEnforcer
from app.runs.discipline.limits import Limits
from app.runs.discipline.run_terminals import RunTerminals
from app.runs.first_contact import FirstContact, is_expected
from app.runs.live_outputs import Outputs
from app.runs.recording.parts import Begin
from app.runs.recording.recorder import RunRecorder
from app.runs.recording.stand_ins import StandIns
from app.runs.recording.world import world_of
from app.runs.relay.json_answer import JSONAnswer
from app.runs.relay.relay_agent import RelayAgent
from app.runs.run_manager import RunManager
from app.runs.run_options import ClientTool, RunOptions
from app.runs.run_scope import Delegation, ParentCall, Reach, RunScope
from app.runs.tool_executor import ToolExecutor
from app.runs.tool_results import Results
from app.secrets.library import Secrets
from app.storage.files.reading import Files
from app.storage.kill_switch import KillSwitch
from app.storage.principals import Principal, folder_name
from app.storage.store import Store
from app.transcript.run_totals import RunTotals
from app.transcript.timings import PROMPT
from tools.base.rights import Role
from tools.builtin.web_search import NOT_CONFIGURED
from tools.catalogue import READ_SKILL, SUBMIT_PLAN, WEB_SEARCH
from tools.jobs.manager import Jobs
from tools.mcp.tool_search import ToolChoices, toolbox_within
from tools.sandbox.sandbox import WAYS_OUT, NoSandbox, Sandbox, secrets_refusal
from tools.tool import NO_TOOLS, Context, Tool, ToolList
from tools.toolbox import Refuse, Toolbox

READERS = ThreadPoolExecutor(2, "reads")  # for short reads alone, as every request may need them
NO_PROJECT = ProjectContext()
LACKING: Mapping[str, str] = MappingProxyType({WEB_SEARCH.name: NOT_CONFIGURED})
NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})


class RunFactory(Struct, kw_only=True):
    """The collaborators that every agent of one server shares."""

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
    profiles: Profiles
    built_in: Sequence[Tool]
    project: ProjectFiles
    looks: WorkspaceScans
    scratch: ScratchFolders
    memories: Memories
    rules: OperatorRules
    hooks: Hooks | None
    labels: LabelServices | None
    secrets: Secrets
    marks: MarkIndex | None = None
    knowledge: Knowledge | None = None
    histories: HistoryCache = field(default_factory=HistoryCache)
    outputs: Outputs = field(default_factory=Outputs)
    choices: ToolChoices = field(default_factory=ToolChoices)
    client_tools: ClientToolLists = field(default_factory=ClientToolLists)
    _listed: tuple[tuple[Sequence[Tool], Sequence[Tool]], ToolList] | None = None  # of which tools

    def follow_settings(self, settings: Settings) -> None:
        """Make further runs of these settings."""
        self.settings = settings

    @property
    def tools(self) -> ToolList:
        """The tools that there are now, as the settings classify them; those of MCP servers come and go."""
        there, known = (self.built_in, self.mcp.tools()), self._listed
        if known is None or there[0] is not known[0][0] or there[1] is not known[0][1]:
            known = there, ToolList(self.mcp.trust.classification.of(tool) for tools in there for tool in tools)
            self._listed = known
        return known[1]

    def gate(
        self,
        principal: Principal,
        mode: ApprovalMode | None = None,
        workspace: Path | None = None,
        when_absent: WhenAbsent = WhenAbsent.WAIT,
        *,
        planning: bool = False,
        narrowing: ToolNarrowing = ALL_TOOLS,
    ) -> Gate:
        """The gate of a run in this workspace. Raises ModeForbidden."""
        mode = mode or self.settings.mode_of(principal.role)
        if mode is ApprovalMode.AUTO and principal.role is not Role.ADMIN:
            raise ModeForbidden(f"approval: auto is for admins; {principal.name} is a {principal.role}")
        policy = PolicyContext(
            mode,
            self.sandbox.boxed,
            self.sandbox.networked,
            WAYS_OUT.get(self.sandbox.level) or self.sandbox.blocks,
            workspace or self.settings.workspace,
            commands=self.settings.allowed_commands,
            when_absent=when_absent,
            planning=planning,
            narrowing=narrowing,
            rules=self.rules,
            weighs=True,
            writes=self.runs.writes,
            secrets=self.secrets.rights,
        )
        return Gate(principal, policy, self.settings.taint, self.mcp.trust.classification)

    def gate_of(self, principal: Principal, options: RunOptions, workspace: Path | None = None) -> Gate:
        """The gate of a run with these options, which `resolved` returned. Raises ModeForbidden."""
        return self.gate(
            principal,
            options.approval,
            workspace,
            options.when_absent,
            planning=options.plans,
            narrowing=narrowing_of(options),
        )

    async def current_gate(self, principal: Principal, mode: ApprovalMode | None = None) -> Gate:
        """The gate of a principal outside of a run, under its token's profile. Raises ProfileMissing, StoreFailed."""
        options = await self.resolved(principal, RunOptions())
        return self.gate(principal, mode or options.approval, narrowing=narrowing_of(options))

    def route(self, principal: Principal, options: RunOptions) -> ModelRoute:
        """Raises UnknownModel, which says if the model is not the request's."""
        try:
            return self.models.route(options.model, principal.name)
        except UnknownModel as unknown:
            if source := named_by(options, "model"):
                raise UnknownModel(f"{unknown} It is named by the {source}.") from None
            raise

    async def resolved(self, principal: Principal, options: RunOptions, session: str | None = None) -> RunOptions:
        """The options under the profiles in force. Raises UnknownProfile, ProfileMissing, StoreFailed."""
        return await ProfiledOptions(self.settings, self.profiles).resolved(principal, options, session)

    def toolbox(
        self,
        gate: Gate,
        names: Sequence[str] | None = None,
        window: int | None = None,
        declared: Sequence[ClientTool] = (),
        also: Sequence[Tool] = (),
        *,
        has_waited: bool = False,
    ) -> Toolbox:
        """The tools that `gate` lets be used, for a model with this window, beside those that the client has declared.

        `names` can only narrow the former. Raises UnknownTool, but not for tools that a server may yet bring; when
        these `has_waited` for, they are left out.
        """
        tools, window = self.tools, window or self.models.default.counter.known_window
        if names is not None:
            offered = gate.acting().offer(tools).by_name
            unknown = [name for name in names if name not in offered]
            if not has_waited and (unknown := [name for name in unknown if not is_expected(name, self.mcp)]):
                missing = ", ".join(map(ascii, unknown[:5]))
                raise UnknownTool(f"tools: there is no {missing}; there are {', '.join(offered)}")
            tools = ToolList(offered[name] for name in names if name in offered)
        else:
            tools = tools.part(lambda tool: tool.least_window <= window, ("window", window))
        if gate.policy.planning:
            also = (*also, SUBMIT_PLAN)
        if also:
            tools = ToolList([*tools, *also])
        room = self.settings.mcp_tools_share * window
        tools = self.client_tools.joined(tools, declared)
        later = gate.acting().offer(tools) if gate.policy.planning else None
        return toolbox_within(
            room,
            tools,
            gate.decide,
            gate.principal.name,
            self.mcp.sources(),
            offer=gate.offer,
            choices=self.choices,
            later=later,
            current=gate.classification.current,
        )

    def _toolbox_of(
        self, options: RunOptions, gate: Gate, route: ModelRoute, project: ProjectContext, *, has_waited: bool = False
    ) -> Toolbox:
        names, has_skills = options.tools, bool(project.skills or self._server_skills(options, gate, route))
        also = (READ_SKILL,) if has_skills and (names is None or READ_SKILL.name in names) else ()
        names = names and [name for name in names if not has_skills or name != READ_SKILL.name]
        window, declared = route.known_window, options.client_tools or ()
        toolbox = self.toolbox(gate, names, window, declared, also, has_waited=has_waited)
        toolbox.time_zone = known_zone(options.time_zone)
        if WEB_SEARCH.name not in self.tools.by_name:
            toolbox.lacking = LACKING
        return toolbox

    def _server_skills(self, options: RunOptions, gate: Gate, route: ModelRoute) -> Mapping[str, str]:
        """The skills of MCP servers that a run may read: none if it names its tools, or for a small window."""
        found = self.tools.of_skills
        if not found or options.tools is not None or route.known_window < LEAST_WINDOW:
            return {}
        tools = [one for one in found if not isinstance(gate.acting().decide(one), Refuse)]
        return {tool.skills.rstrip("/"): self.redactor.redact(tool.description) for tool in tools}

    def _first_contact(
        self, options: RunOptions, gate: Gate, toolbox_of: Callable[..., Toolbox]
    ) -> FirstContact | None:
        rules, unseen = self.settings.tools, self.mcp.manager.unseen()
        if not unseen:
            return None
        return FirstContact(
            self.mcp,
            gate=gate,
            rules=rules,
            allowed=options.tools,
            limit_s=self.settings.mcp_wait_s,
            toolbox=partial(toolbox_of, has_waited=True),
            unseen=unseen,
        )

    async def agent(
        self, principal: Principal, options: RunOptions, session: str | None = None, above: ParentLimits | None = None
    ) -> Agent:
        """A new agent for one run; `above` is the run that it helps.

        Raises UnknownModel, UnknownTool, ModeForbidden, UnknownProfile, ProfileMissing, FolderUnsafe, FolderUnusable.
        """
        options = (await self.resolved(principal, options, session)).alone
        route = self.route(principal, options)
        utility = self.models.utility(route)
        totals = RunTotals()
        with totals.times.step(PROMPT):
            if (found := self._bare_folders(principal)) is None:
                found = await asyncio.get_running_loop().run_in_executor(READERS, self._read_folders, principal)
            home, persona, project = found
        own = await self.scratch_session(session)
        workspace = await self._work_folder(home, options, above, self.scratch.of(own))
        gate = self.gate_of(principal, options, workspace)
        await self.runs.enter_permissions(gate, options.permissions)
        toolbox_of = partial(self._toolbox_of, options, gate, route, project)
        limits = self.limits(options)
        if self.settings.helpers:  # what these take counts, too
            limits = SharedLimits(limits.rounds, limits.calls, limits.tokens, limits.seconds, above=above)
        discipline = LimitEnforcer(limits, verify=self.settings.verify)
        run_budget = RunBudget(self.runs.ledger, principal, discipline.tool_left_s)
        guards = guards_of(self.settings, principal.name, utility, run_budget)
        texts = self._texts(options, persona, project, gate, route)
        lesson = Lesson(route)
        prompt = texts.opening(workspace, _lines(options, guards.line), route, lesson)
        labels = labels_of_run(self.labels, route, gate, self.sandbox, project)
        notes = SideQuery(utility, run_budget, utility, self.settings.summary_time_limit_s)
        remembers = options.memory is not False
        scope = RunScope(
            totals=totals,
            toolbox=toolbox_of(),
            gate=gate,
            tool_context=self._tool_context(workspace, principal, project),
            approvals=self.runs.approvals,
            run_budget=run_budget,
            check_not_paused=self.switch.check,
            guards=guards,
            results=Results(self.settings.result_characters, self.store.result),
            outputs=self.outputs,
            parallel_reads=self.settings.parallel_reads,
            provenance=Provenance(texts.sources),
            given=(persona.soul, persona.user, options.profile_prompt or ""),
            origins=Origins(texts.sources),
            waiting=discipline.waiting,
            changes=CallChanges(workspace, self.looks, labels.end_write if labels else None),
            labels=labels,
            call_form=lambda: route.call_form,
            checkpoints=kept_by(self.looks),
            terminals=RunTerminals(self.settings.pty, options.terminal, self.runs.is_left),
            documents=self.runs.documents,
            memory=memory_of_run(self.settings, self.memories, principal.name) if remembers else None,
            knowledge=self._knowledge_of(gate, home, session or "", labels),
            hooks=hooks_of_run(self.hooks, principal.name),
            secrets=self.secrets,
            delegation=self._delegation(options, limits),
        )
        scope.marks = self._marks_of(scope, texts)
        recorder = scope.recorder = self._recorder(scope, options, route, sources=texts.sources)
        view = self._view(options, route, prompt, notes)
        view.lesson = lesson
        view.entered = recorder.entered if recorder else None
        return Agent(
            route,
            scope,
            ToolExecutor(scope),
            view,
            discipline,
            new_id=recorder.draw_id if recorder else new_call_id,
            notices=notices_of(project),
            end_judge=judge_of(notes if self.models.utility_model else None),
            first_contact=self._first_contact(options, gate, toolbox_of),
            prepare=partial(self.scratch.fill, own) if own else None,
            narrowed=options.narrowed,
        )

    async def _work_folder(
        self, workspace: Path, options: RunOptions, above: ParentLimits | None, own: Path | None
    ) -> Path:
        """Return the folder in which a run works: that of the run above it, of its session, or of its person.

        Raises FolderUnsafe.
        """
        if above or own or not options.workspace:
            return above.workspace if above else own or workspace
        return await asyncio.to_thread(folder_below, workspace, options.workspace)

    def records(self, options: RunOptions) -> bool:
        """Return True if a run with these options is recorded."""
        return (self.settings.record if options.record is None else options.record) and not options.temporary

    def _recorder(
        self,
        scope: RunScope,
        options: RunOptions,
        route: ModelRoute,
        *,
        sources: Others = no_others,
        relay: Mapping[str, Any] | None = None,
    ) -> RunRecorder | None:
        """The recorder of a run; None where it is not recorded."""
        if not self.records(options):
            return None

        async def describe() -> Begin:
            return await world_of(self.settings, scope, route, await sources(""), relay)

        return RunRecorder(StandIns([self.redactor, *scope.guards.redactors]), describe, new_call_id)

    async def scratch_session(self, session: str | None) -> str | None:
        """Return the session with a folder of its own in which the runs of a session work: itself, or one above it.

        Raises FolderGone, StoreFailed.
        """
        while session:
            if self.scratch.of(session):
                return session
            if self.scratch.lacks(session):
                raise FolderGone(GONE)
            if not self.scratch.root.exists():
                return None
            helper = await self.store.helper(session)
            session = helper.parent_session if helper else None
        return None

    async def workspace_of(self, principal: Principal, session: str) -> Path:
        """Return the folder in which the runs of a session work. Raises FolderUnsafe, FolderUnusable, StoreFailed."""
        if own := self.scratch.of(await self.scratch_session(session)):
            return own
        whole = await asyncio.to_thread(workspace_of, self.settings.workspace, principal)
        kept = await self.profiles.session_defaults(session)
        return await asyncio.to_thread(folder_below, whole, kept.workspace) if kept and kept.workspace else whole

    def _texts(
        self, options: RunOptions, persona: Persona, project: ProjectContext, gate: Gate, route: ModelRoute
    ) -> RunTexts:
        override = self.redactor.redact_value(options.override)
        profile = self.redactor.redact_value(options.profile_prompt)
        return RunTexts(
            self.settings,
            store=self.store,
            mcp=self.mcp,
            persona=persona,
            override=override,
            project=project,
            profile=profile,
            secrets="" if secrets_refusal(self.sandbox) else prompt_line(gate.usable_secrets),
            facts=self._facts(options, persona, gate) if self.settings.prompt_rules else None,
            server_skills=partial(self._server_skills, options, gate, route),
        )

    def _facts(self, options: RunOptions, persona: Persona, gate: Gate) -> RunFacts:
        return RunFacts(
            sandbox=sandbox_facts(self.sandbox, self.settings.tool_time_limit_s),
            attended=not gate.policy.unattended,
            styled=bool(options.override or options.profile_prompt or persona.soul),
            channel=options.channel,
        )

    def _marks_of(self, scope: RunScope, texts: RunTexts) -> RunMarks | None:
        """The marks of untrusted text in a run; None where such text makes no difference."""
        if self.marks is None or not scope.gate.watches_taint:
            return None
        persona, project = texts.persona, texts.project.agents
        return RunMarks(
            self.marks,
            scope.gate.principal.name,
            scope.gate,
            scope.find_tools(),
            partial(ordinary_texts, self.built_in, RULE, persona.soul, persona.user, project),
            instructions=texts.override.text if texts.override else "",
        )

    def _knowledge_of(self, gate: Gate, home: Path, session: str, labels: RunLabels | None) -> CallKnowledge | None:
        """Return the knowledge of a run; None where there is none."""
        if self.knowledge is None:
            return None
        return CallKnowledge(
            self.knowledge, gate, own=home, workspace=gate.policy.workspace, session=session, labels=labels
        )

    def _view(self, options: RunOptions, route: ModelRoute, prompt: Opening, notes: SideQuery) -> View:
        """The view of a run on the models of `route`; `notes` writes summaries."""
        return View(
            route,
            prompt,
            options.inactivity_s,
            summaries=self.store.summaries,
            summariser=Summariser(notes, self.histories.asked_apart),
            summarise_at=self.settings.summarise_at,
            histories=self.histories,
            read=self.files.read,
            describe_files=options.without_vision == "describe",
            parameters=options.parameters,
        )

    def _delegation(self, options: RunOptions, limits: Limits) -> Delegation | None:
        """The reach of a run's calls: which get helpers and other sessions; None if all of it is switched off."""
        if not (self.settings.helpers or self.settings.session_tools):
            return None
        slots = asyncio.Semaphore(self.settings.helpers_parallel)  # for the helpers that work at a time

        def reach(parent: ParentCall) -> Reach:
            return (
                CallHelpers(self, parent, options, limits, slots) if isinstance(limits, SharedLimits) else None,
                CallSessions(self, parent, options) if self.settings.session_tools else None,
            )

        return reach

    def _tool_context(self, workspace: Path, principal: Principal, project: ProjectContext) -> Context:
        return Context(
            workspace,
            self.settings.tool_time_limit_s,
            self.sandbox,
            jobs=self.jobs,
            principal=principal.name,
            speaker=principal.member if principal.is_linked else "",
            private_hosts=self.settings.private_hosts,
            recall=HistorySearch(self.store),
            skills={skill.name: skill.text for skill in project.skills},
        )

    def relay(
        self,
        principal: Principal,
        options: RunOptions,
        parameters: Mapping[str, Any] = NO_PARAMETERS,
        files: Sequence[File] = (),
    ) -> RelayAgent:
        """A new agent for one round of a model, whose tools are all the client's. Raises UnknownModel, ModeForbidden.

        The options are those that `resolved` returned; the prompt of a profile is not added to the client's messages.
        `parameters` are those of chat completions, for the model's server; `files` those that the messages refer to.
        """
        route = self.route(principal, options)
        scope = self.scope(principal, options, route, self.client_tools.joined(NO_TOOLS, options.client_tools or ()))
        scope.hooks = hooks_of_run(self.hooks, principal.name)
        read = {file.attachment.sha256: file.data for file in files}
        recorder = scope.recorder = self._recorder(scope, options, route, relay=parameters)
        return RelayAgent(
            route,
            scope,
            ToolExecutor(scope),
            RelayView(route, parameters, options.inactivity_s, read),
            LimitEnforcer(structs.replace(self.limits(options), rounds=1)),
            new_id=recorder.draw_id if recorder else new_call_id,
            parameters=parameters,
            repairs=self.settings.relay_repair,
            narrowed=options.narrowed,
            json_answer=JSONAnswer(wanted) if is_structured(wanted := parameters.get("response_format", {})) else None,
        )

    def scope(self, principal: Principal, options: RunOptions, route: ModelRoute, tools: ToolList) -> RunScope:
        """The scope of a run with these tools that works in no workspace. Raises ModeForbidden."""
        gate = self.gate_of(principal, options)
        return RunScope(
            toolbox=Toolbox(tools, gate.decide, principal.name, gate.offer),
            gate=gate,
            tool_context=Context(self.settings.workspace, principal=principal.name),
            approvals=self.runs.approvals,
            run_budget=RunBudget(self.runs.ledger, principal),
            check_not_paused=self.switch.check,
            labels=labels_of_run(self.labels, route, gate, self.sandbox),
        )

    def limits(self, options: RunOptions) -> Limits:
        """The limits of a run: those of its request, else those of the settings."""
        return limits_of(self.settings, options)

    def _bare_folders(self, principal: Principal) -> tuple[Path, Persona, ProjectContext] | None:
        """Return what `_read_folders` does, if it would find no file, as in most workspaces; else None.

        It is done on the event loop: a thread takes ten times the time.

        That looks at no other file system than the one to which it commits: one of a network may hang.
        """
        root, data_dir = self.settings.workspace, self.settings.data_dir
        if not on_one_file_system(root, data_dir) or os.path.lexists(self._persona_folder(principal)):
            return None
        workspace = workspace_of(root, principal)
        return (workspace, NO_PERSONA, NO_PROJECT) if self.project.is_bare(workspace, data_dir) else None

    def _persona_folder(self, principal: Principal) -> str:
        return f"{self.settings.data_dir}/{PERSONAS}/{folder_name(principal)}"  # a Path takes ten times the time

    def _read_folders(self, principal: Principal) -> tuple[Path, Persona, ProjectContext]:
        """Return the principal's workspace, and the texts that a prompt includes of files. Blocks.

        Raises FolderUnsafe, FolderUnusable.
        """
        settings, redacted = self.settings, self.redactor.redact_value
        workspace = workspace_of(settings.workspace, principal)
        return (
            workspace,
            redacted(persona_in(self._persona_folder(principal))),
            redacted(self.project.context(workspace, settings.data_dir)),
        )


def limits_of(settings: Settings, options: RunOptions) -> Limits:
    """Return the limits of a run: those of its request, else those of the settings."""
    return Limits(
        options.max_rounds or settings.max_rounds,
        options.max_calls or settings.max_calls,
        options.max_tokens or settings.max_run_tokens,
        options.time_limit_s or settings.run_time_limit_s,
    )


def _lines(options: RunOptions, guards: str) -> str:
    """The lines of the prompt that are of this run alone."""
    lines = (guards, PLAN_FIRST if options.plans else "", READ_ONLY if options.read_only else "")
    return "\n\n".join(filter(None, lines))

"""One call that may be run: its time is taken, its start made durable, its tool read to the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from app.budget.kinds import BudgetSpent
from app.budget.run_budget import RunBudget, ToolTime
from app.checkpoints.call_changes import CallEvents
from app.checkpoints.workspace_scans import RunOwner
from app.core.attachments import File
from app.core.events import AgentEvent, PlanUpdated, ToolFinished, ToolProgress, ToolStarted, ToolTask
from app.core.messages import AskedCall
from app.documents.call_documents import CallDocuments
from app.memory.call_memory import CallMemory
from app.policy.questions import Questions
from app.policy.secret_rights import bound_to
from app.runs.emitter import Emit, Emitter
from app.runs.run_scope import ParentCall, RunScope, both
from app.secrets.sources import SecretUnavailable
from app.storage.files.kinds import file_of
from app.storage.people.secrets import SecretUsed
from app.transcript.conversation import STOPPED, Conversation
from tools.base.access import RemoteTask
from tools.base.outcome import Progress, Result
from tools.base.output_buffer import OutputBuffer
from tools.base.permit import Permit
from tools.mcp.apps import App
from tools.process.process_tree import run_shielded
from tools.sandbox.sandbox import secrets_refusal
from tools.tool import Context, Tool

PRINTED = "It had printed:"


class PermittedCall(Struct, frozen=True):
    """A call that may be run. `permit` is a person's yes to it, `note` stands before its result."""

    call: AskedCall
    permit: Permit | None = None
    note: str = ""


class Outcome(Struct, frozen=True):
    """The tool's whole result. `untrusted`: it may hold text of third parties. `written`: its output as the program
    wrote it, if a screen shows something else."""

    finished: ToolFinished
    untrusted: bool
    written: str | None = None
    pictures: Sequence[File] = ()
    app: App | None = None


class Siblings(Struct):
    """The calls that run concurrently. `_holding` of them have reserved tool time.

    `outcomes`, by call, are there at once, also those of calls that were stopped with something printed.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _holding: int = 0
    _one_ended: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def time(self, run_budget: RunBudget, limit_s: float, conversation: Conversation) -> AsyncIterator[ToolTime]:
        """Hold tool time; wait for siblings if only they hold the rest. Raises BudgetSpent, StoreFailed."""
        while True:
            try:
                running = await run_budget.tool_time(limit_s, conversation)
                break
            except BudgetSpent:
                if not self._holding:
                    raise
                await self._one_ended.wait()
        self._holding += 1
        try:
            with running:
                yield running
        finally:
            self._holding -= 1
            self._one_ended.set()
            self._one_ended = asyncio.Event()


class ToolCall(Struct, frozen=True):
    """Runs any call of a run."""

    run: str
    conversation: Conversation
    scope: RunScope

    def stream(self, cleared: PermittedCall, siblings: Siblings) -> AsyncGenerator[AgentEvent | Outcome, None]:
        """Return its events, and the outcome at the end. Raises BudgetSpent, Paused, StoreFailed."""
        emitter = Emitter[AgentEvent | Outcome]()
        return emitter.stream(partial(self._run_in_budget, cleared, siblings, emitter.emit))

    async def _run_in_budget(
        self, cleared: PermittedCall, siblings: Siblings, emit: Emit[AgentEvent | Outcome]
    ) -> None:
        call = cleared.call
        async with self._report_changes(call, emit):
            limit_s = self.scope.tool_context.time_limit_s
            async with siblings.time(self.scope.run_budget, limit_s, self.conversation) as running:
                self.scope.check_not_paused()
                async with self._labelled(call):
                    if self.conversation.begin(call):
                        await emit(ToolStarted(call.id, call.name, call.arguments, call.dialect))
                    await self.conversation.stored()  # with its time: after a kill it must not be run again
                    self.scope.gate.wrote(self.scope.toolbox.tool(call.name))
                    await self._steps(cleared, running, siblings.outcomes, emit)
        if outcome := siblings.outcomes.get(call.id):
            await emit(outcome)

    @asynccontextmanager
    async def _report_changes(self, call: AskedCall, emit: Emit[AgentEvent | Outcome]) -> AsyncIterator[None]:
        """Look at the workspace before and after a call that may write in it, and report what it has changed.

        The second look follows the call's time, which a job of the call may need. What a call that was stopped has
        changed is only logged: nothing waits for its events any more.
        """
        if not self.scope.toolbox.may_write(call.name):
            yield
            return
        owner = RunOwner(self.run, self.conversation.session, self.scope.gate.principal.name)
        events = CallEvents()
        try:
            async with self.scope.changes.around(owner, call.id, events):
                while events:
                    await emit(events.pop(0))
                yield
            while events:
                await emit(events.pop(0))
        finally:
            for event in events:
                self.conversation.log_event(event)

    @asynccontextmanager
    async def _labelled(self, call: AskedCall) -> AsyncIterator[None]:
        """Add the labels of what the call may read, stored with its start, and those that came up meanwhile."""
        if self.scope.labels is None:
            yield
            return
        tool = self.scope.toolbox.tool(call.name)
        await self.scope.labels.begin_call(call, tool)
        try:
            yield
        finally:
            await run_shielded(self.scope.labels.end_call(call, tool))

    async def _steps(
        self, cleared: PermittedCall, running: ToolTime, outcomes: dict[str, Outcome], emit: Emit[AgentEvent | Outcome]
    ) -> None:
        """Run the tool, and show its progress."""
        call, started = cleared.call, time.monotonic()
        tool = self.scope.toolbox.tool(call.name)
        context = await self._with_secrets(self._context(running, call.id), call, tool)
        steps = self.scope.toolbox.run(call.name, call.arguments, context, cleared.permit)
        redactors = self.conversation.redactor, *self.scope.guards.redactors
        with self.scope.outputs.writing(self.run, call.id, redactors) as written:
            result: Result | None = None
            try:
                async with aclosing(steps) as seen:
                    while step := await written.next(seen):
                        match step:
                            case Progress():
                                written.output, written.type_in = step.output, step.type_in
                                written.resize = step.resize
                                await emit(progress_event(call.id, step, written.tail(step.tail)))
                                await running.go_on()
                            case Result():
                                self.scope.gate.wrote(tool)
                                result = step
                if result is None and written.is_stopped:
                    result = stopped_by_person(written.output, time.monotonic() - started)
            finally:
                if result := result or stopped(written.output):
                    outcomes[call.id] = self._outcome(cleared, result, time.monotonic() - started, written.output)

    def _outcome(
        self, cleared: PermittedCall, result: Result, duration_s: float, output: OutputBuffer | None
    ) -> Outcome:
        call, text, duration_s = cleared.call, cleared.note + result.text, round(duration_s, 3)
        finished = ToolFinished(
            call.id,
            name=call.name,
            ok=result.ok,
            text=text,
            duration_s=duration_s,
            exit_code=result.exit_code,
            advice=result.advice or None,
            structured=result.structured if self.scope.is_direct else None,
        )
        if output and output.bytes > self.scope.results.characters:
            finished = replace(finished, lines=output.lines, bytes=output.bytes)
        tool = self.scope.toolbox.tool(call.name)
        untrusted = result.untrusted or (tool is not None and tool.untrusted)
        if self.scope.labels and result.labels:
            self.scope.labels.state(call, result.labels)
        return Outcome(finished, untrusted, raw_of(output), [file_of(data) for data in result.pictures], result.app)

    def _context(self, running: ToolTime, call: str) -> Context:
        scope = self.scope
        parent = ParentCall(
            run=self.run,
            call=call,
            conversation=self.conversation,
            scope=scope,
            time_limit_s=running.limit_s,
            untimed=running.waiting,
        )
        helpers, sessions = scope.delegation(parent) if scope.delegation else (None, None)
        waiting = both(scope.waiting, running.waiting)
        questions = Questions(self.run, scope.approvals, scope.gate, self.conversation, waiting)
        return replace(
            scope.tool_context,
            session=self.conversation.session,
            run=self.run,
            call=call,
            window=scope.terminals.window(self.run),
            time_limit_s=running.limit_s,
            ask=None if scope.gate.policy.unattended else questions,
            result=scope.results.of(self.conversation),
            show_plan=self._show_plan,
            accept_plan=scope.gate.act,
            documents=CallDocuments(scope.documents, self.conversation, call) if scope.documents else None,
            memory=CallMemory(scope.memory, self.conversation, scope.labels, call) if scope.memory else None,
            knowledge=scope.knowledge,
            helpers=helpers,
            sessions=sessions,
            task=self.conversation.logged_tasks.get(call),
            keep_task=partial(self._keep_task, call),
            goes_on=lambda: self.conversation.goes_on,
            result_characters=scope.results.characters,
            of_app=scope.gate.policy.of_app,
        )

    async def _with_secrets(self, context: Context, call: AskedCall, tool: Tool | None) -> Context:
        """Return the context with the secrets that the call goes with, or why it cannot have them."""
        scope = self.scope
        rights = scope.gate.secrets(tool, call.arguments)
        context = replace(context, bound=bound_to(rights))
        if not rights or scope.secrets is None:  # a replay runs nothing
            return context
        if refusal := secrets_refusal(context.sandbox):
            return replace(context, withheld=refusal)
        try:
            secrets = await scope.secrets.of_call(rights)
        except SecretUnavailable as failure:
            return replace(context, withheld=str(failure))
        for right in rights:
            self.conversation.record(SecretUsed(right.name, time.time()))
        return replace(context, secrets=secrets)

    async def _keep_task(self, call: str, task: RemoteTask) -> None:
        self.conversation.log_event(ToolTask(call, **asdict(task)))
        await self.conversation.stored()

    def _show_plan(self, steps: Sequence[Struct]) -> None:
        self.conversation.log_event(PlanUpdated([asdict(step) for step in steps]))


def progress_event(call: str, progress: Progress, tail: list[str]) -> ToolProgress:
    takes, hidden = (True if progress.type_in else None), progress.hides_input or None
    drawn = (progress.output is not None and progress.output.is_drawn) or None
    return ToolProgress(
        call=call,
        elapsed_s=round(progress.elapsed_s, 2),
        tail=tail,
        lines=progress.lines,
        bytes=progress.bytes,
        input=takes,
        hidden=hidden,
        screen=drawn,
        asks=(takes and progress.output is not None and progress.output.asks) or None,
    )


def stopped_by_person(output: OutputBuffer | None, elapsed_s: float) -> Result:
    """Return the result of a call that the person has stopped, while the run goes on."""
    printed = output.text().rstrip() if output else ""
    note = f"[stopped by the person after {elapsed_s:.1f} s: do not repeat it unless they want that]"
    return Result(ok=False, text=f"{printed or '(no output)'}\n{note}")


def stopped(output: OutputBuffer | None) -> Result | None:
    """Return the result of a process that was stopped, if it had printed anything."""
    printed = output.text().rstrip() if output else ""
    return Result(ok=False, text=f"{STOPPED} {PRINTED}\n{printed}") if printed else None


def raw_of(output: OutputBuffer | None) -> str | None:
    raw = output.written() if output else None
    return None if output is None or raw == output.text() else raw

"""Helpers of one call: a run of its own for each, that shares the limits of the run above and ends with its call.

The call's generator owns the helper. Whatever closes it (the run or the call is cancelled, the deadline, the kill
switch, the server's end) cancels the helper and waits until it is gone; its own helpers go in the same way. In the next
server the run makes its call again, which finds the helper that it had begun, and goes on with it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct
from msgspec.structs import replace

from app.budget.budgets import RequestDenied
from app.budget.kinds import BudgetSpent
from app.budget.side_query import SideQuery
from app.config.folders import FolderUnusable
from app.core.data_delimiters import as_data
from app.core.helper_events import HelperFinished, HelperStarted
from app.core.messages import Message
from app.models.endpoints.failover import ModelRoute
from app.models.endpoints.model_registry import UnknownModel
from app.policy.gate import Gate
from app.runs.agent import Agent
from app.runs.composition.refusals import UNFIT
from app.runs.delegation.composing import (
    Server,
    chosen_names,
    inherited,
    is_tainted,
    labels_of,
    labels_of_sessions,
    usable_names,
)
from app.runs.delegation.helper_view import HelperView
from app.runs.delegation.shared_limits import Member, ParentLimits, SharedLimits
from app.runs.recovery.left_off import ABANDONED, SUSPENDED
from app.runs.recovery.state import left_off
from app.runs.run_options import RunOptions
from app.runs.run_scope import ParentCall, both
from app.storage.changes import StoreFailed
from app.storage.runs import HelperRow, RunRow
from app.transcript.run_request import ParentRun, RunRequest, Stopping
from tools.base.outcome import Progress, Result, ToolFailed
from tools.base.pause_check import Paused
from tools.builtin.delegation import DELEGATE
from tools.builtin.session_tools import SEND

PROGRESS_S = 0.5  # least time between two reports of progress
ANSWER_TOKENS = 4_096
ASKED = "Another model asks you one question. Answer it directly and completely; you have no tools."
GONE = "The helper of this call was lost with its server; what it had done by then is unknown."
REFUSALS = (*UNFIT, BudgetSpent, Paused, Stopping, FolderUnusable)


class CallHelpers(Struct, frozen=True):
    """`options` and `limits` are those of the parent's run. Implements `tools.base.access.HelperAccess`."""

    server: Server
    parent: ParentCall
    options: RunOptions
    limits: SharedLimits
    slots: asyncio.Semaphore

    async def delegate(
        self, task: str, tools: Sequence[str] | None, model: str | None
    ) -> AsyncGenerator[Progress | Result, None]:
        """Run a helper to its end. Closing the generator stops it."""
        with self.parent.untimed():
            known = await self._known()
            depth = known.depth if known else await self._next_depth()
            if not known:
                self._count()
            async with self.slots:
                started = time.monotonic()
                seen = 0
                agent = await self._agent(tools, model, depth)
                if known:
                    helper, seen = await self._take_up(agent, known)
                else:
                    helper = await self._start(agent, task, depth)
                async with aclosing(self._watched(helper, agent, depth, started, seen)) as steps:
                    async for step in steps:
                        yield step

    async def ask_model(self, question: str, model: str | None) -> str:
        """Return the answer of a model, as data."""
        parent = self.parent
        models = self.server.models
        route = self._route(model)
        route = route if model else models.utility(route)
        if parent.scope.labels and route.clearance:  # labelled data goes to no server that may not have it
            route.clearance.labels = parent.scope.labels.labels
        query = SideQuery(route, parent.scope.run_budget, route, parent.time_limit_s)
        messages = [Message("system", ASKED), Message("user", question)]
        reply = query.reply()
        try:
            with parent.untimed():
                answer = await query.put(
                    messages, reply, parent.scope.totals, parent.conversation, most_tokens=ANSWER_TOKENS
                )
        except (BudgetSpent, RequestDenied) as refused:
            raise ToolFailed(str(refused)) from refused
        parent.conversation.log_event(answer.usage)
        text = parent.conversation.redactor.redact(reply.shown.strip())
        if not text:
            raise ToolFailed(f"The model {answer.trouble or 'gave no answer'}. Go on without it.")
        note = f"\n[the answer is not complete: the model {answer.trouble}]" if answer.trouble else ""
        return as_data(f"Answer of {route.model}", text) + note

    async def _known(self) -> HelperRow | None:
        """Return the helper that this call had begun in an earlier server."""
        parent = self.parent
        if parent.call not in parent.conversation.logged_starts:
            return None
        helpers = await self.server.store.helpers(parent.conversation.session)
        return next((one for one in helpers if (one.parent_run, one.call) == (parent.run, parent.call)), None)

    async def _take_up(self, agent: Agent, known: HelperRow) -> tuple[RunRow, int]:
        """Go on with a helper that has not ended. Return it, and its log's last number. Raises ToolFailed."""
        store, runs = self.server.store, self.server.runs
        seen, row = await store.last_seq(known.run), await store.run(known.run)
        if row is None:
            raise ToolFailed(GONE)
        if row.ended is None and runs.takes_up_helpers and not await runs.is_active(row.id):
            left = await left_off(store, row, agent, self.parent.time_limit_s)
            if left is None:
                raise ToolFailed(GONE)
            agent.scope.totals = left.totals
            await runs.go_on(row, agent, left)
        return row, seen

    async def _next_depth(self) -> int:
        session = self.parent.conversation.session
        most = self.server.settings.helper_depth
        row = await self.server.store.helper(session)
        depth = row.depth + 1 if row else 1
        if depth > most:
            raise ToolFailed(f"Helpers have no helpers here (helper_depth: {most}). Do it yourself.")
        if await self.server.store.owner_of(session) is None:
            raise ToolFailed("Nothing is kept of this conversation, so it has no helpers. Do it yourself.")
        return depth

    def _count(self) -> None:
        """Count the helper against the limits of the person's run. Raises ToolFailed."""
        root = self.limits.root
        most = self.server.settings.max_helpers
        if root.begun >= most:
            raise ToolFailed(f"This run has begun {most} helpers, which is the most (max_helpers). Do it yourself.")
        if over := self.limits.over(self.parent.scope.totals, 0):
            raise ToolFailed(f"No helper can begin: this run nears its end ({over}). Answer from what you know.")
        root.begun += 1

    def _route(self, model: str | None) -> ModelRoute:
        try:
            return self.server.models.route(model, self.parent.scope.gate.principal.name)
        except UnknownModel as unknown:
            raise ToolFailed(str(unknown)) from unknown

    async def _agent(self, tools: Sequence[str] | None, model: str | None, depth: int) -> Agent:
        """Compose the helper's agent, with at most the parent's rights. Raises ToolFailed."""
        parent, gate = self.parent, self.parent.scope.gate
        without = {SEND} | ({DELEGATE} if depth >= self.server.settings.helper_depth else set())
        names = chosen_names(usable_names(parent, without), tools)
        options = inherited(parent, self.options, names, model)
        above = ParentLimits(self.limits, lambda: parent.scope.totals, parent.scope.tool_context.workspace)
        try:
            agent = await self.server.agent(gate.principal, options, above=above)
        except REFUSALS as refused:
            raise ToolFailed(f"The helper cannot begin: {refused}") from refused
        agent.first_contact = None  # its tools are the parent's, which has waited for them
        _narrow(agent.scope.gate, gate, tainted=is_tainted(parent))
        if evidence := gate.policy.evidence:  # the person has written to the run above, and not to the helper
            agent.scope.given = (*agent.scope.given, *evidence.words)
        agent.scope.waiting = both(parent.scope.waiting, agent.scope.waiting)
        return agent

    async def _start(self, agent: Agent, task: str, depth: int) -> RunRow:
        """Begin the helper's run, so that it is known even if the call is stopped meanwhile. Raises ToolFailed."""
        parent, policy = self.parent, self.parent.scope.gate.policy
        options = inherited(parent, self.options, [tool.name for tool in agent.toolbox.usable], None)
        above = ParentRun(parent.conversation.session, parent.run, parent.call, depth)
        turn = RunRequest(
            task,
            time_limit_s=parent.time_limit_s,
            policy=options.policy(),
            asked=False,
            beside=lambda helper: [above.row(helper)],
            helper_of=above,
            untrusted=is_tainted(parent),
            labels=labels_of(parent),
            disabled=json.dumps(policy.disabled),
            traceparent=self.server.runs.ledger.observers.traceparent(parent.run, parent.call),
        )
        beginning = asyncio.ensure_future(self.server.runs.start(agent, parent.scope.gate.principal, turn))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            with suppress(*REFUSALS, StoreFailed):
                await self._stop((await beginning).id)
            raise
        except REFUSALS as refused:
            raise ToolFailed(f"The helper cannot begin: {refused}") from refused

    async def _stop(self, helper: str) -> None:
        why = self.server.runs.stopping(self.parent.run) or "cancelled"
        await self.server.runs.cancel(helper, why)

    async def _watched(
        self, helper: RunRow, agent: Agent, depth: int, started: float, seen: int
    ) -> AsyncGenerator[Progress | Result, None]:
        log = self.parent.conversation.log_event
        call = self.parent.call
        tools = [tool.name for tool in agent.toolbox.offered]
        if not seen:
            log(
                HelperStarted(
                    call=call,
                    helper=helper.id,
                    helper_session=helper.session,
                    model=agent.provider.model,
                    tools=tools,
                    depth=depth,
                )
            )
        view = HelperView(helper.id, call)
        limits = agent.discipline.limits
        assert isinstance(limits, SharedLimits)
        member = Member(lambda: agent.totals, limits.family)
        self.limits.family.under_way.append(member)
        try:
            async with aclosing(self._progress(view, helper.id, started, seen)) as steps:
                async for step in steps:
                    yield step
        finally:
            await self._stop(helper.id)
            self.limits.family.leave(member)
            totals = agent.totals
            usage = {"prompt_tokens": totals.prompt_tokens, "completion_tokens": totals.completion_tokens}
            reason = view.reason or await self._state(helper.id)
            if self.server.runs.stopping(self.parent.run) not in (SUSPENDED, ABANDONED):  # else it goes on
                log(
                    HelperFinished(
                        call=call,
                        helper=helper.id,
                        reason=reason,
                        rounds=totals.rounds,
                        calls=totals.calls_run,
                        usage=usage,
                    )
                )
        labels = await labels_of_sessions(self.parent, helper.session)
        result = _result(view, helper.id, untrusted=await self.server.store.tainted(helper.session))
        yield replace(result, labels=labels)

    async def _progress(
        self, view: HelperView, helper: str, started: float, seen: int
    ) -> AsyncGenerator[Progress, None]:
        shown_at = 0.0
        async with aclosing(self.server.runs.watch(helper, 0)) as pages:
            async for rows in pages:
                for row in rows:
                    approval = view.read(row)
                    if approval and row.seq > seen:
                        self.parent.conversation.log_event(approval)
                        shown_at = 0.0
                now = time.monotonic()
                if now - shown_at >= PROGRESS_S:
                    shown_at = now
                    yield Progress(now - started, view.tail, view.lines, view.bytes)

    async def _state(self, helper: str) -> str:
        with suppress(StoreFailed):
            row = await self.server.store.run(helper)
            return row.state if row else "deleted"
        return "unknown"


def _narrow(gate: Gate, parent: Gate, *, tainted: bool) -> None:
    """Take the state of the parent's gate over, but for its grants."""
    gate.disable(parent.policy.disabled)
    if parent.policy.planning:
        gate.plan()
    if tainted:
        gate.taint()


def _result(view: HelperView, helper: str, *, untrusted: bool) -> Result:
    """Return the helper's last words between delimiters: they are data, whatever they say they are."""
    text, fields = view.terminal.get("text") or "", view.terminal
    facts = f"rounds: {fields.get('rounds', 0)}, calls: {fields.get('calls', 0)}"
    if fields.get("message"):
        return Result(ok=False, text=f"The helper {helper} failed ({view.reason}): {fields['message']}")
    if not text:
        return Result(ok=False, text=f"The helper {helper} ended without an answer: {view.reason} ({facts}).")
    note = f"[helper {helper}: {view.reason}, {facts}]"
    return Result(ok=True, text=f"{as_data('Words of the helper', text)}\n{note}", untrusted=untrusted)

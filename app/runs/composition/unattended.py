"""Runs that the server starts by itself: continued after a restart, for the end of a job, or at a scheduled time.

Each has the current rights of its principal, and its policy says that no person has requested it: so the limits of
follow-ups hold for what follows from it.
"""

from __future__ import annotations

import time

from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from app.budget.kinds import SOON_S, BudgetSpent
from app.core.events import Notice
from app.core.rules import ApprovalMode
from app.policy.current_rights import principal_named
from app.profiles.pinned import NOTHING
from app.runs.agent import Agent
from app.runs.composition.profiled_options import narrowing_of
from app.runs.composition.refusals import UNFIT
from app.runs.direct_call import direct_agent
from app.runs.follow_up import LAST, ROUNDS, NoRoom, room_in
from app.runs.run_factory import RunFactory
from app.runs.run_options import RunOptions
from app.storage.principals import Principal
from app.storage.runs import ALL, RunRow
from app.transcript.run_request import (
    HELPER,
    SENT_BY,
    UNASKED,
    IdempotencyKey,
    NotFound,
    RunRequest,
    direct_call_of,
    has_mark,
    speaker_of,
)
from app.transcript.run_totals import totals_of
from tools.base.rights import Risk
from tools.catalogue import HELPER_TOOLS, MEMORY, SESSION_TOOLS
from tools.jobs.records import Job

REACHING = frozenset(tool.name for tool in (*MEMORY, *HELPER_TOOLS, *SESSION_TOOLS))


class UnattendedRuns(Struct, frozen=True):
    """Starts and continues runs for which no request waits."""

    factory: RunFactory

    async def start(self, principal: Principal, options: RunOptions, turn: RunRequest) -> RunRow:
        """Start a run with these options, in the session of `turn` or in a new one.

        Raises NotFound if its agent cannot be made, FolderUnusable, BudgetSpent if there are too many of the kind, and
        as `RunManager.start`.
        """
        agent = await self._agent(principal, options, turn.session)
        agent.scope.gate.takes_grants = not turn.sent_by
        seconds = self.factory.limits(options).seconds
        turn = replace(turn, time_limit_s=seconds, policy=options.policy(), asked=False)
        async with self.factory.runs.peers.lock("background", principal.name):  # two must not both have the last place
            known = turn.key and await self.factory.store.key(principal.name, turn.key.value)
            if not known:
                await self._check_room(principal)
            return await self.factory.runs.start(agent, principal, turn)

    async def _check_room(self, principal: Principal) -> None:
        """Raises BudgetSpent if as many runs as may be are active that no person has requested."""
        active = sum(_is_background(row) for row in await self.factory.runs.of(principal.name))
        if active >= (most := self.factory.settings.max_background_runs):
            message = f"{principal.name} has {active} active background runs and may have {most} (max_background_runs)."
            raise BudgetSpent("runs", message, time.time() + SOON_S)

    async def check(self, principal: Principal, options: RunOptions) -> None:
        """Raises NotFound if no run with these options could begin now."""
        await self._agent(principal, options)

    async def reading_tools(self, principal: Principal, options: RunOptions, session: str | None) -> list[str]:
        """Names of the tools that only read, of those that such a run would have. Raises NotFound.

        Without those that keep memories, spend on helpers or reach other sessions: a webhook's body must not by itself.
        """
        try:
            options = await self.factory.resolved(principal, options, session)
        except UNFIT as unfit:
            raise NotFound(str(unfit)) from unfit
        gate = self.factory.gate(principal, ApprovalMode.DENY, narrowing=narrowing_of(options))
        window = self.factory.models.default.counter.known_window
        offered = [tool for tool in gate.offer(self.factory.tools) if tool.least_window <= window]
        return [tool.name for tool in offered if tool.risk is Risk.READ and tool.name not in REACHING]

    async def restored_agent(self, row: RunRow) -> tuple[Agent, float]:
        """The agent that a run was started with, and its time limit. Raises NotFound if it cannot be made any more."""
        principal = await principal_named(self.factory.store, row.principal, speaker_of(row))
        options = stored_options(row.policy)
        agent = await self._agent(principal, options, row.session)
        agent.scope.gate.takes_grants = not has_mark(row, SENT_BY)
        if call := direct_call_of(row):
            agent = direct_agent(agent, call)
        return agent, agent.time_limit_within(self.factory.limits(options).seconds)

    async def start_follow_up(self, job: Job, message: str) -> None:
        """Start the run that reports a job's end to its session, once. Raises NoRoom and as `RunManager.start`."""
        store, settings = self.factory.store, self.factory.settings
        last = (await store.runs(job.session))[-1:]  # its options hold on
        principal = await principal_named(store, job.principal, speaker_of(last[0]) if last else "")
        key = IdempotencyKey(f"follow-up\n{job.id}", "")  # no request can have it: theirs are printable
        room = await room_in(job.session, store, settings.max_follow_ups)
        if not room and await store.key(principal.name, key.value) is None:
            raise NoRoom
        rounds = min(ROUNDS, settings.max_rounds, max(1, room.requests))
        options = stored_options(last[0].policy if last else "{}")
        if options.plans and totals_of(await store.events(last[0].id, 0, ALL), ()).has_accepted_plan:
            options = options.model_copy(update={"mode": "act"})
        # Stored so: a restart must not give them back.
        options = options.model_copy(update={"max_rounds": rounds, "client_tools": None, "terminal": None})
        sent_by = job.session if last and has_mark(last[0], SENT_BY) else ""
        notice = Notice("follow_ups", LAST) if room.last else None
        await self.start(principal, options, RunRequest(message, job.session, key=key, notice=notice, sent_by=sent_by))

    async def _agent(self, principal: Principal, options: RunOptions, session: str | None = None) -> Agent:
        """An agent that no request waits for. Raises NotFound if it cannot be made any more, FolderUnusable."""
        try:
            return await self.factory.agent(principal, options, session)
        except UNFIT as unfit:
            raise NotFound(str(unfit)) from unfit


def _is_background(row: RunRow) -> bool:
    """Return True for a run that neither a person nor the call of another run has begun; those have other limits."""
    return has_mark(row, UNASKED) and not has_mark(row, HELPER) and not has_mark(row, SENT_BY)


def stored_options(policy: str) -> RunOptions:
    """The options of an earlier run. Raises NotFound.

    What was valid then may not be now: a limit may have been lowered, and a redacted secret is longer than a short one.
    """
    options = unpinned_options(policy)
    return options if options.pinned else options.with_pinned({}, NOTHING)  # profiles of now are for new runs


def unpinned_options(policy: str) -> RunOptions:
    """The options of a run that begins, under the profiles of now. Raises NotFound."""
    try:
        return RunOptions.of_policy(policy)
    except ValidationError as invalid:
        where = ", ".join(str(error["loc"][0]) for error in invalid.errors())
        raise NotFound(f"The run's options are not valid any more: {where}") from invalid

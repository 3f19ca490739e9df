"""The second phase: the run manager, and what runs report to: traces, MCP servers, notifications, hooks."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from msgspec import Struct

from app.budget.budgets import Ledger, default_budget, guest_budget
from app.config.settings import Settings
from app.hooks.hooks import Hooks, informing
from app.hooks.run_hooks import RunHooks
from app.mcp.servers import McpServers
from app.notifications.service import Notifications, delivering
from app.policy.approvals import Approvals
from app.runs.housekeeping import Housekeeping
from app.runs.run_manager import RunManager
from app.telemetry.opening import opened_telemetry
from routes.replication.one_server import RunParts
from routes.startup.storage import StoragePhase
from tools.base.tasks import in_background


class ManagerPhase(Struct, frozen=True, kw_only=True):
    mcp: McpServers
    runs: RunManager
    notifications: Notifications
    hooks: Hooks | None


@asynccontextmanager
async def opened_run_manager(settings: Settings, storage: StoragePhase) -> AsyncGenerator[ManagerPhase, None]:
    """Raises StoreFailed, SettingsError."""
    store, journal, switch, peers = storage.store, storage.journal, storage.switch, storage.replication.peers
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        traced = await enter(opened_telemetry(settings, storage.redactor, os.environ))
        mcp = McpServers(
            settings,
            store,
            storage.redactor,
            environ=os.environ,
            check_paused=switch.check,
            observe=traced.operations,
            vault=storage.vault,
            secrets=storage.secrets,
            peers=peers,
        )
        await enter(mcp.opened())
        notifications = Notifications(settings, store, journal, peers=peers)
        hooks = Hooks(settings.hooks, storage.redactor, os.environ) if settings.hooks else None
        parts = RunParts(
            store=store,
            journal=journal,
            switch=switch,
            approvals=Approvals(store, settings.approval_time_limit_s, settings.grant_time_limit_s or None),
            outboxes=[notifications.outbox.of_run],
            make_ledger=partial(
                Ledger,
                store,
                default_budget(settings),
                watch=notifications.outbox.budget_used,
                model_checks=partial(RunHooks, hooks) if hooks else None,
                observers=traced.observers,
                guests=guest_budget(settings),
            ),
            metrics=storage.metrics,
        )
        runs = await enter(storage.replication.opened_runs(parts))
        await enter(delivering(notifications, peers, storage.vault))
        if hooks:
            await enter(informing(hooks))
        switch.on_change(runs.notifier.wake_all, mcp.manager.resume)
        housekeeping = Housekeeping(store, settings.log_join_after_s, settings.keep_days, settings.audit_days)
        await enter(in_background(peers.on_duty("housekeeping", housekeeping.run_forever), "housekeeping"))
        yield ManagerPhase(mcp=mcp, runs=runs, notifications=notifications, hooks=hooks)

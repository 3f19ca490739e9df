"""The reach of one run: which of its calls get helpers and other sessions, by the settings."""

from __future__ import annotations

import asyncio

from app.runs.delegation.call_helpers import CallHelpers
from app.runs.delegation.call_sessions import CallSessions
from app.runs.delegation.composing import Server
from app.runs.delegation.shared_limits import ParentLimits, SharedLimits
from app.runs.discipline.limits import Limits
from app.runs.run_options import RunOptions
from app.runs.run_scope import Delegation, ParentCall, Reach


def delegation_of(server: Server, options: RunOptions, limits: Limits) -> Delegation | None:
    """Return the reach of a run's calls with these options; None if all of it is switched off."""
    if not (server.settings.helpers or server.settings.session_tools):
        return None
    slots = asyncio.Semaphore(server.settings.helpers_parallel)  # for the helpers that work at a time

    def reach(parent: ParentCall) -> Reach:
        return (
            CallHelpers(server, parent, options, limits, slots) if isinstance(limits, SharedLimits) else None,
            CallSessions(server, parent, options) if server.settings.session_tools else None,
        )

    return reach


def limits_of(limits: Limits, above: ParentLimits | None, *, shared: bool) -> Limits:
    """Return limits that count helpers, where there may be some."""
    if not shared:
        return limits
    return SharedLimits(limits.rounds, limits.calls, limits.tokens, limits.seconds, above=above)

"""The reach of one run: which of its calls get helpers and other sessions, by the settings."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from app.runs.delegation.call_helpers import CallHelpers
from app.runs.delegation.call_sessions import CallSessions
from app.runs.delegation.composing import Server
from app.runs.delegation.shared_limits import ParentLimits, SharedLimits
from app.runs.discipline.limits import Limits
from app.runs.run_options import RunOptions
from app.runs.run_scope import ParentCall
from tools.base.access import HelperAccess, SessionAccess


class RunDelegation(Struct):
    """Implements `app.runs.run_scope.Delegation`. `slots` bounds the helpers that work at a time."""

    server: Server
    options: RunOptions
    limits: Limits
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    def helpers(self, parent: ParentCall) -> HelperAccess | None:
        if not isinstance(self.limits, SharedLimits):
            return None
        return CallHelpers(self.server, parent, self.options, self.limits, self.slots)

    def sessions(self, parent: ParentCall) -> SessionAccess | None:
        return CallSessions(self.server, parent, self.options) if self.server.settings.session_tools else None


def delegation_of(server: Server, options: RunOptions, limits: Limits) -> RunDelegation | None:
    """Return the reach of a run with these options; None if all of it is switched off."""
    settings = server.settings
    if not (settings.helpers or settings.session_tools):
        return None
    return RunDelegation(server, options, limits, asyncio.Semaphore(settings.helpers_parallel))


def limits_of(limits: Limits, above: ParentLimits | None, *, shared: bool) -> Limits:
    """Return limits that count helpers, where there may be some."""
    if not shared:
        return limits
    return SharedLimits(limits.rounds, limits.calls, limits.tokens, limits.seconds, above=above)

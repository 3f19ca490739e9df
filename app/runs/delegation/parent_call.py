"""The call of a run that reaches for helpers, other models or other sessions: all that they inherit from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from app.budget.run_budget import RunBudget
from app.labels.run_labels import RunLabels
from app.policy.gate import Gate
from app.transcript.conversation import Conversation
from app.transcript.run_totals import RunTotals
from tools.base.access.helpers import HelperAccess
from tools.base.access.sessions import SessionAccess
from tools.toolbox import Toolbox


class ParentCall(Struct, frozen=True):
    """`waiting`: the run's time stands still in it; `untimed`: what happens in it is no time of a tool."""

    run: str
    call: str
    conversation: Conversation
    toolbox: Toolbox
    gate: Gate
    run_budget: RunBudget
    totals: RunTotals
    time_limit_s: float
    waiting: Callable[[], AbstractContextManager[None]]
    untimed: Callable[[], AbstractContextManager[None]]
    labels: RunLabels | None = None


class Delegation(Protocol):
    """The reach of one run's calls; None where it is switched off."""

    def helpers(self, parent: ParentCall) -> HelperAccess | None: ...

    def sessions(self, parent: ParentCall) -> SessionAccess | None: ...

"""The options of a run that another run begins, never more than its own, and the server that begins it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from app.config.settings import Settings
from app.core.rules import ApprovalMode, WhenAbsent
from app.models.endpoints.model_registry import Models
from app.runs.agent import Agent
from app.runs.delegation.shared_limits import ParentLimits
from app.runs.run_manager import RunManager
from app.runs.run_options import RunOptions
from app.runs.run_scope import ParentCall
from app.storage.principals import Principal
from app.storage.store import Store
from tools.base.outcome import ToolFailed

STRICTEST_FIRST = (ApprovalMode.DENY, ApprovalMode.ASK, ApprovalMode.SANDBOXED, ApprovalMode.AUTO)
MOST_NAMED = 20


class Server(Protocol):
    """The part of `RunFactory` that delegation needs."""

    @property
    def settings(self) -> Settings: ...

    @property
    def store(self) -> Store: ...

    @property
    def runs(self) -> RunManager: ...

    @property
    def models(self) -> Models: ...

    async def agent(
        self, principal: Principal, options: RunOptions, session: str | None = None, above: ParentLimits | None = None
    ) -> Agent: ...


def usable_names(parent: ParentCall, without: Collection[str]) -> list[str]:
    """Return the tools that the parent may use now and can pass on: none of its client's, which only that can run."""
    usable = parent.scope.toolbox.usable
    return [one.name for one in usable if not one.handed and not one.plans and one.name not in without]


def chosen_names(usable: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """Return the tools of a helper: those that are wanted. Raises ToolFailed if one of these is not usable."""
    if wanted is None:
        return list(usable)
    if missing := [name for name in wanted if name not in usable]:
        there = ", ".join(usable[:MOST_NAMED]) or "none"
        raise ToolFailed(
            f"A helper has at most your own tools, and there is no {', '.join(map(ascii, missing[:5]))} among those "
            "that it can have",
            f": {there}.",
        )
    return list(dict.fromkeys(wanted))


def inherited(parent: ParentCall, options: RunOptions, tools: list[str], model: str | None) -> RunOptions:
    """Return the options of a run that `parent` begins: those of its own run, with these tools and this model."""
    policy = parent.scope.gate.policy
    changes = {
        "tools": tools,
        "model": model or options.model,
        "approval": policy.mode,
        "when_absent": policy.when_absent,
        "mode": "act",  # while the parent only plans the helper's gate does, too, and no plan is accepted below it
        "client_tools": None,
        "terminal": None,
        "channel": None,  # no person reads its answer
        "max_rounds": None,  # shared
        "max_calls": None,
        "max_tokens": None,
        "time_limit_s": parent.time_limit_s,
    }
    return options.model_copy(update=changes)


def stricter(one: ApprovalMode, other: ApprovalMode) -> ApprovalMode:
    """Return the stricter of two approval modes."""
    return min(one, other, key=STRICTEST_FIRST.index)


def stricter_absence(one: WhenAbsent, other: WhenAbsent) -> WhenAbsent:
    """Return `deny` if one of them is."""
    return WhenAbsent.DENY if WhenAbsent.DENY in (one, other) else WhenAbsent.WAIT


def is_tainted(parent: ParentCall) -> bool:
    """Return True if the parent's conversation holds untrusted text, whether its gate minds or not."""
    return parent.scope.gate.policy.tainted or any(message.untrusted for message in parent.conversation.messages)


def labels_of(parent: ParentCall) -> tuple[str, ...]:
    """Return the sensitivity labels of the parent's conversation, for what is made of it elsewhere."""
    return tuple(sorted(parent.scope.labels.labels)) if parent.scope.labels else ()


async def labels_of_sessions(parent: ParentCall, *sessions: str) -> tuple[str, ...]:
    """Return the labels of sessions whose text the parent is about to read. Raises StoreFailed."""
    if parent.scope.labels is None:
        return ()
    services = parent.scope.labels.services
    return tuple(sorted({label for session in sessions for label in await services.of_session(session)}))

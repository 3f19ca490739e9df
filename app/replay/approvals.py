"""The people of a replay: each approval is answered as it was then, at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from app.policy.approvals import RUN_ENDED, Approvals
from app.policy.call_rows import QUOTED
from app.policy.grants import Grant
from app.policy.permits.permissions import Permission
from app.policy.reapproval import first_reason
from app.replay.recording import AnswerPart
from app.storage.approvals import ApprovalRow, ApprovalStore
from tools.base.permit import canonical

NOT_ASKED = "nobody: it was not asked then"
NO_STORE = cast("ApprovalStore", None)  # none of its methods is called


class StorelessApprovals(Approvals):
    """Approvals of which nothing is kept; `wait` decides them."""

    def __init__(self, time_limit_s: float | None = None) -> None:
        super().__init__(NO_STORE, time_limit_s)

    async def withdraw(self, run: str, by: str = RUN_ENDED) -> ApprovalRow | None:
        waiting = self._waiting.pop(run, None)
        return replace(waiting[0], state="withdrawn", by=by, decided=time.time()) if waiting else None

    async def permissions(self, principal: str, chosen: Sequence[str] | None = None) -> tuple[Permission, ...]:
        return ()

    async def use(self, permission: Permission, call: str) -> bool:
        return True


class ReplayedApprovals(StorelessApprovals):
    """`answers` by the ids of calls; `grants_then` are the lists of grants of the session, one after each grant, and
    `permissions_then` those of permissions.

    `asked` are the ids of all that was asked about, answered or not. `time_limit_s` is only shown. A call that was not
    asked about then is approved, so that the rest of the run can be compared: that it asks is a difference anyway.
    """

    def __init__(
        self,
        answers: Mapping[str, AnswerPart],
        asked: Collection[str],
        grants_then: Iterable[Sequence[Grant]],
        permissions_then: Iterable[Sequence[Permission]],
        *,
        stop: Callable[[str], None],
        time_limit_s: float | None = None,
    ) -> None:
        super().__init__(time_limit_s)
        self._asked = asked
        self._answers = answers
        self._grants_then = list(grants_then)
        self._permissions_then = list(permissions_then)
        self._given: list[Grant] = []
        self._quoted: list[Grant] = []
        self._stop = stop

    async def wait(self, row: ApprovalRow) -> ApprovalRow:
        answer = self._answers.get(row.call)
        if answer is None and row.call in self._asked:  # the run was stopped meanwhile
            self._stop("cancelled")
            return await super().wait(row)
        if answer is None:
            decided = replace(row, state="approved", by=NOT_ASKED, decided=time.time(), scope="once")
        elif answer.decision == "withdrawn" and answer.by == RUN_ENDED:
            self._stop("cancelled")
            return await super().wait(row)
        else:
            edited = None if answer.arguments is None else canonical(answer.arguments)
            decided = replace(
                row,
                state=answer.decision,
                by=answer.by,
                decided=time.time(),
                scope=answer.scope,
                edited=edited,
                note=answer.note,
                door=answer.door,
            )
        self._waiting.pop(row.run, None)
        if decided.scope == "session" and self._grants_then:
            before, self._given = self._given, list(self._grants_then.pop(0))
            if first_reason(row).startswith(QUOTED):
                self._quoted += [one for one in self._given if one not in before and one.fingerprint is not None]
        return decided

    async def permissions(self, principal: str, chosen: Sequence[str] | None = None) -> tuple[Permission, ...]:
        return tuple(self._permissions_then.pop(0)) if self._permissions_then else ()

    async def use(self, permission: Permission, call: str) -> bool:
        return call not in self._asked  # else no use was left then

    async def grants(self, session: str) -> list[Grant]:
        return self._given

    async def grants_of_quotations(self, session: str) -> list[Grant]:
        return self._quoted

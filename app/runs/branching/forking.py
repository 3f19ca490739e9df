"""Forks: a session with the runs of another one up to a cut, which goes on by itself.

What is taken over is fixed at the cut: only runs that have ended. The branch has the parent's title, options, disabled
tools and labels, its files, documents and summaries as of the cut, and no grants: those were given for what the person
saw then. Its conversation is tainted if the text before the cut is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from secrets import token_hex

from msgspec import Struct

from app.checkpoints.scratch import ScratchFolders
from app.core.messages import dump
from app.runs.run_manager import RunManager, no_session
from app.storage.audit import AuditRow
from app.storage.branches import ALWAYS, BranchPart, BranchRow, Fork, RunResults
from app.storage.changes import Change
from app.storage.principals import Principal
from app.storage.runs import KEY_LIFE_S, KeyRow, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.storage.store import Store
from app.transcript.inbox import message_of
from app.transcript.run_request import MAX_LINE, IdempotencyKey, NotFound

TEMPORARY_ENDS = "This conversation is temporary, so it has no branches and no links. Begin an ordinary one for that."
MOST_BRANCHES = 256  # of a conversation
AlsoPut = Callable[[BranchRow, int], Sequence[Change]]
"""Return changes of the transaction that makes a branch; the number is the position of its next message."""


class NotForkable(Exception):
    """The session cannot be forked there. The message says what to do."""


class Cut(Struct, frozen=True):
    """Behind a run, or before it. A branch that goes on in the run has its `results`, and its documents until then."""

    run: str
    is_after: bool
    results: RunResults | None = None
    documents_until: float | None = None


class Forking(Struct, frozen=True):
    runs: RunManager
    store: Store
    scratch: ScratchFolders

    async def fork(self, principal: Principal, session: str, cut: Cut, key: IdempotencyKey | None) -> SessionRow:
        """Make a branch, or find the one that the same key has made.

        Raises NotFound, NotForkable, KeyReused, StoreFailed.
        """
        if key is None:
            return await self._fork(principal, session, cut, None)
        owned = principal.name, key.value
        async with self.runs.peers.lock("key", "\n".join(owned)):
            known = await self.store.key(*owned)
            if known is None or known.created < time.time() - KEY_LIFE_S:
                return await self._fork(principal, session, cut, key)
        key.check(known.body)
        return await self.runs.session(known.run, principal)

    async def _fork(self, principal: Principal, session: str, cut: Cut, key: IdempotencyKey | None) -> SessionRow:
        def also(row: BranchRow, _: int) -> list[Change]:
            return [KeyRow(principal.name, key.value, key.body, row.session, row.created)] if key else []

        await self.runs.session(session, principal)  # else nothing is copied for it
        branch = await self.scratch.copy(f"ses_{token_hex(10)}", principal.name, session)
        try:
            await self.branch(principal, session, cut, branch, also)
        except BaseException:
            if await self.store.owner_of(branch) is None:
                await self.scratch.forget(branch)
            raise
        return await self.runs.session(branch, principal)

    async def branch(self, principal: Principal, session: str, cut: Cut, branch: str, also: AlsoPut) -> None:
        """Make the session `branch`, with the changes that `also` returns.

        Raises NotFound, NotForkable, StoreFailed.
        """
        async with self.runs.peers.lock("session", session):  # it is not deleted meanwhile
            parent = await self.runs.session(session, principal)
            if await self.store.helper(session):
                raise NotForkable("A helper's conversation cannot be forked. Fork the one that it works for.")
            if parent.temporary:
                raise NotForkable(TEMPORARY_ENDS)
            taken, behind = await self._split(session, cut)
            row = await self._row(session, branch, taken)
            if len(await self.store.branches(row.tree)) >= MOST_BRANCHES:
                raise NotForkable(f"The conversation has {MOST_BRANCHES} branches, which is the most. Delete one.")
            position = await self.store.position_behind(session, behind.id if behind else None, [r.id for r in taken])
            why = f"{'after' if cut.is_after else 'before'} {cut.run} of {session}"
            left = await self._left_behind(row.session, taken, position)
            fork = Fork(
                row,
                parts=await self._parts(row, taken),
                position=position,
                before=cut.documents_until or (behind.created if behind else ALWAYS),
                used=(taken[-1].ended or 0.0) if taken else parent.created,
                results=cut.results,
                also=(
                    *([] if parent.id != row.tree else [BranchRow(row.tree, row.tree, "", "", parent.created)]),
                    *left,
                    *also(row, position + len(left)),
                    AuditRow(row.created, principal.name, f"fork {row.session}", "made", why=why, by=principal.name),
                ),
            )
            if not await self.store.fork(fork):
                raise no_session(session)
        for one in (principal.name, session, row.session):
            self.runs.notifier.notify(one)

    async def _split(self, session: str, cut: Cut) -> tuple[list[RunRow], RunRow | None]:
        """The runs that the branch takes over, and the first one that it does not."""
        rows = await self.store.runs(session)
        at = next((place for place, row in enumerate(rows) if row.id == cut.run), None)
        if at is None:
            raise NotFound(f"There is no run {cut.run!r} in session {session}. GET /sessions/{session} lists its runs.")
        at += cut.is_after
        active = next((row for row in rows[:at] if row.ended is None), None)
        if active:
            raise NotForkable(f"Run {active.id} has not ended. Fork before it, wait for its end, or cancel it.")
        return rows[:at], rows[at] if at < len(rows) else None

    async def _row(self, session: str, branch: str, taken: Sequence[RunRow]) -> BranchRow:
        known = await self.store.branch(session)
        after = taken[-1].id if taken else ""
        return BranchRow(branch, known.tree if known else session, session, after, time.time())

    async def _parts(self, row: BranchRow, taken: Sequence[RunRow]) -> list[BranchPart]:
        until: dict[str, float] = {}
        for run in taken:
            until[run.session] = run.created
        return [BranchPart(row.session, place, *part) for place, part in enumerate(until.items())]

    async def _left_behind(self, branch: str, taken: Sequence[RunRow], position: int) -> list[MessageRow]:
        """Messages for runs that ended before they could add them to the history."""
        inboxes = [await self.store.inbox(run.id) for run in taken[-MAX_LINE:]]
        rows = [row for inbox in inboxes for row in inbox]
        return [MessageRow(branch, position + at, row.run, dump(message_of(row))) for at, row in enumerate(rows)]

"""The turns at which the branches of a conversation part."""

from __future__ import annotations

from typing import Any

from app.storage.branches import Branch, BranchRow
from app.storage.runs import RunRow
from app.storage.store import Store

Held = dict[str, list[tuple[float, Branch]]]  # session -> the branches that have its runs until a time


async def partings(store: Store, session: str) -> list[dict[str, Any]]:
    """Return the turns of a session at which it has other branches, in their order, as clients get them.

    Each has the runs that follow `after` in different branches, oldest first; after None, the first ones. Of each run
    it names the session to open to see it: the one that was used last. The first run of a branch names its `parent`,
    the run that stands in its place in the session that it was forked from.
    """
    own = await store.branch(session)
    if own is None:
        return []
    branches = await store.branches(own.tree)
    held = await _held(store, branches)
    found: list[tuple[float, dict[str, Any]]] = []
    for after in {one.after for one in branches if one.parent}:
        last = await store.run(after) if after else None
        if after and (last is None or not await store.holds_run(session, last)):
            continue
        turns = await _turns(store, own, branches, held, last)
        if len(turns) > 1:
            found.append((last.created if last else 0.0, {"after": after or None, "turns": turns}))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


async def _held(store: Store, branches: list[Branch]) -> Held:
    held: Held = {}
    for one in branches:
        for origin, until in await store.parts(one.session):
            held.setdefault(origin, []).append((until, one))
    return held


async def _turns(
    store: Store, own: BranchRow, branches: list[Branch], held: Held, last: RunRow | None
) -> list[dict[str, str]]:
    """The runs that follow `last` in one branch or another, by their time."""
    after = last.id if last else None
    forks = {one.session: one.parent for one in branches if one.after == (after or "") and one.parent}
    following = await store.first_runs([*forks])
    if goes_on := await store.next_run(last.session if last else own.tree, after):
        following.append(goes_on)
    turns, places = list[dict[str, str]](), dict[str, str]()
    for run in sorted({run.id: run for run in following}.values(), key=lambda one: (one.created, one.id)):
        holders = [one for until, one in held.get(run.session, ()) if run.created <= until]
        if holders:
            newest = max(holders, key=lambda one: (one.session == own.session, one.updated, one.session))
            original = places.get(forks.get(run.session, ""))
            turns.append({"run": run.id, "session": newest.session} | ({"parent": original} if original else {}))
            places |= dict.fromkeys([run.session, *(one.session for one in holders)], run.id)
    return turns

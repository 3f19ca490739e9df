"""The line in front of an endpoint: fair between askers, whatever they do."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.endpoints.fair_queue import FairQueue, QueuedRequest

PRINCIPALS = ("ann", "bob", "cy")
# (what, who): somebody comes; somebody's request, the n-th that is there, leaves
STEPS = st.lists(
    st.tuples(st.just("join"), st.sampled_from(PRINCIPALS)) | st.tuples(st.just("leave"), st.integers(0, 50)),
    max_size=60,
)


def invariants(queue: FairQueue, present: list[QueuedRequest], limit: int) -> None:
    serving = [place for place in present if place.active]
    waiting = [place for place in present if not place.active]
    assert queue.under_way == len(serving)
    assert queue.waiting == len(waiting)
    assert len(serving) == min(len(present), limit or len(present))
    assert sorted(place.number for place in waiting) == list(range(1, len(waiting) + 1))
    assert all(place.number == 0 for place in serving)


@given(st.integers(0, 4), STEPS)
def test_nobody_is_lost_and_no_place_is_free_while_somebody_waits(
    limit: int, steps: list[tuple[str, int | str]]
) -> None:
    queue, present = FairQueue(limit), list[QueuedRequest]()
    for _, what in steps:
        if isinstance(what, str):
            present.append(queue.join(what))
        elif present:
            present.pop(what % len(present)).leave()
        invariants(queue, present, limit)
    for place in present:
        place.leave()
        place.leave()  # once more is nothing
    assert (queue.under_way, queue.waiting) == (0, 0)


@given(st.integers(1, 3), st.lists(st.sampled_from(PRINCIPALS), min_size=1, max_size=40), st.data())
def test_who_waits_is_passed_once_by_each_other_at_most(limit: int, comers: list[str], data: st.DataObject) -> None:
    """Between two of one asker's turns no other has two, as long as both wait; one's own are served as they came."""
    queue = FairQueue(limit)
    waiting = {principal: deque[QueuedRequest]() for principal in PRINCIPALS}
    serving: list[QueuedRequest] = []
    passed: dict[str, list[str]] = {
        principal: [] for principal in PRINCIPALS
    }  # who was served while it waited, since its last
    left = deque(comers)
    while left or any(waiting.values()):
        if left and (not serving or data.draw(st.booleans())):
            principal = left.popleft()
            if not waiting[principal]:
                passed[principal].clear()
            waiting[principal].append(queue.join(principal))
        else:
            serving.pop(data.draw(st.integers(0, len(serving) - 1))).leave()
        for principal, places in waiting.items():
            while places and places[0].active:
                serving.append(places.popleft())
                passed[principal].clear()
                for other in (other for other in PRINCIPALS if other != principal and waiting[other]):
                    passed[other].append(principal)
                    assert len(set(passed[other])) == len(passed[other]), "passed twice by the same asker"
            assert not any(place.active for place in places), "the first that came was not the first served"


def test_fifty_runs_of_one_do_not_starve_the_one_of_another() -> None:
    queue = FairQueue(2)
    crowd = [queue.join("ann") for _ in range(50)]
    one = queue.join("bob")
    assert one.number == 1
    crowd[0].leave()
    assert one.active
    assert [place.active for place in crowd[1:4]] == [True, False, False]


def test_the_place_that_is_told_is_the_turn_that_comes() -> None:
    queue = FairQueue(1)
    first = queue.join("ann")
    places = [queue.join(principal) for principal in ("ann", "ann", "bob", "cy", "bob")]
    told = sorted(places, key=lambda place: place.number)
    assert [place.principal for place in told] == ["bob", "cy", "ann", "bob", "ann"]
    served, now = [], first
    for _ in places:
        now.leave()
        [now] = [place for place in places if place.active]
        served.append(now)
    assert served == told


@pytest.mark.anyio
async def test_who_waits_hears_when_half_of_those_ahead_are_gone() -> None:
    queue, heard = FairQueue(1), list[int]()
    ahead = [queue.join("ann") for _ in range(9)]
    place = queue.join("ann")

    async def listen() -> None:
        number = place.number
        while number:
            heard.append(number)
            number = await place.wait_for_move(number)
        heard.append(number)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(listen())
        await asyncio.sleep(0)
        for one in ahead:
            one.leave()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert heard == [9, 4, 2, 1, 0]


def test_slots_that_are_learned_let_more_in_and_never_overrule_the_setting() -> None:
    learned, fixed, unbounded = FairQueue(), FairQueue(1), FairQueue(0)
    for queue in (learned, fixed, unbounded):
        queue.set_slots(2)
        for _ in range(4):
            queue.join("ann")
    assert (learned.under_way, fixed.under_way, unbounded.under_way) == (2, 1, 4)
    learned.set_slots(3)
    assert (learned.under_way, learned.waiting) == (3, 1)
    learned.set_slots(1)
    assert (learned.under_way, learned.waiting) == (3, 1), "what is under way goes on"


def test_servers_that_share_a_limit_have_a_part_each() -> None:
    queue = FairQueue(7)
    queue.share(3)
    requests = [queue.join("ann") for _ in range(8)]
    assert (queue.limit, queue.under_way) == (2, 2)
    queue.share(1)  # the others are gone
    assert (queue.limit, queue.under_way) == (7, 7)
    queue.share(100)
    assert queue.limit == 1
    for request in requests:
        request.leave()
    assert queue.under_way == 0
    unlimited, reported = FairQueue(0), FairQueue()
    for one in (unlimited, reported):
        one.share(3)
        one.set_slots(6)
    assert (unlimited.limit, reported.limit) == (0, 2)

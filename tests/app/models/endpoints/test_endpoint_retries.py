"""Whom a route asks after a failure, and when: by status and header, until the first word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import (
    Ability,
    CallForm,
    FallbackUsed,
    Finished,
    ModelRequest,
    Piece,
    ProviderFailed,
    ProviderNotice,
    TextChunk,
    TokenUsage,
)
from app.models.endpoints.fair_queue import FairQueue
from app.models.endpoints.faults import fault_of
from app.models.scripted import Pause, Raise, Reply, Scripted
from parsing import CallOpened, Thought
from tests.support.models.targets import ASKED, WALL, Time, fails, heard, model, said, told

pytestmark = pytest.mark.anyio
GROWING = [0.5, 1.0, 2.0, 4.0]
LOST = ProviderFailed("model_cut", "The connection was lost.", retryable=True)


# what fails first -> how often it is asked when it keeps failing, alone and beside another, and the waits (alone)
KEEPS_FAILING = {
    "400": (fails(400, "model_rejected", retryable=False), 1, None, []),
    "413": (fails(413, "model_context", retryable=False), 1, None, []),
    "a prompt too long, told with 500": (fails(500, "model_context", retryable=False), 1, None, []),
    "401 without a key": (fails(401, "model_auth", retryable=False), 1, 1, []),
    "403 without a key": (fails(403, "model_auth", retryable=False), 1, 1, []),
    "404": (fails(404, "model_not_found", retryable=False), 1, 1, []),
    "307": (fails(307, "model_not_found", retryable=False), 1, 1, []),
    "408": (fails(408, "model_silent"), 5, 2, GROWING),
    "425": (fails(425), 5, 2, GROWING),
    "429": (fails(429, "model_busy"), 5, 2, GROWING),
    "429 for 2 s": (fails(429, "model_busy", retry_after_s=2), 5, 2, [2] * 4),
    "429 for 0 s": (fails(429, "model_busy", retry_after_s=0), 5, 2, GROWING),
    "429 for 31 s": (fails(429, "model_busy", retry_after_s=31), 1, 1, []),
    "500": (fails(500), 5, 2, GROWING),
    "503 for 30 s": (fails(503, "model_down", retry_after_s=30), 5, 2, [30] * 4),
    "503 for 31 s": (fails(503, "model_down", retry_after_s=31), 1, 1, []),
    "529": (fails(529), 5, 2, GROWING),
    "nobody there": (fails(None, "model_down"), 5, 1, GROWING),
    "it cannot be started": (fails(None, "model_down", retryable=False), 1, 1, []),
    "silent": (fails(None, "model_silent"), 2, 1, [0.5]),
    "lost before it began": (fails(None, "model_cut"), 5, 2, GROWING),
    "no model server": (fails(None, "model_garbled", retryable=False), 1, 1, []),
    "something else": (fails(None, "script_ended", retryable=False), 1, None, []),
}


@pytest.mark.parametrize(
    ("failing", "alone", "tries_with_fallback", "waits"), KEEPS_FAILING.values(), ids=KEEPS_FAILING
)
async def test_a_model_is_asked_a_few_times_and_then_another(
    failing: Reply, alone: int, tries_with_fallback: int | None, waits: list[float]
) -> None:
    time, only = Time(), model(*[failing] * 9)
    with pytest.raises(ProviderFailed) as failed:
        await heard(time.route(time.handle(only)))
    assert isinstance(failing[0], Raise)
    assert failed.value is failing[0].failure
    assert (len(only.requests), time.waits) == (alone, waits)

    time, wanted, other = Time(), model(*[failing] * 9), model("Hi", name="o")
    route = time.route(time.handle(wanted), time.handle(other, time.server("hosted")))
    if tries_with_fallback is None:
        with pytest.raises(ProviderFailed):
            await heard(route)
        assert (len(wanted.requests), len(other.requests)) == (1, 0)
        return
    pieces = await heard(route)
    assert (len(wanted.requests), len(other.requests)) == (tries_with_fallback, 1)
    assert pieces[-3:] == [FallbackUsed("local/m", "hosted/o", failed.value.code), TextChunk("Hi"), Finished("stop")]
    assert told(pieces) == ["retry"] * tries_with_fallback + ["hosted/o"]


@pytest.mark.parametrize(("status", "code"), [(400, "model_rejected"), (None, "no_vision")])
async def test_what_a_stand_in_refuses_the_next_may_take(status: int | None, code: str) -> None:
    time, refusal = Time(), fails(status, code, retryable=False)
    dead, strict, last = model(*[fails(500)] * 9), model(*[refusal] * 9, name="strict"), model("Hi", "Hi", name="last")
    handles = [time.handle(one, time.server(f"host{at}")) for at, one in enumerate((dead, strict, last))]
    for _ in range(2):  # the second time the wanted one rests
        pieces = await heard(time.route(*handles))
        assert pieces[-3:] == [FallbackUsed("host0/m", "host2/last", "model_failed"), TextChunk("Hi"), Finished("stop")]
    with pytest.raises(ProviderFailed, match=r"None of the models could answer\. host0/m: It failed") as failed:
        await heard(time.route(*handles[:2]))
    assert failed.value.code == "model_failed"


@pytest.mark.parametrize("failing", [row[0] for row in KEEPS_FAILING.values() if row[1] > 1])
async def test_a_model_that_comes_back_is_heard_and_each_wait_is_told(failing: Reply) -> None:
    time, back = Time(), model(failing, "Hi")
    pieces = await heard(time.route(time.handle(back)))
    assert said(pieces) == "Hi"
    assert told(pieces) == ["retry"]
    assert isinstance(pieces[0], ProviderNotice)
    notice = pieces[0]
    assert f" Retrying in {ceil(time.waits[0])} s (attempt 2 of {notice.attempts})." in notice.message
    assert notice.attempt == 2 and (notice.reason or "is rate limited") in notice.message
    assert pieces[0].retry_at == WALL + time.now


async def test_waits_grow_to_ten_seconds_and_are_spread_by_chance() -> None:
    waits = [Time().backoff.delay_s(tried) for tried in range(1, 9)]
    assert waits == [0.5, 1, 2, 4, 8, 10, 10, 10]
    assert [Time(chance=chance).backoff.delay_s(2) for chance in (0, 0.25)] == [0.5, 0.625]


@pytest.mark.parametrize("bounded", [replace(ASKED, left_s=5.0), replace(ASKED, inactivity_s=4.9)])
async def test_nobody_waits_longer_than_the_run_has(bounded: ModelRequest) -> None:
    time, busy = Time(), model(*[fails(429, "model_busy", retry_after_s=5)] * 9)
    with pytest.raises(ProviderFailed):
        await heard(time.route(time.handle(busy)), bounded)
    assert (len(busy.requests), time.waits) == (1, [])


FIRST = st.sampled_from([TextChunk("Hi"), Thought("Hm"), CallOpened(0, "bash")])
ACTS = st.lists(st.sampled_from([*KEEPS_FAILING, "cut"]), max_size=8)


@given(ACTS, ACTS, FIRST)
async def test_no_token_comes_twice(first: list[str], second: list[str], begins: Piece) -> None:
    """Whatever fails, before or in the middle: once something was said, nobody is asked again."""

    def script(names: list[str], word: str) -> list[Reply]:
        cut: Reply = [TokenUsage(1, 0), begins, TextChunk(word), Raise(LOST)]
        return [*(cut if name == "cut" else KEEPS_FAILING[name][0] for name in names), [begins, TextChunk(word)]]

    time, pieces = Time(), list[Piece]()
    wanted, other = Scripted(script(first, "one"), "m"), Scripted(script(second, "two"), "o")
    route = time.route(time.handle(wanted), time.handle(other, time.server("hosted")))
    failure = None
    try:
        async with asyncio.timeout(30), aclosing(route.stream(ASKED)) as stream:
            async for piece in stream:
                pieces.append(piece)
    except ProviderFailed as failed:
        failure = failed
    spoken = [piece for piece in pieces if not isinstance(piece, ProviderNotice | FallbackUsed | TokenUsage)]
    assert spoken in ([], [begins, TextChunk("one")], [begins, TextChunk("two")]) or (
        failure is None and spoken[:-1] in ([begins, TextChunk("one")], [begins, TextChunk("two")])
    )
    switches = [piece for piece in pieces if isinstance(piece, FallbackUsed)]
    assert len(switches) == (TextChunk("two") in spoken)
    if spoken:
        after = pieces[pieces.index(spoken[0]) :]
        assert not any(isinstance(piece, ProviderNotice | FallbackUsed) for piece in after)
        assert failure in (None, LOST)
    for handle in route.handles:
        assert (handle.server.queue.under_way, handle.server.queue.waiting) == (0, 0)


async def test_all_that_failed_is_told_when_nobody_answers() -> None:
    time = Time()
    first, second = model(fails(404, "model_not_found", retryable=False)), model(*[fails(500)] * 5, name="o")
    with pytest.raises(ProviderFailed, match=r"None of .* local/m: It failed with 404. hosted/o: It failed") as failed:
        await heard(time.route(time.handle(first), time.handle(second, time.server("hosted"))))
    assert (failed.value.code, failed.value.retryable) == ("model_not_found", True)


async def test_a_dead_host_is_passed_over_until_it_may_be_back() -> None:
    time = Time()
    dead, other = model(fails(None, "model_down"), "Back", "And well"), model("Hi", "Still me", name="o")
    server = time.server("local")
    handles = time.handle(dead, server), time.handle(other, time.server("hosted"))
    assert time.route(*handles).current is handles[0]
    assert told(await heard(time.route(*handles))) == ["retry", "hosted/o"]
    assert server.status()["state"] == "dead"

    later = time.route(*handles)
    assert later.current is handles[1]
    assert told(await heard(later)) == ["hosted/o"], "not asked, and no wait"
    assert (len(dead.requests), len(other.requests)) == (1, 2)

    time.now += 20
    assert server.status()["state"] == "dead", "as long as it has not answered"
    assert said(await heard(time.route(*handles))) == "Back"
    assert (server.status()["state"], server.status()["last_error"]) == ("ok", None)
    assert said(await heard(time.route(*handles))) == "And well"


async def test_who_rests_is_asked_where_nobody_else_can_be() -> None:
    time, dead = Time(), model(*[fails(None, "model_down")] * 6, "Back")
    handle = time.handle(dead)
    for _ in range(2):
        with pytest.raises(ProviderFailed):
            await heard(time.route(handle, time.handle(model(fails(404)), time.server("hosted"))))
    assert len(dead.requests) == 1 + 5, "then the other first, as it rests; but in the end it, all the same"
    assert said(await heard(time.route(handle))) == "Back"


async def test_a_rest_ends_with_an_answer() -> None:
    time, server = Time(), Time().server("local", ["sk-1"])
    handle = time.handle(model(fails(500), "Hi"), server)
    server.health.start(None, 100, "model_down")
    server.health.start("m", 100, "model_failed")
    server.keys.limited(server.keys.keys[0], "m", 100)
    assert said(await heard(time.route(handle))) == "Hi"
    assert server.cooldown_of("m") is None


async def test_the_room_of_a_stand_in_is_looked_at_before_it_is_asked() -> None:
    time, small = Time(), model("Hi", name="o")
    handles = time.handle(model(fails(404))), time.handle(small, time.server("hosted"), window=2048)
    route = time.route(*handles)
    long = replace(ASKED, messages=[Message("user", "word " * 3000)])
    with pytest.raises(ProviderFailed, match="hosted/o can read 2048") as failed:
        await heard(route, long)
    assert (failed.value.code, failed.value.window, small.requests) == ("model_context", 2048, [])
    assert route.current is handles[1], "for which the prompt is made to fit now"
    assert told(await heard(route)) == ["hosted/o"]


async def test_what_is_asked_of_the_route_is_of_the_model_that_answers() -> None:
    time = Time()
    wanted = Scripted([fails(404)], "m", call_form=CallForm.NATIVE)
    handles = time.handle(wanted), time.handle(model("Hi", name="o"), time.server("hosted"))
    route = time.route(*handles)
    assert (route.model, route.call_form, route.answers) == ("m", CallForm.NATIVE, "local/m")
    async with aclosing(route.stream(ASKED)) as pieces:
        async for piece in pieces:
            if isinstance(piece, TextChunk):
                assert (route.model, route.call_form, route.answers) == ("o", CallForm.FENCED, "hosted/o")
    time.now += 100
    assert (route.model, route.answers, route.last) == ("m", "hosted/o", handles[1])


class Learned(Scripted):
    def abilities(self) -> Sequence[Ability]:
        return [Ability("reasoning", self.model, "answer")]


async def test_a_reply_is_judged_by_what_is_known_of_the_model_that_gave_it() -> None:
    """Also where the wanted model has recovered while another one answered."""
    time = Time()
    handles = time.handle(Learned([fails(404)], "m")), time.handle(Learned(["Hi"], "o"), time.server("hosted"))
    route = time.route(*handles)
    assert route.ability("reasoning").value == "m"
    await heard(route)
    time.now += 100
    assert (route.model, route.ability("reasoning").value) == ("m", "o")


async def test_waits_hold_no_place_and_every_end_gives_it_back() -> None:
    time = Time()
    server = time.server("local", max_requests=1)
    held = asyncio.Event()
    slow = time.handle(model(fails(500), ["Hi", Pause(held)], "Next"), server)
    async with aclosing(time.route(slow).stream(ASKED)) as pieces:
        async for piece in pieces:
            assert server.queue.under_way == (0 if isinstance(piece, ProviderNotice) else 1)
            if isinstance(piece, TextChunk):
                break  # and the generator is closed in the middle
    assert server.queue.under_way == 0
    assert said(await heard(time.route(slow))) == "Next"
    assert server.queue.under_way == 0


async def test_who_waits_is_told_the_place_and_leaves_the_line_when_cancelled() -> None:
    time, held, notices = Time(), asyncio.Event(), asyncio.Queue[ProviderNotice]()
    server = time.server("local", max_requests=1)
    provider = model(["one", Pause(held)], "two")

    async def asks(principal: str) -> list[Piece]:
        pieces = []
        async with aclosing(time.route(time.handle(provider, server), principal=principal).stream(ASKED)) as stream:
            async for piece in stream:
                if isinstance(piece, ProviderNotice):
                    notices.put_nowait(piece)
                pieces.append(piece)
        return pieces

    async with asyncio.timeout(30), aclosing(time.route(time.handle(provider, server)).stream(ASKED)) as first:
        assert await anext(first) == TextChunk("one")
        gives_up = asyncio.create_task(asks("bob"))
        assert (await notices.get()).message.endswith("one request at a time: this one is number 1 in the queue.")
        stays = asyncio.create_task(asks("cy"))
        assert (await notices.get()).message.endswith("number 2 in the queue.")
        gives_up.cancel()
        await asyncio.wait([gives_up])
        assert (server.queue.under_way, server.queue.waiting) == (1, 1)
        assert (await notices.get()).message.endswith("number 1 in the queue.")
        held.set()
        assert [piece async for piece in first] == [Finished("stop")]
        pieces = await stays
    assert (told(pieces), said(pieces)) == (["waiting", "waiting"], "two")
    assert (server.queue.under_way, server.queue.waiting) == (0, 0)


def test_every_status_is_some_fault() -> None:
    for status in range(300, 600):
        fault = fault_of(ProviderFailed("model_failed", "", retryable=True, status=status))
        assert 1 <= fault.tries_with_fallback <= fault.tries <= 5
        assert fault.try_fallback or fault.tries == 1


def test_a_queue_without_a_limit_serves_at_once() -> None:
    queue = FairQueue()
    assert all(queue.join("ann").number == 0 for _ in range(100))


@given(st.integers(1, 3), st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.integers(0, 25)), max_size=12))
async def test_whoever_is_cancelled_at_any_moment_leaves_the_line_in_order(
    limit: int, principals: list[tuple[str, int]]
) -> None:
    """Each asks, and is cancelled after so many turns of the loop, in the line, between two tries or while it hears."""
    time = Time()
    server = time.server("local", max_requests=limit)
    provider = Scripted([fails(500), "Hi"], "m", repeat=True)
    tasks = [
        asyncio.create_task(heard(time.route(time.handle(provider, server), principal=who))) for who, _ in principals
    ]
    async with asyncio.timeout(30):
        for tick in range(26):
            for task, (_, at) in zip(tasks, principals, strict=True):
                if tick == at:
                    task.cancel()
            assert server.queue.under_way <= limit
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
    assert (server.queue.under_way, server.queue.waiting) == (0, 0)

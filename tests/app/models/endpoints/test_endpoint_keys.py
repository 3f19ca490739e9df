"""The keys of an endpoint: which is used, which rests and for how long, and that none is ever told."""

from __future__ import annotations

import json
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from app.core.provider import Finished, Piece, ProviderFailed, TextChunk
from app.models.endpoints.keys import REFUSED_S
from app.models.http.client import model_client
from app.models.scripted import Reply, Scripted
from tests.support.models.chatting import LIMIT_S, WHOLE, chat_with
from tests.support.models.targets import ASKED, Time, fails, heard, model, said, told
from tests.support.models.upstream import Upstream, answer, upstream

pytestmark = pytest.mark.anyio
KEYS = ("sk-one", "sk-two", "sk-three")
REFUSED = fails(401, "model_auth", retryable=False)
NOT_HERE = fails(403, "model_auth", retryable=False)
BUSY = fails(429, "model_busy")


def used(provider: Scripted) -> list[str | None]:
    return [request.key for request in provider.requests]


# what the keys are answered -> the keys that are used, the waits, the codes that are told
ROWS: dict[str, tuple[list[Reply], tuple[str, ...], list[float], list[str]]] = {
    "the first is good": ([], ("sk-one",), [], []),
    "one is refused": ([REFUSED], KEYS[:2], [], ["key_disabled"]),
    "two are refused": ([REFUSED, NOT_HERE], KEYS, [], ["key_disabled"] * 2),
    "no credit": ([fails(402, "model_auth", retryable=False)], KEYS[:2], [], ["key_disabled"]),
    "one is limited": ([BUSY], KEYS[:2], [], []),
    "one is limited for long": ([fails(429, "model_busy", retry_after_s=900)], KEYS[:2], [], []),
    "all are limited": ([BUSY] * 3, (*KEYS, "sk-one"), [0.5], ["retry"]),
    "all for some time": (
        [fails(429, "model_busy", retry_after_s=wait_s) for wait_s in (900, 7, 25)],
        (*KEYS, "sk-two"),
        [7],
        ["retry"],
    ),
    "a server's fault": ([fails(500)], ("sk-one",) * 2, [0.5], ["retry"]),
}


@pytest.mark.parametrize(("failing", "keys", "waits", "codes"), ROWS.values(), ids=ROWS)
async def test_the_next_key_is_used_where_one_is_refused_or_limited(
    failing: list[Reply], keys: tuple[str, ...], waits: list[float], codes: list[str]
) -> None:
    time, provider = Time(), model(*failing, "Hi")
    pieces = await heard(time.route(time.handle(provider, time.server("hosted", KEYS))))
    assert said(pieces) == "Hi"
    assert (tuple(used(provider)), time.waits, told(pieces)) == (keys, waits, codes)
    assert not any(key in repr(pieces) for key in KEYS)


async def test_a_refused_key_is_told_by_its_place_and_left_alone() -> None:
    time, provider = Time(), model(REFUSED, "Hi", "Still", "First again")
    server = time.server("hosted", KEYS)
    route = time.route(time.handle(provider, server))
    notice, *_ = await heard(route)
    assert "Key 1 of 3 of the endpoint hosted was refused (401)" in repr(notice)
    assert server.status()["keys"] == {"count": 3, "disabled": 1, "cooling": 0}
    await heard(route)
    time.now += REFUSED_S
    await heard(route)
    assert used(provider) == ["sk-one", "sk-two", "sk-two", "sk-one"]


async def test_a_key_that_may_not_use_one_model_may_use_another() -> None:
    time = Time()
    server = time.server("hosted", KEYS[:1])
    forbidden, allowed = model(NOT_HERE, name="m"), model("Hi", name="o")
    with pytest.raises(ProviderFailed) as failed:
        await heard(time.route(time.handle(forbidden, server)))
    assert failed.value.status == 403
    assert said(await heard(time.route(time.handle(allowed, server)))) == "Hi"


async def test_without_a_good_key_one_is_tried_by_each_run_and_nobody_else_waits_for_it() -> None:
    time, provider = Time(), model(*[REFUSED] * 4, "Hi")
    handle = time.handle(provider, time.server("hosted", KEYS[:2]))
    for notices in (2, 1, 1):
        pieces: list[Piece] = []
        with pytest.raises(ProviderFailed, match="401") as failed:
            async with aclosing(time.route(handle).stream(ASKED)) as stream:
                async for piece in stream:
                    pieces.append(piece)  # noqa: PERF401 (what came first must outlive the exception)
        assert (failed.value.code, told(pieces)) == ("model_auth", ["key_disabled"] * notices)
        time.now += 1
    assert used(provider) == ["sk-one", "sk-two", "sk-one", "sk-two"]

    other = time.handle(model("Hi"), time.server("other"))
    assert told(await heard(time.route(handle, other))) == ["other/m"], "where there is another, it rests"
    assert said(await heard(time.route(handle))) == "Hi"
    assert handle.server.status()["keys"]["disabled"] == 1


async def test_a_model_without_keys_is_asked_again_whatever_it_says() -> None:
    time, provider = Time(), model(REFUSED, "Hi")
    with pytest.raises(ProviderFailed):
        await heard(time.route(time.handle(provider)))
    assert said(await heard(time.route(time.handle(provider)))) == "Hi"
    assert used(provider) == [None, None]


async def test_a_model_that_wants_a_key_which_nobody_has_is_passed_over_for_a_while() -> None:
    """The next prompt must be made to fit who stands in, not a model that will not answer."""
    time, closed, other = Time(), model(REFUSED, "Open"), model("Hi", "Hi", name="o")
    handles = time.handle(closed), time.handle(other, time.server("hosted"))
    assert told(await heard(time.route(*handles))) == ["retry", "hosted/o"]
    assert time.route(*handles).current is handles[1]
    assert told(await heard(time.route(*handles))) == ["hosted/o"]
    time.now += 60
    assert said(await heard(time.route(*handles))) == "Open"


async def test_the_last_error_is_one_line_without_a_key() -> None:
    time = Time()
    server = time.server("hosted", KEYS)
    server.failed(ProviderFailed("model_failed", "It said:\n sk-two and\tmore " + "x" * 9999, retryable=True))
    shown = json.dumps(server.status())
    assert server.status()["last_error"]["message"].startswith("It said: *** and more x")
    assert "sk-two" not in shown
    assert len(shown) < 1000


async def test_what_a_client_keeps_of_requests_does_not_show_the_key() -> None:
    async with model_client("http://127.0.0.1") as client:
        kept = client._prepared("http://127.0.0.1/v1", (("authorization", "Bearer sk-one"),), None)
    assert b"sk-one" in kept.head and "sk-one" not in repr(kept)


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


# headers of a 429 (`now` and seconds: a date) -> between which bounds the wait lies; None: it is not asked again
WAITS: dict[str, tuple[dict[str, str], tuple[float, float] | None]] = {
    "none": ({}, (0.5, 0.5)),
    "seconds": ({"retry_after": "3"}, (3, 3)),
    "seconds with a point": ({"retry_after": "1.5"}, (1.5, 1.5)),
    "milliseconds": ({"retry_after_ms": "1250"}, (1.25, 1.25)),
    "milliseconds first": ({"retry_after_ms": "1250", "retry_after": "2"}, (1.25, 1.25)),
    "a date": ({"retry_after": "now 20"}, (1, 20)),
    "a date that has passed": ({"retry_after": "now -60"}, (0.5, 0.5)),
    "nonsense": ({"retry_after": "soon"}, (0.5, 0.5)),
    "too long": ({"retry_after": "31"}, None),
    "a date too far": ({"retry_after": "now 3600"}, None),
}


@pytest.mark.parametrize(("headers", "bounds"), WAITS.values(), ids=WAITS)
async def test_a_server_is_given_the_time_that_it_asks_for(
    headers: dict[str, str], bounds: tuple[float, float] | None
) -> None:
    sent = {
        name: in_seconds(float(value[4:])) if value.startswith("now ") else value for name, value in headers.items()
    }
    time, busy = Time(), answer('{"error": {"message": "Slow down."}}', 429, **sent)
    server: Upstream
    async with upstream(busy, WHOLE) as server, chat_with(server) as chat:
        route = time.route(time.handle(chat, time.server("hosted", KEYS[:1])))
        if bounds is None:
            with pytest.raises(ProviderFailed):
                await heard(route)
            assert len(server.asked) == 1
            return
        pieces = await heard(route)
    assert pieces[1:] == [TextChunk("Hi"), Finished("stop")]
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer sk-one"] * 2
    assert bounds[0] <= time.waits[0] <= bounds[1]


async def test_keys_go_over_the_wire_one_after_the_other() -> None:
    refusal = answer('{"error": {"message": "sk-one is not a key of ours"}}', 401)
    time = Time()
    async with upstream(refusal, WHOLE) as server, chat_with(server, inactivity_s=LIMIT_S, key="unused") as chat:
        state = time.server("hosted", KEYS)
        pieces = await heard(time.route(time.handle(chat, state)), ASKED)
    assert said(pieces) == "Hi"
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer sk-one", "Bearer sk-two"]
    assert "*** is not a key of ours" in state.status()["last_error"]["message"]
    assert "sk-" not in json.dumps(state.status()) + repr(pieces)

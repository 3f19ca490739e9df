"""What servers write to say how long to wait, and what a failure tells of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.provider import ModelRequest
from app.models.http.exchange import retry_after_s
from tests.support.models.chatting import HELLO, WHOLE, chat_with, failure_of, pieces_of
from tests.support.models.upstream import answer, upstream

NOW = 1_796_000_000.0  # Mon, 30 Nov 2026 00:53:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "0", "retry-after": "2"}, 2),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2),
        ({"retry-after": "Mon, 30 Nov 2026 00:53:50 GMT"}, 30),
        ({"retry-after": "Mon, 30 Nov 2026 01:53:50 +0100"}, 3630 - 3600),
        ({"retry-after": "Mon, 30 Nov 2026 00:53:50 -0000"}, 30),
        ({"retry-after": "Mon, 30 Nov 2026 00:00:00 GMT"}, 0),
        ({"retry-after": "Mon, 30 Nov 99999 00:00:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_seconds_milliseconds_and_dates(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text(max_size=40)))
def test_whatever_is_written_it_is_a_time_or_nothing(headers: dict[str, str]) -> None:
    seconds = retry_after_s(headers, NOW)
    assert seconds is None or 0 <= seconds < float("inf")


@pytest.mark.anyio
async def test_a_failure_carries_the_status_and_the_wait() -> None:
    busy = answer("no", 429, retry_after_ms="1200")
    async with upstream(busy, answer("no", 503)) as server, chat_with(server) as chat:
        failures = [(await failure_of(chat))[1] for _ in range(2)]
    assert [(failure.status, failure.retry_after_s) for failure in failures] == [(429, 1.2), (503, None)]
    assert "It asks to wait 2 s." in failures[0].message
    assert "It asks to wait" not in failures[1].message


@pytest.mark.anyio
async def test_a_request_may_bring_a_key_of_its_own() -> None:
    said = answer('{"error":"not with sk-mine"}', 401)
    async with upstream(WHOLE, said) as server, chat_with(server, key="sk-ours") as chat:
        request = ModelRequest([HELLO], key="sk-mine")
        await pieces_of(chat, request)
        _, failure = await failure_of(chat, request)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer sk-mine"] * 2
    assert "not with ***" in failure.message
    assert "sk-mine" not in repr(request)

"""Our transport against httpx2's own: whatever a server does, the same bytes and the same class of error."""

from __future__ import annotations

import pytest

from app.models.http.client import LIMITS
from app.models.http.transport.lean import LeanTransport
from tests.support.models.sockets import (
    ANSWERS,
    FALLEN_SILENT_S,
    LIMIT_S,
    LOOPS,
    OK,
    SILENCE_S,
    answering,
    outcome,
    outcomes,
    serving_bytes,
)
from tests.support.models.upstream import hang

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]


# Where httpx2's own would wait for more.
SEEN_SOONER = ("no end of hints", "a page", "another protocol")
# What both wait for in vain. Any other answer is read to its end, however late it comes.
SILENT_S = {"silence": SILENCE_S, "half a head, silence": SILENCE_S, "too short, silence": FALLEN_SILENT_S}


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in SEEN_SOONER])
async def test_an_answer_is_read_as_httpx2_reads_it(name: str) -> None:
    got = await outcomes(answering(*ANSWERS[name]), silence_s=SILENT_S.get(name, LIMIT_S))
    assert got["lean"] == got["stock"]
    assert (got["lean"][0] == "ReadTimeout") == (name in SILENT_S)


@pytest.mark.parametrize("name", SEEN_SOONER)
async def test_what_can_never_become_an_answer_is_not_waited_for(name: str) -> None:
    async with serving_bytes(answering(*ANSWERS[name])) as url:
        assert await outcome(LeanTransport(LIMITS), url) == ("RemoteProtocolError", b"")


async def test_a_head_alone_is_an_answer_where_no_body_was_asked_for() -> None:
    got = await outcomes(answering(OK + b"content-length: 5\r\n\r\n", hang), method="HEAD")
    assert got["lean"] == got["stock"] == (200, b"")

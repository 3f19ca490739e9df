"""Whole numbers in queries, headers and flags: digits and nothing else, within their limits, or one clear error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.protocol.numbers import LARGEST, MAX_DIGITS, whole_number
from tests.support.access.people import LIMIT_S
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

NOT_NUMBERS = [
    "",
    "-1",
    "+1",
    " 1",
    "1 ",
    "1_000",
    "1.0",
    "1e3",
    "0x1",
    "\u0663",
    "\u00b2",
    "\uff11",
    "1\n",
    "9" * 16,
    "9" * 5000,
]
NUMBERS = [("0", 0), ("1", 1), ("007", 7), ("9" * MAX_DIGITS, LARGEST)]


@pytest.mark.parametrize("text", NOT_NUMBERS, ids=lambda text: ascii(text[:20]))
def test_only_digits_are_a_whole_number(text: str) -> None:
    assert whole_number(text) is None


@pytest.mark.parametrize(("text", "number"), NUMBERS, ids=[text for text, _ in NUMBERS])
def test_digits_are_a_whole_number(text: str, number: int) -> None:
    assert whole_number(text) == number


async def test_a_number_that_is_none_or_out_of_range_is_refused_everywhere(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."])) as served:
        began = (await served.chat())[0]
        runs = f"/sessions/{began['session']}/log?runs"
        output = f"/runs/{began['run']}/calls/call_none/output?after"
        places = (runs, output, "/jobs/job_none/output?after", "/audit?limit", "/audit?before")
        bad = [(place, text) for place in places for text in NOT_NUMBERS]
        for place, text in [*bad, (runs, "0"), (runs, "101"), (runs, f"{1:09}{10**5}")]:
            path, _, name = place.partition("?")
            answer = await served.client.get(path, params={name: text})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "invalid_query"), (place, text)
            assert error["message"].startswith(f"{name} is ") and "send a whole number from" in error["message"]
            assert len(error["message"]) < 300
        assert len((await served.client.get(f"{runs}=00001")).json()["runs"]) == 1

"""POST /chat with `Prefer: respond-async`: the run is begun and named, and watched elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.http.chat import preferences
from tests.support.access.people import LIMIT_S
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

PREFERRED = {
    ("respond-async",): True,
    ("Respond-Async, wait=10",): True,
    ("wait=10", " respond-async ; why=not"): True,
    ('respond-async=""',): True,
    ('handling="a, respond-async"',): False,
    ('handling="\\", respond-async"',): False,
    ("respond-async=no",): False,
    ('"' * 60_000,): False,
    ('"\\' * 30_000,): False,
    ("respond", ""): False,
}


@pytest.mark.parametrize("headers", PREFERRED)
def test_the_header_is_read_as_its_rfc_says(headers: tuple[str, ...]) -> None:
    assert ("respond-async" in preferences(headers)) == PREFERRED[headers]


async def test_a_key_attaches_to_the_run_that_it_has_begun(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]])) as served:
        headers = {"prefer": "respond-async", "idempotency-key": "k"}
        answers = [await served.client.post("/chat", json={"message": "1"}, headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        [run] = {answer.json()["run"] for answer in answers}
        assert answers[0].headers["x-run-id"] == run
        assert answers[0].headers["preference-applied"] == "respond-async"
        assert answers[0].json()["session"] == answers[0].headers["x-session-id"]
        other = await served.client.post("/chat", json={"message": "2"}, headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (422, "key_reused")
        assert (await served.events(run))[-1]["text"] == "Hi."


async def test_there_is_no_stream_whose_end_could_cancel_it(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]])) as served:
        body = {"message": "1", "on_disconnect": "cancel"}
        answer = await served.client.post("/chat", json=body, headers={"prefer": "respond-async"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_request")
        assert "on_disconnect" in answer.json()["error"]["message"]
        assert (await served.client.get("/sessions")).json()["sessions"] == []

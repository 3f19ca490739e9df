"""Jobs that start jobs: how many turns their ends may begin until a person writes, and that no end is lost."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from app.core.provider import Finished, TextChunk
from app.models.scripted import Line, Pause, Scripted
from tests.support.models.replies import in_background, says
from tests.support.server.background_jobs import runs_after_jobs
from tests.support.server.histories import shown_session
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio
LIMIT_S = 120
AGAIN = in_background("echo once more")


def turns(many: int) -> list[list[Line]]:
    """Each of them starts a job and ends."""
    return [line for _ in range(many) for line in (AGAIN, says("It runs."))]


async def test_jobs_that_start_jobs_end_after_so_many_turns_and_their_last_end_comes_with_the_next_message(
    tmp_path: Path,
) -> None:
    provider = Scripted([*turns(4), says("So it was.")])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, max_follow_ups="3") as served:
        session = (await served.chat("Begin."))[0]["session"]
        runs = await runs_after_jobs(served, 4, session)
        assert len(runs) == 4, "the one that was asked for and three more"
        notices = [
            [event["code"] for event in await served.events(run["id"]) if event["type"] == "notice"] for run in runs
        ]
        assert [["follow_ups"] if "follow_ups" in codes else [] for codes in notices] == [[], [], [], ["follow_ups"]]
        asked = len(provider.requests)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, max_follow_ups="3") as served:
        assert len((await shown_session(served, session))["runs"]) == 4, "a restart changes nothing"
        assert len(provider.requests) == asked
        events = await served.chat("And now?", session=session)
        [added] = [event for event in events if event["type"] == "message.added"]
        assert "has ended" in added["text"] and "once more" in added["text"]
        assert events[-1]["text"] == "So it was."
        *_, kept, question = provider.requests[-1].messages
        assert kept.text == added["text"] and question.text == "And now?"
        stored = await served.services.store.runs(session)
        assert [json.loads(run.policy).get("unasked") for run in stored] == [None, True, True, True, None]


async def test_a_person_who_writes_begins_the_count_again(tmp_path: Path) -> None:
    provider = Scripted([*turns(2), *turns(2), says("Never.")])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, max_follow_ups="1") as served:
        session = (await served.chat("Begin."))[0]["session"]
        assert len(await runs_after_jobs(served, 2, session)) == 2
        await served.chat("Once more.", session=session)
        assert len(await runs_after_jobs(served, 4, session)) == 4


async def test_a_message_for_a_run_under_way_counts_as_writing(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    steered: list[Line] = [TextChunk("```bash\n#!bg\ntrue\n```\n"), Pause(go_on), Finished("stop")]
    provider = Scripted([AGAIN, says("It runs."), steered, says("I see."), says("It is over.")])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, max_follow_ups="1") as served:
        session = (await served.chat("Begin."))[0]["session"]
        while len(runs := (await shown_session(served, session))["runs"]) < 2:
            pass
        async with served.client.stream("GET", f"/runs/{runs[1]['id']}/events") as response:
            assert response.status_code == 200
        assert (await served.client.post(f"/runs/{runs[1]['id']}/messages", json={"message": "Hm."})).status_code == 202
        go_on.set()
        assert len(await runs_after_jobs(served, 3, session)) == 3


async def test_all_follow_ups_together_make_only_so_many_model_requests(tmp_path: Path) -> None:
    looks: list[list[Line]] = [says(f"```bash\necho {number}\n```\n") for number in range(40)]
    provider = Scripted([AGAIN, says("It runs."), *looks])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, max_follow_ups="1") as served:
        session = (await served.chat("Begin."))[0]["session"]
        runs = await runs_after_jobs(served, 2, session)
        async with asyncio.timeout(LIMIT_S):
            events = await served.events(runs[1]["id"])
        assert sum(event["type"] == "round.started" for event in events) == 5


async def test_a_line_of_runs_is_bounded_for_a_principal_whatever_sessions_they_wait_in(tmp_path: Path) -> None:
    hold = asyncio.Event()
    provider = Scripted([["One.", Pause(hold)]], repeat=True)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, max_runs="2") as served:
        answers = []
        for first in range(2):
            async with aclosing(served.turn(message="x")) as turn:
                session = (await until(turn, "run.started"))["session"]
            for _ in range(12):
                body = {"message": "x", "session": session, "when_busy": "queue"}
                answers.append(await served.client.post("/chat", json=body, headers={"Prefer": "respond-async"}))
            assert len({answer.status_code for answer in answers}) == first + 1
        refused = [answer.json()["error"] for answer in answers if answer.status_code == 429]
        assert len(answers) - len(refused) == 16 and refused[0]["budget"] == "runs"
        assert "18 active or queued runs" in refused[0]["message"]
        await served.services.runs.cancel_all("cancelled")

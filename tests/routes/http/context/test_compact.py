"""A conversation that a person has summarised: later requests begin with the summary, and nothing is ever half."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.budget.side_query import DATA_RULE
from app.context.compaction.summarise import FAILED, STARTED
from app.core.messages import AskedCall, Message, dump
from app.core.provider import Finished, ModelRequest, Piece, ProviderFailed
from app.models.scripted import Pause, Raise
from app.storage.runs import RunRow
from app.storage.sessions import MessageRow
from tests.support.access.people import bearer
from tests.support.server.events import notices, of_kind
from tests.support.server.histories import shown_session
from tests.support.server.long_conversations import CHATTER, GOAL, TOOLS, Secretary, asks_for_notes, chat_turns
from tests.support.server.serving import Served, serving, stored

pytestmark = pytest.mark.anyio
EVERY_DATABASE = pytest.mark.usefixtures("servers")
LIMIT_S = 60


class Slow(Secretary):
    """Writes its notes only when they are others."""

    def __init__(self) -> None:
        super().__init__((Pause(asyncio.Event()),))
        self.begun = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        if asks_for_notes(request):
            self.begun.set()
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                yield piece


async def compact(served: Served, session: str, body: object = None, **more: Any) -> tuple[int, dict[str, Any]]:
    response = await served.client.post(f"/sessions/{session}/compact", json=body or {}, **more)
    return response.status_code, response.json()


@EVERY_DATABASE
async def test_the_older_half_is_summarised_at_once_at_every_server(tmp_path: Path) -> None:
    model = Secretary()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session = (await chat_turns(served, 6))[0][0]["session"]
        status, answer = await compact(served, session)
        assert status == 200, answer
        events, fields = await served.events(answer["run"]), await shown_session(served, session)
        await chat_turns(served, 1, session)
        request = model.sent[-1]
        status, again = await compact(served, session)
        audit = (await served.client.get("/audit")).json()["audit"]
        usage = (await served.client.get(f"/runs/{answer['run']}")).json()["usage"]
    [summary], [stored_row] = of_kind(events, "context.summarised"), fields["summaries"]
    assert [event["type"] for event in events][0::4] == ["run.started", "run.finished"] and len(model.asked) == 2
    assert notices(events) == [("context", STARTED)] and events[-1]["reason"] == "answered"
    assert answer["summary"] == {name: summary[name] for name in ("messages", "before", "after")}
    assert stored_row["upto"] == summary["messages"] == 6 and len(fields["messages"]) == 12
    assert summary["after"] < summary["before"] and usage["completion_tokens"] > 0
    assert GOAL in request[1].text and "letters were sorted" in request[1].text
    assert len(request) == 1 + 1 + 1 + 6 + 1, "prompt, summary, marker, the newer half and the message"
    assert status == 200 and again["summary"]["messages"] > 6
    assert [row["decision"] for row in audit if row["action"] == "compact"] == ["allow", "allow"]


async def test_it_is_asked_behind_the_last_runs_requests_and_another_model_gets_data(tmp_path: Path) -> None:
    model = Secretary()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session = (await chat_turns(served, 6))[0][0]["session"]
        answer = (await compact(served, session))[1]
        await chat_turns(served, 2, session)
        assert (await compact(served, session, {"model": "scripted"}))[0] == 200
        [started, *_] = await served.events(answer["run"])
    behind, apart = model.asked
    assert behind.whole()[:-1] == model.sent[5][: len(behind.whole()) - 1], "as the model has read it"
    assert [tool.name for tool in behind.tools] == TOOLS and behind.parameters == {"tool_choice": "none"}
    assert not apart.tools and DATA_RULE in apart.messages[0].text and started["tools"] == []


TROUBLES: dict[str, tuple[Sequence[Any], str]] = {
    "down": (
        (Raise(ProviderFailed("model_down", "No server answers.", retryable=False)),),
        "failed: No server answers",
    ),
    "cut": (("What was", Finished("length")), "was cut off"),
    "longer": (("word " * 20_000,), "is longer than the messages it replaces"),
}


@pytest.mark.parametrize(("notes", "why"), TROUBLES.values(), ids=TROUBLES)
async def test_without_a_summary_nothing_changes(tmp_path: Path, notes: Sequence[Any], why: str) -> None:
    model = Secretary(notes)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session = (await chat_turns(served, 4))[0][0]["session"]
        status, answer = await compact(served, session)
        assert status == 502 and answer["error"]["code"] == "summary_failed", answer
        assert answer["error"]["message"] == FAILED.format(why=why)
        await chat_turns(served, 1, session)
        fields = await shown_session(served, session)
    assert fields["summaries"] == [] and len(model.sent[-1]) == 1 + 9


async def test_what_cannot_be_summarised_now_is_refused(tmp_path: Path) -> None:
    model = Secretary()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        told = await chat_turns(served, 4)
        session, run = told[0][0]["session"], told[-1][0]["run"]
        short = (await served.chat("Hi.", tools=[]))[0]["session"]
        answers = [
            (await compact(served, short), 409, "nothing_to_compact"),
            (await compact(served, "ses_none"), 404, "not_found"),
            (await compact(served, session, {"model": "none"}), 422, "unknown_model"),
            (await compact(served, session, {"model": 5}), 422, "invalid_request"),
            (await compact(served, session, {"upto": 5}), 422, "invalid_request"),
        ]
        await served.client.post("/pause", json={})
        answers.append((await compact(served, session), 503, "paused"))
        await served.client.post("/resume", json={})
        call = AskedCall("c1", "of_client", {}, "native")
        open_call = MessageRow(session, 8, run, dump(Message("assistant", "", calls=(call,))))
        await served.services.store.write([open_call])  # as one that was handed to its client
        answers.append((await compact(served, session), 409, "nothing_to_compact"))
        anna = await bearer(served, "anna")
        answers.append((await compact(served, session, headers=anna), 404, "not_found"))
    for (status, answer), wanted, code in answers:
        assert (status, answer["error"]["code"]) == (wanted, code), answer
    assert not model.asked


async def test_a_guest_has_its_own_conversation_summarised(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Secretary()) as served:
        served.client.headers.update(await bearer(served, "gus", "guest"))
        session = (await chat_turns(served, 4))[0][0]["session"]
        assert (await compact(served, session))[0] == 200


@EVERY_DATABASE
async def test_it_is_a_run_that_can_be_cancelled_and_holds_the_session(tmp_path: Path) -> None:
    model = Slow()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session = (await chat_turns(served, 4))[0][0]["session"]
        waiting = asyncio.create_task(compact(served, session))
        await model.begun.wait()
        run = (await shown_session(served, session))["runs"][-1]["id"]
        status, busy = await compact(served, session)
        assert status == 409 and (busy["error"]["code"], busy["error"]["run"]) == ("session_busy", run)
        assert (await served.client.post(f"/runs/{run}/messages", json={"message": "x"})).status_code == 409
        assert (await served.client.post(f"/runs/{run}/cancel")).status_code == 200
        status, answer = await waiting
        assert status == 502 and "unchanged" in answer["error"]["message"]
        assert (await shown_session(served, session))["summaries"] == []
        model.notes = ("Letters were sorted.",)
        assert (await compact(served, session))[0] == 200


@EVERY_DATABASE
async def test_one_whose_server_has_crashed_ends_without_a_summary(tmp_path: Path) -> None:
    model = Secretary()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session = (await chat_turns(served, 4))[0][0]["session"]
        answer = (await compact(served, session))[1]
        upto = answer["summary"]["messages"]
        async with stored(tmp_path) as store:
            row = await store.run(answer["run"])
    assert row and json.loads(row.policy)["tools"] == TOOLS, "a follow-up of a job has the options of the turn before"
    async with stored(tmp_path) as store:  # as a killed server leaves it
        policy = row.policy
        await store.write(
            [RunRow("run_crashed", session, row.principal, row.model, "running", time.time(), policy=policy)]
        )
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        events = await served.events("run_crashed")
        fields = await shown_session(served, session)
        await chat_turns(served, 1, session)
    assert [(event["type"], event.get("code")) for event in events] == [("run.failed", "interrupted")]
    assert [one["upto"] for one in fields["summaries"]] == [upto] and len(model.asked) == 1
    assert CHATTER[:20] in model.sent[-1][-1].text

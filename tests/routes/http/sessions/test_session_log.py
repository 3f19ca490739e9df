"""GET /sessions/{id}/log and GET /events together: what one leaves out, the other tells, and nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Line, Pause, Scripted
from app.runs.housekeeping import Housekeeping
from app.storage.runs import EventRow, RunEnded, RunRow
from app.storage.sessions import SessionRow
from routes.http.session_log import MOST_OF_RUN
from tests.support.access.people import LIMIT_S, bearer
from tests.support.server.feeding import begin, feeding
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio


async def log_of(served: Served, session: str, **query: object) -> dict[str, Any]:
    answer = await served.client.get(f"/sessions/{session}/log", params={k: str(v) for k, v in query.items()})
    assert answer.status_code == 200, answer.text
    log: dict[str, Any] = answer.json()
    return log


def words(events: Sequence[dict[str, Any]]) -> str:
    return "".join(event.get("text", "") for event in events if event["type"] == "text.delta")


async def test_log_and_feed_together_are_the_whole_session_while_it_runs(tmp_path: Path) -> None:
    steps = [asyncio.Event() for _ in range(3)]
    reply: list[Line] = ["a ", "b ", Pause(steps[0]), "c ", "d ", Pause(steps[1]), "e ", Pause(steps[2])]
    replies: list[Sequence[Line]] = [["Before."], reply, ["Second."], ["Third."]]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies)) as served:
        before = (await served.chat("0"))[0]
        session = before["session"]
        runs = [(await begin(served, str(number), session))["run"] for number in (1, 2, 3)]
        async with feeding(served, session) as feed:
            for step in steps:
                await feed.until("text.delta")
                log = await log_of(served, session)
                assert [run["run"] for run in log["runs"]] == [before["run"], *runs]
                assert [run["message"]["text"] for run in log["runs"]] == ["0", "1", "2", "3"]
                assert [run["state"] for run in log["runs"]] == ["answered", "running", "queued", "queued"]
                live = log["runs"][1]["events"]
                assert [bool(run["events"]) for run in log["runs"]] == [True, True, False, False]
                assert log["cursor"] == f"{runs[0]}:{live[-1]['seq']}"
                async with feeding(served, session, log["cursor"]) as rest:
                    await rest.until("state")
                    step.set()
                    if step is steps[-1]:
                        await rest.until_end(runs[-1])
            told = [one for one in rest.told if one.id.startswith(runs[0])]
            assert words(live) + words([one.data for one in told]) == "a b c d e "
            assert told[0].id == f"{runs[0]}:{live[-1]['seq'] + 1}"
            assert [one.id for one in rest.told if one.type == "run.asked" and one.id] == [
                f"{run}:0" for run in runs[1:]
            ]
        ended = await log_of(served, session)
        assert ended["cursor"] == rest.cursor and not ended["earlier"]
        assert [words(run["events"]) for run in ended["runs"]] == ["Before.", "a b c d e ", "Second.", "Third."]


async def test_a_run_that_is_over_before_the_feed_of_an_empty_session_is_not_passed_over(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."], ["Ho."]])) as served:
        first = (await served.chat("1"))[0]
        fork = (await served.client.post(f"/sessions/{first['session']}/fork", json={"before": first["run"]})).json()[
            "id"
        ]
        log = await log_of(served, fork)
        assert (log["cursor"], log["runs"]) == (":0", [])
        run = (await served.chat("1", session=fork))[0]["run"]
        async with feeding(served, fork, log["cursor"]) as feed:
            await feed.until_end(run)
        assert feed.ids[0] == f"{run}:0"


async def test_the_log_is_paged_back_and_belongs_to_somebody(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        session, other = [(await served.chat("0"))[0]["session"] for _ in range(2)]
        for number in range(1, 6):
            await served.chat(str(number), session=session)
        pages, before = [await log_of(served, session, runs=2)], ""
        while pages[-1]["earlier"]:
            before = pages[-1]["runs"][0]["run"]
            pages.append(await log_of(served, session, runs=2, before=before))
        assert [[run["message"]["text"] for run in page["runs"]] for page in pages] == [
            ["4", "5"],
            ["2", "3"],
            ["0", "1"],
        ]
        assert [page["cursor"] is None for page in pages] == [False, True, True]
        refused = {f"{session}/log?before=run_gone": 404, f"{other}/log?before={before}": 400, "ses_gone/log": 404}
        refused |= {f"{session}/log?runs={number}": 400 for number in ("0", "101", "x", "-1", "")}
        for path, status in refused.items():
            assert (await served.client.get(f"/sessions/{path}")).status_code == status, path
        bob = await bearer(served, "bob")
        assert (await served.client.get(f"/sessions/{session}/log", headers=bob)).status_code == 404


async def test_a_log_that_was_joined_meanwhile_goes_on_in_the_middle_of_a_word(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hel", Pause(go_on), "lo ", "you."]])) as served:
        session = (await begin(served, "1"))["session"]
        async with feeding(served, session) as feed:
            await feed.until("text.delta")
            log = await log_of(served, session)
            go_on.set()
            await feed.until_end()
        await Housekeeping(served.services.store, join_after_s=0, keep_days=0).tidy(time.time() + 60)
        async with feeding(served, session, log["cursor"]) as rest:
            await rest.until_end()
        [run] = log["runs"]
        assert words(run["events"]) == "Hel"
        assert words([one.data for one in rest.told]) == "lo you."


async def test_a_long_run_is_told_up_to_a_limit_and_the_rest_by_the_feed(
    tmp_path: Path,
) -> None:
    count, text = 30_000, "x" * 400
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        store = served.services.store
        await store.write(
            [SessionRow("ses_1", "local", 1, "long"), RunRow("run_1", "ses_1", "local", "m", "running", 1)]
        )
        data = json.dumps({"type": "text.delta", "text": text})
        rows = [EventRow("run_1", seq, "text.delta", data) for seq in range(1, count + 1)]
        end = EventRow("run_1", count + 1, "run.finished", json.dumps({"type": "run.finished", "reason": "answered"}))
        await store.write([*rows, end, RunEnded("run_1", "answered", 2)])
        log = await log_of(served, "ses_1")
        [run] = log["runs"]
        length = len(words(run["events"]))
        assert MOST_OF_RUN / 2 < length < MOST_OF_RUN * 1.5
        assert log["cursor"] == f"run_1:{length // len(text)}"
        async with feeding(served, "ses_1", log["cursor"]) as feed:
            await feed.until_end("run_1")
        assert length + len(words([one.data for one in feed.told])) == count * len(text)


async def test_a_secret_that_is_learned_later_is_hidden_in_what_was_said_before(tmp_path: Path) -> None:
    secret = "Zb81-Qe72-KdLm"
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([[f"It is {secret}."]])) as served:
        session = (await served.chat(f"Say {secret}"))[0]["session"]
        served.services.redactor.add(secret)
        log = await log_of(served, session)
        assert secret not in json.dumps(log)
        assert (log["title"], log["runs"][0]["message"]["text"]) == ("Say [redacted]", "Say [redacted]")
        assert words(log["runs"][0]["events"]) == "It is [redacted]."


async def test_an_outline_has_the_requests_of_all_runs(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Yes."], repeat=True)) as served:
        session = (await served.chat("0"))[0]["session"]
        for turn in range(1, 104):
            row = RunRow(f"run_{turn:03}", session, "local", "m", "answered", 2e9 + turn, 2e9 + turn)
            await served.services.store.write([row])
        whole = await log_of(served, session, runs=1000, events="false")
        assert len(whole["runs"]) == 104 and not whole["earlier"]
        assert whole["runs"][0]["message"]["text"] == "0" and not any(run["events"] for run in whole["runs"])
        assert len((await log_of(served, session, runs=100))["runs"]) == 100
        refused = await served.client.get(f"/sessions/{session}/log?runs=101")
        assert refused.status_code == 400

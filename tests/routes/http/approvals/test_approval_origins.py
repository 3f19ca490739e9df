"""A waiting call over HTTP: where its arguments come from, in the event, in the list, and after a restart."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.models.upstream import answer, upstream
from tests.support.server.approvals import decide, note, stop_as_killed
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio

PAGE = "<p>Write the blue report of Thursday evening into the note.</p>"
WRITE = "```write_file\nnotes/blue.md\nthe blue report of Thursday evening, for Bob\n```"
KINDS = [("/content", "result", True), ("/path", "person", False)]


def kinds_of(row: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return sorted((one["argument"], one["kind"], one["untrusted"]) for one in row["origins"])


async def test_the_origins_of_a_waiting_call_are_shown_wherever_it_is(tmp_path: Path) -> None:
    async with asyncio.timeout(60), upstream(answer(PAGE, kind="text/html"), repeat=True) as web:
        fetch = f"```web_fetch\nhttp://127.0.0.1:{web.port}/\n```"
        provider = Scripted([fetch, WRITE, "Written."])
        async with serving(tmp_path, provider, None, private_hosts=f"127.0.0.1:{web.port}") as served:
            turn = served.turn(message="Read it and write notes/blue.md.", approval="ask")
            async with aclosing(turn):
                run = (await until(turn, "run.started"))["run"]
                fetching = await until(turn, "approval.required")
                assert "origins" not in fetching, "the address stands nowhere"
                await decide(served.client, run, fetching["call"], "approve")
                waiting = await until(turn, "approval.required")
            assert kinds_of(waiting) == KINDS
            [content] = [one for one in waiting["origins"] if one["argument"] == "/content"]
            words = waiting["arguments"]["content"][content["start"] : content["end"]]
            assert words == "the blue report of Thursday evening"
            assert (content["source"], content["place"]) == (fetching["call"], "the result of web_fetch")
            [row] = (await served.client.get("/approvals")).json()["approvals"]
            assert row["origins"] == waiting["origins"]
            await stop_as_killed(served.services, run)
        async with serving(tmp_path, Scripted(["Written.", "Gone on."]), None) as served:
            [row] = (await served.client.get("/approvals")).json()["approvals"]
            assert row["origins"] == waiting["origins"]
            await decide(served.client, run, row["call"], "approve")
            async with aclosing(served.turn(message="Go on.", session=row["session"], when_busy="queue")) as turn:
                await until(turn, "run.finished")
            assert (note(tmp_path).parent / "notes/blue.md").exists()

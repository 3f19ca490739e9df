"""The whole output of calls and jobs over HTTP: while they run, after their end, in pieces, without secrets."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from app.redaction.output_chunks import PIECE
from app.redaction.redactor import MARK
from app.runs.tool_call import PRINTED
from app.transcript.conversation import STOPPED
from tests.support.models.replies import in_background, says
from tests.support.server.background_jobs import job_of
from tests.support.server.serving import Served, serving, until
from tools.base.output_buffer import TEXT_CHARACTERS
from tools.jobs.folder import HEAD

pytestmark = pytest.mark.anyio

LIMIT_S = 60
SECRET = "sesame-open-0123456789"
# Writes, waits for a file, and writes the rest.
TWO_STEPS = "```bash\nseq 1000; until [ -e go ]; do sleep 0.01; done; seq 1001 2000; exit 3\n```\n"
NUMBERS = "".join(f"{number}\n" for number in range(1, 2001))


async def piece(served: Served, path: str, after: int = 0) -> dict[str, Any]:
    answer = await served.client.get(f"{path}/output?after={after}")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert told["next"] - told["from"] <= PIECE and told["next"] <= told["characters"]
    return told


async def rest(served: Served, path: str, after: int = 0) -> list[dict[str, Any]]:
    """All pieces from there to the end."""
    pieces = [await piece(served, path, after)]
    while not pieces[-1]["done"]:
        pieces.append(await piece(served, path, pieces[-1]["next"]))
    return pieces


def text_of(pieces: list[dict[str, Any]]) -> str:
    return "".join(piece["text"] for piece in pieces)


async def test_a_call_is_followed_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([TWO_STEPS, "Done."])) as served:
        async with aclosing(served.turn(message="Count.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            path = f"/runs/{run}/calls/{(await until(turn, 'tool.started'))['call']}"
            while (await until(turn, "tool.progress"))["lines"] < 1000:
                pass
            first = await piece(served, path)
            assert (first["from"], first["lines"], first["done"]) == (0, 1000, False)
            assert first["text"] == NUMBERS[: first["next"]] and first["text"].endswith("\n1000\n")
            assert (await piece(served, path, first["next"]))["text"] == ""
            (tmp_path / "work/go").touch()
            await until(turn, "tool.finished")
            more = await rest(served, path, first["next"])
            assert first["text"] + text_of(more) == NUMBERS and more[-1]["lines"] == 2000
            async for _ in turn:
                pass
        served.services.factory.outputs._ended.clear()  # as after a restart
        kept = text_of(await rest(served, path))
        assert kept == NUMBERS + "[exit code 3]"
        behind = await piece(served, path, 10**9)
        assert (behind["text"], behind["done"], behind["from"]) == ("", True, len(kept))
        for wrong, status in ((f"{path}x/output", 404), (f"{path}/output?after=x", 400)):
            answer = await served.client.get(wrong)
            assert answer.status_code == status and answer.json()["error"]["message"]


async def test_short_results_and_those_of_no_process_come_from_the_log(tmp_path: Path) -> None:
    said = ["```write_file\nnote.txt\nwords\n```\n", "```bash\necho hello\n```\n", "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(said)) as served:
        events = await served.chat()
        finished = [event for event in events if event["type"] == "tool.finished"]
        for one in finished:
            told = await piece(served, f"/runs/{events[0]['run']}/calls/{one['call']}")
            assert (told["text"], told["lines"], told["done"]) == (one["text"], len(one["text"].splitlines()), True)
        assert finished[-1]["text"] == "hello"


async def test_a_program_is_read_off_a_screen_and_its_log_stays_as_it_was(tmp_path: Path) -> None:
    bar = "for n in $(seq 400); do printf '\\r\\e[32m%d/400\\e[0m' $n; done; printf '\\ntwo\\n\\e[A\\e[2KTWO\\n'"
    said = [f"```bash\n{bar}\n```\n", "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(said)) as served:
        events = await served.chat()
        [finished] = [event for event in events if event["type"] == "tool.finished"]
        assert finished["text"] == "400/400\nTWO"
        progress = [event for event in events if event["type"] == "tool.progress"][-1]
        assert (progress["tail"], progress["lines"]) == (["\x1b[32m400/400\x1b[0m", "TWO"], 2)
        path = f"/runs/{events[0]['run']}/calls/{finished['call']}"
        written = "".join(f"\r\x1b[32m{n}/400\x1b[0m" for n in range(1, 401)) + "\ntwo\n\x1b[A\x1b[2KTWO\n"
        for _ in range(2):
            pieces = await rest(served, path)
            assert (text_of(pieces), pieces[-1]["lines"]) in ((written, 2), (written, 3))
            served.services.factory.outputs._ended.clear()  # as after a restart


async def test_more_than_is_kept_has_a_gap(tmp_path: Path) -> None:
    flood = "```bash\nseq 200000; until [ -e go ]; do sleep 0.01; done\n```\n"
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([flood, "Done."])) as served:
        async with aclosing(served.turn(message="Count.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            path = f"/runs/{run}/calls/{(await until(turn, 'tool.started'))['call']}"
            while (await until(turn, "tool.progress"))["lines"] < 200_000:
                pass
            pieces = [await piece(served, path)]
            while pieces[-1]["next"] < pieces[-1]["characters"]:
                pieces.append(await piece(served, path, pieces[-1]["next"]))
            (tmp_path / "work/go").touch()
            async for _ in turn:
                pass
    [gap] = [place for place in range(1, len(pieces)) if pieces[place]["from"] > pieces[place - 1]["next"]]
    assert text_of(pieces[:gap]).startswith("1\n2\n") and text_of(pieces).endswith("\n199999\n200000\n")
    assert pieces[gap]["text"].partition("\n")[0].isdigit() and len(text_of(pieces)) <= TEXT_CHARACTERS
    first = int(pieces[gap]["text"].partition("\n")[0])
    assert text_of(pieces[gap:]) == "".join(f"{number}\n" for number in range(first, 200_001))


async def test_a_job_is_followed_and_its_secrets_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPEN_SECRET", SECRET)
    # The secret lies across the end of the first piece, in pieces, while it is being written, and behind the gap.
    script = (
        f"head -c {PIECE - 10} /dev/zero | tr '\\0' x; printf sesame-open-; printf '0123456789 é\\n'; "
        "until [ -e go ]; do sleep 0.01; done; "
        f"head -c {3 * HEAD} /dev/zero | tr '\\0' y; printf '\\nsesame-'; echo open-0123456789"
    )
    model = Scripted([in_background(script), says("It runs."), "Told."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        _, job = await job_of(served)
        path, seen = f"/jobs/{job}", list[dict[str, Any]]()
        while not seen or seen[-1]["next"] < PIECE + 10:
            seen.append(await piece(served, path, seen[-1]["next"] if seen else 0))
        assert text_of(seen) == "x" * (PIECE - 10) + MARK + " é\n" and not seen[-1]["done"]
        (tmp_path / "work/go").touch()
        async with served.client.stream("GET", f"{path}/events") as watched:
            await watched.aread()
        end = await rest(served, path, seen[-1]["next"])
        assert any(one["from"] > before["next"] for before, one in pairwise(end))
        assert text_of(end).endswith(f"y\n{MARK}\n") and SECRET not in text_of(end)
        assert (end[-1]["lines"], end[-1]["next"]) == (3, end[-1]["characters"])
        assert (await served.client.get("/jobs/job_x/output")).status_code == 404


async def test_a_call_that_was_killed_with_its_server_ends_all_the_same(tmp_path: Path) -> None:
    waits = "```bash\necho begun; until [ -e go ]; do sleep 0.01; done\n```\n"
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([waits, "Done."])) as served:
        async with aclosing(served.turn(message="Wait.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            path = f"/runs/{run}/calls/{(await until(turn, 'tool.started'))['call']}"
            assert not (await piece(served, path))["done"]
            assert (await served.client.post(f"/runs/{run}/cancel")).status_code == 200
        assert (await rest(served, path))[-1]["done"]


async def test_a_call_that_is_stopped_keeps_what_it_had_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPEN_SECRET", SECRET)
    coloured = f"printf '{SECRET[:9]}\\033[31m{SECRET[9:]}\\n'"
    chatty = f"```bash\nseq 5000; echo {SECRET}; {coloured}; until [ -e go ]; do sleep 0.01; done\n```\n"
    model = Scripted([chatty, "I see."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        async with aclosing(served.turn(message="Count.")) as turn:
            started = await until(turn, "run.started")
            path = f"/runs/{started['run']}/calls/{(await until(turn, 'tool.started'))['call']}"
            while (await until(turn, "tool.progress"))["lines"] < 5002:
                """It counts."""
            assert (await served.client.post(f"/runs/{started['run']}/cancel")).status_code == 200
            finished, ended = await until(turn, "tool.finished"), await until(turn, "run.finished")
        assert (finished["ok"], "exit_code" in finished, ended["reason"]) == (False, False, "cancelled")
        assert finished["text"].startswith(f"{STOPPED} {PRINTED}\n1\n2\n")
        assert f"\n5000\n{MARK}" in finished["text"] and "left out" in finished["text"]
        whole = text_of(await rest(served, path))
        assert "\n2500\n" in whole and SECRET not in whole and SECRET[9:] not in whole
        await served.chat("And?", session=started["session"])
    assert [one.text for one in model.requests[1].messages if one.role == "tool"] == [finished["text"]]

"""Replays over HTTP: of whom, when, and what is in a recording; secrets are neither stored in one nor answered."""

from __future__ import annotations

import asyncio
import json
import zlib
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.models.scripted import Pause, Scripted
from app.replay.derived import MISSING
from app.replay.loading import CUT, WENT_ON
from app.replay.recording import NO_EVENTS, read_recording
from app.runs.recording import recorder
from app.storage.runs import RunRow
from routes.lanes.catalogue import LANES
from tests.support.access.people import bearer
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, hang, stream, upstream
from tests.support.replays import CALL, SECRET, TOKEN, WORDS, recording
from tests.support.server.dragoman_process import server
from tests.support.server.serving import Served, events_of, serving, until

pytestmark = pytest.mark.anyio
LIMIT_S = 60
LATER = "sk-learned-much-later-1"
Fields = dict[str, Any]


async def replayed(client: httpx2.AsyncClient, run: str, **body: object) -> Fields:
    answer = await client.post(f"/runs/{run}/replay", json=body)
    assert answer.status_code == 200, answer.text
    fields: Fields = answer.json()
    return fields


async def parts_of(served: Served, run: str) -> list[str]:
    """The parts of a recording as they are stored, unpacked."""
    return [zlib.decompress(row.data).decode() for row in await served.services.store.recording(run)]


async def test_a_run_is_replayed_and_exported(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), recording(tmp_path, [CALL, "It printed hi."]) as served:
        run = (await served.chat("Print hi"))[0]["run"]
        same = {"run": run, "state": "same", "differences": [], "missing": []}
        assert await replayed(served.client, run) == same
        assert await replayed(served.client, run, exact=True) == same
        assert (await served.client.post(f"/runs/{run}/replay")).json() == same, "the body may be left out"
        file = await served.client.get(f"/runs/{run}/recording")
        assert file.headers["content-disposition"] == f'attachment; filename="{run}.json"'
        assert read_recording(file.content, "run.json").run.id == run
        assert [one.id for one in await served.services.store.ended_runs(0)] == [run], "a replay is no run"


async def test_runs_of_others_are_not_there(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), recording(tmp_path, ["Hi."]) as served:
        run = (await served.chat())[0]["run"]
        headers = await bearer(served, "bob")
        for name in (run, "run_none"):
            for answer in (
                await served.client.post(f"/runs/{name}/replay", json={}, headers=headers),
                await served.client.get(f"/runs/{name}/recording", headers=headers),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_a_run_under_way_and_one_without_log_are_refused(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with asyncio.timeout(LIMIT_S), recording(tmp_path, [["Well, ", Pause(gate), "there."]]) as served:
        async with aclosing(served.turn(message="Hello")) as turn:
            run = (await until(turn, "run.started"))["run"]
            for answer in (
                await served.client.post(f"/runs/{run}/replay"),
                await served.client.get(f"/runs/{run}/recording"),
            ):
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (409, "not_replayable")
                assert error["message"] == f"Run {run} has not ended. Replay it when it has, or cancel it."
            gate.set()
            assert [event["type"] async for event in turn][-1] == "run.finished"
        row = await served.services.store.run(run)
        assert row
        await served.services.store.write([without_log(row)])
        answer = await served.client.post("/runs/run_silent/replay")
        assert (answer.status_code, answer.json()["error"]["message"]) == (409, NO_EVENTS)


def without_log(row: RunRow) -> RunRow:
    fields = {name: getattr(row, name) for name in RunRow.__struct_fields__}
    return RunRow(**fields | {"id": "run_silent"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"live": True}, "live: only for a trial, which names another model, profile or system text"),
        ({"match": "name", "checks": {"text": ["a"]}}, "checks, match: only for a trial"),
        ({"model": ""}, "model"),
        ({"model": "m", "match": "nearly"}, "match"),
        ({"model": "m", "checks": {"songs": []}}, "songs"),
        ({"model": "m", "checks": {"text": ["a"] * 65}}, "checks"),
        ({"exact": "perhaps"}, "exact"),
        ({"song": 1}, "song"),
    ],
    ids=str,
)
async def test_a_bad_body_is_answered_in_words(tmp_path: Path, body: object, words: str) -> None:
    async with asyncio.timeout(LIMIT_S), recording(tmp_path, ["Hi."]) as served:
        run = (await served.chat())[0]["run"]
        answer = await served.client.post(f"/runs/{run}/replay", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_request")
    assert words in json.dumps(answer.json()["error"])


@pytest.mark.parametrize("setting", [False, True])
async def test_a_request_is_recorded_as_it_says(tmp_path: Path, setting: bool) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi.", "Hi."]), record=setting) as served:
        as_set = (await served.chat())[0]["run"]
        otherwise = (await served.chat(record=not setting))[0]["run"]
        for run, recorded in ((as_set, setting), (otherwise, not setting)):
            assert bool(await parts_of(served, run)) is recorded
            said = await replayed(served.client, run)
            assert (said["state"], said["missing"]) == ("same", [] if recorded else list(MISSING))


async def test_a_recording_goes_with_its_session(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), recording(tmp_path, ["Hi.", "Hi."]) as served:
        first, other = (await served.chat())[0], (await served.chat())[0]
        assert (await served.client.delete(f"/sessions/{first['session']}")).is_success
        assert not await served.services.store.recording(first["run"])
        assert await served.services.store.recording(other["run"])
        assert (await served.client.get(f"/runs/{first['run']}/recording")).status_code == 404


async def test_secrets_are_neither_stored_nor_answered(tmp_path: Path) -> None:
    shows = f"```bash\necho {SECRET} {TOKEN} {LATER}\n```\n"
    async with asyncio.timeout(LIMIT_S), recording(tmp_path, [shows, WORDS]) as served:
        run = (await served.chat(f"The key is {SECRET}, the token {TOKEN}, and {LATER}"))[0]["run"]
        stored = "".join(await parts_of(served, run))
        assert SECRET not in stored and TOKEN not in stored and "⟦secret 1⟧" in stored and "⟦token 2⟧" in stored
        served.services.redactor.add(LATER)  # it was not known to be one then
        file = await served.client.get(f"/runs/{run}/recording")
        said = await served.client.post(f"/runs/{run}/replay", json={"exact": True})
        assert file.is_success and said.is_success
        for secret in (SECRET, TOKEN, LATER):
            assert secret not in file.text and secret not in said.text
        assert said.json()["state"] == "same"


async def test_a_recording_over_its_limit_is_cut_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MOST_BYTES", 2000)
    replies = [f"```bash\necho {number}\n```\n" for number in range(6)]
    async with asyncio.timeout(LIMIT_S), recording(tmp_path, [*replies, "Done."]) as served:
        lane, *_ = LANES
        assert (await served.client.post(lane.path, json={**lane.example, "stream": True})).is_success
        [row] = await served.services.store.ended_runs(0)
        run = row.id
        kinds = [row.kind for row in await served.services.store.recording(run)]
        assert kinds[-2:] == ["cut", "frames"] and kinds.count("cut") == 1 and len(kinds) < len(replies)
        said = await replayed(served.client, run)
    assert said["missing"] == [CUT]
    assert not said["differences"], "what is not recorded is none"


def whole(*texts: str) -> Act:
    return stream(*map(says, texts), chunk(finish="stop"), DONE)


STEPS = [whole("```bash\necho one\n```\n"), whole("```bash\necho two\n```\n")]
KILLED = {
    "between two rounds": ("round.started", 2, [*STEPS[:1], stream(says("Half "), then=hang), whole("a loaf.")]),
    "in an answer": ("text.delta", 1, [stream(says("Half "), then=hang), whole("a loaf.")]),
    "in a call": ("tool.started", 2, [*STEPS, whole("I look.")]),
}


@pytest.mark.parametrize("name", KILLED)
@pytest.mark.parametrize("flags", [("--record",), ()], ids=["recorded", "not recorded"])
async def test_a_run_that_went_on_after_a_restart_is_replayed_up_to_there(
    tmp_path: Path, name: str, flags: tuple[str, ...]
) -> None:
    kind, number, acts = KILLED[name]
    (tmp_path / "work").mkdir()
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model:
        run = await killed_at(tmp_path, model.base_url, kind, number, *flags)
        async with server(tmp_path, model.base_url, *flags) as (client, _):
            async with client.stream("GET", f"/runs/{run}/events") as response:
                async with aclosing(events_of(response)) as events:
                    seen = [event async for event in events]
            assert seen[-1]["type"] == "run.finished"
            assert any(event.get("code") == "resumed" for event in seen)
            said = await replayed(client, run)
    assert said["missing"] == [WENT_ON, *([] if flags else MISSING)]
    assert not said["differences"]


async def killed_at(folder: Path, url: str, kind: str, number: int, *flags: str) -> str:
    """The run whose server was killed at the `number`th event of this type."""
    run, left = "", number
    async with server(folder, url, *flags) as (client, process):
        with suppress(httpx2.TransportError):
            async with client.stream("POST", "/chat", json={"message": "Go"}) as response:
                run = response.headers["x-run-id"]
                async with aclosing(events_of(response)) as events:
                    async for event in events:
                        left -= event["type"] == kind
                        if not left:
                            process.kill()
                            break
        process.kill()
        await process.wait()
    return run

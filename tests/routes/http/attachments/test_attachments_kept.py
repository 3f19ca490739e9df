"""Pictures and PDFs in the store: kept once, through kills, as long as a session has them, for its owner alone."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path

import pytest

from app.core.attachments import dumped
from app.core.messages import Message, dump
from app.models.scripted import Scripted
from app.storage.files.kinds import file_of
from app.storage.files.store import FileRow, SessionFile
from app.storage.runs import EventRow, InboxRow, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.storage.sqlite.store import SQLiteStore
from tests.support.access.people import LIMIT_S, bearer
from tests.support.models.chatting import says
from tests.support.models.pictures import (
    CAT,
    LAW,
    files_of,
    hashed,
    image_part,
    png,
    seen_by,
)
from tests.support.models.upstream import stream, upstream
from tests.support.server.dragoman_process import server
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("database")
async def test_one_file_of_two_sessions_stays_until_the_last_has_gone(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["I see."], repeat=True)) as served:
        first, second = [(await served.chat([image_part(CAT)]))[0]["session"] for _ in range(2)]
        other = (await served.chat([image_part(LAW)]))[0]["session"]
        assert await files_of(served) == {"files": 2, "session_files": 3}
        assert (await served.client.get(f"/sessions/{other}/files/{hashed(CAT)}")).status_code == 404
        await served.client.delete(f"/sessions/{first}")
        assert await files_of(served) == {"files": 2, "session_files": 2}
        assert (await served.client.get(f"/sessions/{first}/files/{hashed(CAT)}")).status_code == 404
        assert (await served.client.get(f"/sessions/{second}/files/{hashed(CAT)}")).content == CAT
        await served.client.delete(f"/sessions/{second}")
        assert await files_of(served) == {"files": 1, "session_files": 1}
        assert await served.services.store.forget_before(9e9, 9e9) == 1
        assert await files_of(served) == {"files": 0, "session_files": 0}


@pytest.mark.usefixtures("database")
async def test_a_file_is_its_sessions_alone(tmp_path: Path) -> None:
    """Knowing its hash, or having sent the same one, opens nobody else's session."""
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["I see."], repeat=True)) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob", "admin")
        served.client.headers |= ann
        session = (await served.chat([image_part(CAT)]))[0]["session"]
        path = f"/sessions/{session}/files/{hashed(CAT)}"
        assert (await served.client.get(path)).content == CAT
        served.client.headers |= bob
        assert (await served.client.get(path)).status_code == 404
        own = (await served.chat([image_part(CAT)]))[0]["session"]
        assert (await served.client.get(path)).status_code == 404
        assert (await served.client.get(f"/sessions/{own}/files/{hashed(CAT)}")).content == CAT
        assert (await served.client.get(f"/sessions/{own}/files/{hashed(LAW)}")).status_code == 404
        assert (await served.client.get(f"/sessions/{own}/files/..%2f..%2fetc")).status_code == 404


async def test_what_was_accepted_survives_a_kill(tmp_path: Path) -> None:
    """Messages that had been taken, of a run under way and of one that waited, with what was attached to them."""
    store = await SQLiteStore.open(tmp_path / "data" / "dragoman.db")
    cat, law = (file_of(data).attachment for data in (CAT, LAW))
    await store.write(
        [
            SessionRow("ses_1", "local", 1.0, "t"),
            RunRow("run_1", "ses_1", "local", "scripted", "running", 1.0),
            MessageRow("ses_1", 0, "run_1", dump(Message("user", "First"))),
            InboxRow("run_1", 1, "Second", dumped([cat])),
            RunRow("run_2", "ses_1", "local", "scripted", "queued", 2.0),
            InboxRow("run_2", 0, "Third", dumped([law])),
            EventRow("run_1", 1, "run.started", '{"type": "run.started"}'),
            *(FileRow(cat.sha256, CAT), FileRow(law.sha256, LAW)),
            *(SessionFile("ses_1", cat.sha256), SessionFile("ses_1", law.sha256)),
        ]
    )
    await store.close()
    model = Scripted(["Now."], repeat=True)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        for run in ("run_1", "run_2"):
            assert (await served.events(run))[-1]["type"] == "run.finished"
        await served.chat("Fourth", session="ses_1")
        said = [(text, [file.sha256 for file in files]) for text, files in seen_by(model)]
        assert said[-4:] == [("First", []), ("Second", [cat.sha256]), ("Third", [law.sha256]), ("Fourth", [])]
        read = model.requests[0].read
        assert read
        assert await read(law.sha256) == LAW


async def test_files_survive_a_server_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    held = asyncio.Event()

    async def never(*_: object) -> None:
        await held.wait()

    half = stream(says("Half"), then=never)
    async with asyncio.timeout(2 * LIMIT_S), upstream(half, repeat=True, chats=True) as model:
        async with server(tmp_path, model.base_url) as (client, process):
            async with client.stream("POST", "/chat", json={"message": [image_part(CAT)]}) as response:
                session, run = response.headers["x-session-id"], response.headers["x-run-id"]
                await anext(response.aiter_bytes())
                steered = await client.post(f"/runs/{run}/messages", json={"message": [image_part(LAW)]})
                assert steered.status_code == 202
                process.kill()
                held.set()
                await process.wait()
        async with server(tmp_path, model.base_url) as (client, _):
            messages = (await client.get(f"/sessions/{session}")).json()["messages"]
            shown = [file["sha256"] for message in messages for file in message.get("attachments", ())]
            assert shown == [hashed(CAT), hashed(LAW)]
            for data in (CAT, LAW):
                assert (await client.get(f"/sessions/{session}/files/{hashed(data)}")).content == data


@pytest.mark.usefixtures("database")
async def test_names_are_found_by_a_search(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["I see."])) as served:
        session = (await served.chat([image_part(CAT, name="tabby.png")]))[0]["session"]
        [(position, message)] = await served.services.store.search(session, "tabby", 5)
        assert (position, message.attachments[0].name) == (0, "tabby.png")


async def test_a_secret_in_a_name_is_hidden_and_bytes_are_left_alone(tmp_path: Path) -> None:
    key = "sk-of-today-4711-Zeisig"
    data = png(tail=b64encode(b"x" * 30) + key.encode())
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["I see."]), model_key=key) as served:
        session = (await served.chat([image_part(data, name=f"{key}.png")]))[0]["session"]
        shown = await served.client.get(f"/sessions/{session}")
        assert key not in shown.text
        assert shown.json()["messages"][0]["attachments"][0]["name"] == "[redacted].png"
        assert (await served.client.get(f"/sessions/{session}/files/{hashed(data)}")).content == data

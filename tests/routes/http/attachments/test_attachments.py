"""Pictures and PDFs in messages, over HTTP: from the body to the model, and back to their owner alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.models.scripted import Pause, Scripted
from app.storage.files.reading import AT_A_TIME
from app.storage.principals import LOCAL_USER
from tests.support.access.people import LIMIT_S
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.pictures import (
    CAT,
    LAW,
    data_url,
    encoded,
    files_of,
    gif,
    hashed,
    image_part,
    jpeg,
    png,
    seen_by,
    text_part,
    webp,
)
from tests.support.models.scripted_models import Blind
from tests.support.models.upstream import Upstream, stream, upstream
from tests.support.server.dragoman_process import server
from tests.support.server.serving import answer_in, serving, until

pytestmark = pytest.mark.anyio


FORMS: dict[str, tuple[dict[str, object], bytes, str, str]] = {
    "ours": (image_part(CAT, name="cat.png"), CAT, "image/png", "cat.png"),
    "ours, as a file": ({"type": "file", "data": encoded(LAW), "name": "law.pdf"}, LAW, "application/pdf", "law.pdf"),
    "ours, with a data URL": ({"type": "image", "data": data_url(CAT)}, CAT, "image/png", ""),
    "ours, with line ends": ({"type": "image", "data": "\n".join(encoded(CAT))}, CAT, "image/png", ""),
    "a lie: a JPEG as PNG": ({"type": "image", "data": data_url(jpeg())}, jpeg(), "image/jpeg", ""),
    "a lie: a PDF as picture": (image_part(LAW, name="law.png"), LAW, "application/pdf", "law.png"),
    "OpenAI's picture": (
        {"type": "image_url", "image_url": {"url": data_url(gif(), "image/gif"), "detail": "low"}},
        gif(),
        "image/gif",
        "",
    ),
    "OpenAI's file": (
        {"type": "file", "file": {"file_data": data_url(LAW, "application/pdf"), "filename": "law.pdf"}},
        LAW,
        "application/pdf",
        "law.pdf",
    ),
    "WebP": (image_part(webp()), webp(), "image/webp", ""),
    "a name that is none": (image_part(CAT, name="a\nb\u202e.png"), CAT, "image/png", "a_b_.png"),
}


async def test_every_form_reaches_the_model_and_comes_back(tmp_path: Path) -> None:
    model = Scripted(["I see."], repeat=True)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        for name, (part, data, media_type, called) in FORMS.items():
            events = await served.chat([text_part("Look:"), part, text_part("What is it?")])
            assert events[-1]["type"] == "run.finished", name
            [(text, [file])] = seen_by(model)
            assert text == "Look:\nWhat is it?"
            assert (file.sha256, file.media_type, file.name) == (hashed(data), media_type, called), name
            read = model.requests[-1].read
            assert read
            assert await read(file.sha256) == data
            session = (await served.client.get(f"/sessions/{events[0]['session']}")).json()
            [told] = session["messages"][0]["attachments"]
            assert (told["sha256"], told["media_type"], told["size"]) == (file.sha256, media_type, len(data))
            answer = await served.client.get(f"/sessions/{session['id']}/files/{file.sha256}")
            assert (answer.content, answer.headers["content-type"]) == (data, media_type)
            how = "attachment" if media_type == "application/pdf" else "inline"
            assert answer.headers["content-disposition"].startswith(f"{how}; filename=")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in answer.headers["content-security-policy"]
        assert (await files_of(served))["files"] == len({data for _, data, _, _ in FORMS.values()})


REFUSED: dict[str, tuple[object, int, str]] = {
    "a URL": ({"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}, 422, "nothing is fetched"),
    "a URL as data": ({"type": "image", "data": "http://example.com/cat.png"}, 422, "message.1.data is a URL"),
    "a file's URL": ({"type": "file", "data": "file:///etc/passwd"}, 422, "message.1.data is a URL"),
    "no base64": ({"type": "image", "data": "c@t!"}, 422, "message.1.data is not base64"),
    "a data URL of text": ({"type": "image", "data": "data:image/png,abc"}, 422, "without ;base64"),
    "half a base64": ({"type": "image", "data": "abcde"}, 422, "message.1.data is not base64"),
    "no ASCII": ({"type": "image", "data": "Kätzchen"}, 422, "message.1.data is not base64"),
    "an SVG": (
        image_part(b"<svg onload='x'/>"),
        422,
        "message.1.data: its bytes are none of PNG, JPEG, GIF",
    ),
    "nothing": (image_part(b""), 422, "none of PNG"),
    "an HTML page that says PNG": ({"type": "image", "data": data_url(b"<html>")}, 422, "none of PNG"),
    "a number": ({"type": "image", "data": 5}, 422, "message.1.data: send its bytes as a string of base64"),
    "no data": ({"type": "image"}, 422, "message.1.data is missing"),
    "a field too many": (image_part(CAT) | {"url": "x"}, 422, "unknown field message.1.url"),
    "a long name": (image_part(CAT, name="x" * 300), 422, "message.1.name"),
    "a name that cannot be kept": (image_part(CAT, name="a\0"), 422, "message.1.name"),
    "no file": ({"type": "file", "file": {"filename": "x"}}, 422, "message.1.file.file_data is missing"),
    "too many parts": ([text_part("x")] * 4097, 422, "message: List should have at most 4096 items"),
    "too much": (
        image_part(png(tail=bytes(50_000))),
        413,
        "message.1.data: the files of message have more",
    ),
    "far too much": (image_part(png(tail=bytes(500_000))), 413, "DRAGOMAN_MAX_ATTACHMENT_BYTES"),
}


async def test_what_is_refused_says_which_part_and_what_to_do(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_attachment_bytes": "40960", "max_attachments": "2", "max_message_bytes": "1024"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), **limits) as served:
        for name, (part, status, said) in REFUSED.items():
            message = part if isinstance(part, list) else [text_part("x"), part]
            answer = await served.client.post("/chat", json={"message": message})
            assert answer.status_code == status, name
            assert said in answer.json()["error"]["message"], name
        for name in ("attachments", "files", "images"):
            aside = await served.client.post("/chat", json={"message": "x", name: [image_part(CAT)]})
            assert (aside.status_code, "send files as parts of message" in aside.text) == (422, True), name
        three = await served.client.post("/chat", json={"message": [image_part(CAT)] * 3})
        assert (three.status_code, three.json()["error"]["code"]) == (422, "too_many_files")
        sum_of_two = await served.client.post("/chat", json={"message": [image_part(png(tail=bytes(25_000)))] * 2})
        assert (sum_of_two.status_code, "message.1.data" in sum_of_two.text) == (413, True)
        words = await served.client.post("/chat", json={"message": "x" * 2000})
        assert (words.status_code, words.json()["error"]["code"]) == (413, "too_long")
        many = await served.client.post("/chat", content=b"[" * 300_000)
        assert (many.status_code, "too many parts" in many.text) == (413, True)
        assert await files_of(served) == {"files": 0, "session_files": 0}


async def test_large_requests_of_one_person_wait_for_each_other(tmp_path: Path) -> None:
    large = {"message": [image_part(png(tail=bytes(1 << 20)))]}
    model, limits = Scripted(["I see."], repeat=True), {"max_message_bytes": "1024"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, None, **limits) as served:
        slots = served.services.factory.files.upload_slots(LOCAL_USER.name)
        for _ in range(AT_A_TIME):
            await slots.acquire()
        waits = asyncio.create_task(served.client.post("/chat", json=large))
        assert (await served.chat([image_part(CAT)]))[-1]["type"] == "run.finished", "small ones wait for nobody"
        assert not waits.done()
        for _ in range(AT_A_TIME):
            slots.release()
        assert "run.finished" in (await waits).text
        await asyncio.gather(*(served.client.post("/chat", json=large) for _ in range(3 * AT_A_TIME)))
        assert len(model.requests) == 2 + 3 * AT_A_TIME


async def test_a_server_without_attachments_takes_none(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), max_attachments="0") as served:
        answer = await served.client.post("/chat", json={"message": [image_part(CAT)]})
        assert (answer.status_code, "DRAGOMAN_MAX_ATTACHMENTS" in answer.text) == (422, True)


async def test_a_message_of_files_alone_is_one(tmp_path: Path) -> None:
    model = Scripted(["A cat."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        events = await served.chat([image_part(CAT, name="cat.png"), image_part(CAT)])
        [(text, files)] = seen_by(model)
        assert (text, [file.sha256 for file in files]) == ("", [hashed(CAT)] * 2)
        [session] = (await served.client.get("/sessions")).json()["sessions"]
        assert (session["id"], session["title"]) == (events[0]["session"], "cat.png, picture.png")
        empty = await served.client.post("/chat", json={"message": [text_part(" ")]})
        assert empty.status_code == 422


async def test_a_run_under_way_and_one_that_waits_take_files_too(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    model = Scripted([["```bash\ntrue\n```", Pause(go_on)], "Both.", "All three."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        async with aclosing(served.turn(message=[image_part(CAT)])) as turn:
            started = await until(turn, "run.started")
            steered = {"message": [image_part(LAW, name="law.pdf")]}
            answer = await served.client.post(f"/runs/{started['run']}/messages", json=steered)
            assert answer.status_code == 202
            queued = served.turn(message=[image_part(gif())], session=started["session"], when_busy="queue")
            async with aclosing(queued) as waiting:
                await until(waiting, "notice")
                go_on.set()
                added = await until(turn, "message.added")
                assert (added["text"], [file["name"] for file in added["attachments"]]) == ("", ["law.pdf"])
                assert answer_in((await until(turn, "run.finished"))["text"]) == "Both."
                assert (await until(waiting, "run.finished"))["text"] == "All three."
        shown = [file.media_type for _, files in seen_by(model) for file in files]
        assert shown == ["image/png", "application/pdf", "image/gif"]
        assert await files_of(served) == {"files": 3, "session_files": 3}


async def test_the_same_key_is_for_the_same_files_only(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["One", "Two"])) as served:

        async def ask(part: Mapping[str, object]) -> httpx2.Response:
            body = {"message": [text_part("x"), part]}
            return await served.client.post("/chat", json=body, headers={"idempotency-key": "k"})

        first, again = await ask(image_part(CAT)), await ask({"type": "image", "data": data_url(CAT)})
        assert first.headers["x-run-id"] == again.headers["x-run-id"]
        for other in (image_part(gif()), image_part(CAT, name="dog.png"), text_part("y")):
            refused = await ask(other)
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "key_reused")


async def test_a_model_that_cannot_see(tmp_path: Path) -> None:
    model = Blind(["I go on.", "I am told of it."])
    body = [image_part(CAT, name="cat.png"), text_part("What is it?")]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        started, *_, failed = await served.chat(body)
        failed_in = started["session"]
        assert (failed["type"], failed["code"], failed["retryable"]) == ("run.failed", "no_vision", False)
        assert "without_vision: describe" in failed["message"]
        assert model.requests == []
        [endpoint] = (await served.client.get("/endpoints")).json()["endpoints"]
        assert endpoint["last_error"] is None, "no trouble of the server's, and what people send is theirs"
        after = await served.chat("Never mind.", session=failed_in)
        assert after[-1]["text"] == "I go on.", "the session is not lost"
        assert [event["code"] for event in after if event["type"] == "notice"] == ["no_vision"]
        events = await served.chat(body, without_vision="describe")
        [notice] = [event for event in events if event["type"] == "notice"]
        assert (notice["code"], "cat.png" in notice["message"]) == ("no_vision", True)
        assert events[-1]["text"] == "I am told of it."
        words = "[picture cat.png, 80 x 60, image/png: this model cannot see it]\nWhat is it?"
        assert seen_by(model)[-1] == (words, ())
        messages = (await served.client.get(f"/sessions/{events[0]['session']}")).json()["messages"]
        assert (messages[0]["text"], len(messages[0]["attachments"])) == ("What is it?", 1)
        wrong = await served.client.post("/chat", json={"message": "x", "without_vision": "guess"})
        assert wrong.status_code == 422


async def test_a_picture_for_a_run_under_way_does_not_end_it(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    model = Blind([["```bash\ntrue\n```", Pause(go_on)], "I go on."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        async with aclosing(served.turn(message="Work.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            await served.client.post(f"/runs/{run}/messages", json={"message": [image_part(CAT)]})
            go_on.set()
            assert "cannot see picture.png" in (await until(turn, "notice"))["message"]
            assert answer_in((await until(turn, "run.finished"))["text"]) == "I go on."


async def wire_of(folder: Path, model: Upstream, turns: Sequence[object]) -> list[Any]:
    """The messages of each request to an OpenAI server."""
    (folder / "work").mkdir()
    async with server(folder, model.base_url) as (client, _):
        session: dict[str, str] = {}
        for message in turns:
            answer = await client.post("/chat", json={"message": message, **session})
            session = {"session": answer.headers["x-session-id"]}
            assert "run.finished" in answer.text, answer.text
    return [asked.json["messages"] for asked in model.asked]


async def test_on_the_wire_each_round_begins_with_the_same_bytes(tmp_path: Path) -> None:
    replies = [stream(says(text), chunk(finish="stop"), DONE) for text in ("```bash\ntrue\n```", "A cat.", "A law.")]
    async with asyncio.timeout(2 * LIMIT_S), upstream(*replies, chats=True) as model:
        turns = [[text_part("What is it?"), image_part(CAT)], [image_part(LAW, name="law.pdf")]]
        first, second, third = await wire_of(tmp_path, model, turns)
    [parts] = [message["content"] for message in first if isinstance(message["content"], list)]
    assert parts[0] == {"type": "image_url", "image_url": {"url": data_url(CAT)}}
    assert parts[1]["type"] == "text"
    where = "[picture picture.png, 80 x 60, image/png, in the workspace]"
    assert parts[1]["text"].startswith(f"{where}\nWhat is it?")
    written = [json.dumps(one) for one in (first, second, third)]
    assert written[1].startswith(written[0][:-1])
    assert written[2].startswith(written[1][:-1])
    file = {"filename": "law.pdf", "file_data": data_url(LAW, "application/pdf")}
    assert {"type": "file", "file": file} in third[-1]["content"]

"""Documents beside the chat: made, changed and suggested by the model, edited by the person, known to both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.documents.library import Decided, Gone
from app.documents.limits import MOST_VERSIONS, last_forgotten
from app.models.scripted import Pause, Reply, Scripted
from app.runs.run_options import RunOptions
from app.storage.documents import MOST_CHARACTERS, DocumentRow, VersionInfo
from app.storage.principals import LOCAL_USER
from app.transcript.run_request import RunRequest
from routes.terminal.event_client import Choices
from routes.terminal.view import View, read_event
from tests.support.access.guards import rows_kept
from tests.support.access.people import LIMIT_S, bearer
from tests.support.models.replies import tool_call
from tests.support.server.documents import CREATE, TEXT, make_document, save_document
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, serving, until
from tests.support.terminal.paper_terminal import conversed

pytestmark = pytest.mark.anyio
SECRET = "s3cret-w0rd-of-ours"
KINDS = ("document.started", "document.delta", "document.finished", "document.changed", "document.suggested")


UPDATE = tool_call("update_document", document="Trip", old="by train", new="by boat")
SUGGEST = tool_call("suggest_edits", document="trip", old="bread", new="fish", reason="There is a harbour.")


async def shown(served: Served, document: str, **query: object) -> dict[str, Any]:
    response = await served.client.get(f"/documents/{document}", params={k: str(v) for k, v in query.items()})
    assert response.status_code == 200, response.text
    fields: dict[str, Any] = response.json()
    return fields


async def test_a_document_is_streamed_once_and_then_changed_and_suggested_on(tmp_path: Path) -> None:
    pieces = [CREATE[at : at + 7] for at in range(0, len(CREATE), 7)]
    model = Scripted([pieces, UPDATE, SUGGEST, tool_call("read_document", document="Trip"), "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        events = await served.chat("Write it.")
        begun, finished = of_kind(events, "document.started"), of_kind(events, "document.finished")
        assert len(begun) == len(finished) == 1
        document = begun[0]["document"]
        assert (begun[0]["title"], begun[0]["call"]) == ("Trip", finished[0]["call"])
        assert "".join(event["text"] for event in of_kind(events, "document.delta")) == TEXT
        written = "".join(event["text"] for event in of_kind(events, "tool.delta") if event["call"] == begun[0]["call"])
        assert json.loads(written) == {"title": "Trip", "content": ""}
        assert {**finished[0], "seq": 0} == {
            **{"type": "document.finished", "document": document, "call": begun[0]["call"], "ok": True, "version": 1},
            **{"title": "Trip", "kind": "markdown", "characters": len(TEXT), "seq": 0},
        }
        [changed] = of_kind(events, "document.changed")
        assert (changed["version"], changed["start"], changed["old"], changed["new"]) == (2, 14, "by train", "by boat")
        [suggested] = of_kind(events, "document.suggested")
        assert (suggested["suggestion"], suggested["old"], suggested["new"]) == (1, "bread", "fish")
        results = [event["text"] for event in of_kind(events, "tool.finished")]
        assert "-We go by train.\n+We go by boat." in results[1]
        assert "We go by boat.\n\nWe eat bread." in results[3] and "version 2" in results[3]
        kinds = [event["type"] for event in events]
        assert kinds.index("document.delta") < kinds.index("tool.started") < kinds.index("document.finished")

        now = await shown(served, document)
        assert (now["version"], now["author"], now["open_suggestions"]) == (2, "model", 1)
        assert now["text"] == TEXT.replace("train", "boat")
        assert (await shown(served, document, version=1))["text"] == TEXT
        versions = (await served.client.get(f"/documents/{document}/versions")).json()["versions"]
        assert [(one["version"], one["author"], one["characters"]) for one in versions] == [
            (2, "model", len(TEXT) - 1),
            (1, "model", len(TEXT)),
        ]
        listed = (await served.client.get(f"/sessions/{events[0]['session']}/documents")).json()["documents"]
        assert [one["id"] for one in listed] == [document]


async def test_the_model_sees_once_what_the_person_has_changed(tmp_path: Path) -> None:
    suggest = SUGGEST.replace("trip", "journey")
    model = Scripted([CREATE, "Written.", suggest, suggest.replace("fish", "rice"), "Suggested.", "I see.", "Nothing."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session, document = await make_document(served)
        assert await save_document(served, document, version=1, text=TEXT.replace("train", "car"), title="Journey") == (
            200,
            await about(served, session),
        )
        status, refused = await save_document(served, document, version=1, text="Lost?")
        assert (status, refused["error"]["code"], refused["error"]["version"]) == (409, "document_changed", 2)
        events = await served.chat("Now?", session=session)
        assert [notice["code"] for notice in of_kind(events, "notice")] == ["document_edited"]
        seen = [message.text for message in model.requests[-3].messages if message.role == "user"]
        assert "version 1 -> 2" in seen[-2] and "-We go by train.\n+We go by car." in seen[-2] and "Now?" in seen[-1]

        decide = f"/documents/{document}/suggestions"
        accepted = await served.client.post(f"{decide}/1", json={"decision": "accept"})
        assert (accepted.status_code, accepted.json()["version"]) == (200, 3)
        again = await served.client.post(f"{decide}/1", json={"decision": "reject"})
        stale = await served.client.post(f"{decide}/2", json={"decision": "accept"})
        assert [(one.status_code, one.json()["error"]["code"]) for one in (again, stale)] == [
            (409, "suggestion_decided")
        ] * 2
        assert (await served.client.post(f"{decide}/2", json={"decision": "reject"})).status_code == 200
        assert "We eat fish." in (await shown(served, document))["text"]
        await served.chat("And now?", session=session)
        last = [message.text for message in model.requests[-1].messages if message.role == "user"][-2]
        assert "accepted your suggestion 1" in last and "rejected your suggestion 2" in last
        assert "version 2 -> 3" in last and "+We eat fish." in last
        before = model.requests[-1].messages
        assert not of_kind(await served.chat("More?", session=session), "notice"), "it is told once"
        assert [m.text for m in model.requests[-1].messages][: len(before)] == [m.text for m in before]


async def about(served: Served, session: str) -> dict[str, Any]:
    response = await served.client.get(f"/sessions/{session}/documents")
    fields: dict[str, Any] = response.json()["documents"][0]
    return fields


async def test_an_edit_in_the_middle_of_a_run_reaches_its_next_round(tmp_path: Path) -> None:
    held = asyncio.Event()
    replies: list[Reply] = [CREATE, "Written.", [Pause(held), tool_call("read_document")], UPDATE, "Done."]
    model = Scripted(replies)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session, document = await make_document(served)
        async with aclosing(served.turn(message="Change it.", session=session)) as turn:
            await until(turn, "round.started")
            await save_document(served, document, version=1, text=TEXT.replace("by train", "on foot"))
            held.set()
            events = [event async for event in turn]
        [refused] = [event for event in of_kind(events, "tool.finished") if not event["ok"]]
        assert "old is not in" in refused["text"]
        run = (await served.client.get(f"/sessions/{session}")).json()["runs"][-1]["id"]
        again = await served.client.post(f"/runs/{run}/replay")
        assert again.status_code == 409 and "changed documents" in again.json()["error"]["message"]
        [round_of_edit] = [at for at, one in enumerate(model.requests) if "version 1 -> 2" in one.messages[-1].text]
        assert round_of_edit == 3, "the first round after it"
        assert sum("version 1 -> 2" in message.text for message in model.requests[-1].messages) == 1


async def test_nothing_is_lost_while_the_model_and_the_person_write(tmp_path: Path) -> None:
    steps = [tool_call("update_document", document="T", old=f"m{n}\n", new=f"m{n + 1}\n") for n in range(8)]
    script = [tool_call("create_document", title="T", content="m0\np0"), "Made.", *steps, "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script)) as served:
        session, document = await make_document(served)
        turn, won = asyncio.create_task(served.chat("Count.", session=session, max_rounds=20)), 0
        while not turn.done():
            now = await shown(served, document)
            text = now["text"].replace(f"p{won}", f"p{won + 1}")
            status, _ = await save_document(served, document, version=now["version"], text=text)
            won += status == 200
        changed = len(of_kind(await turn, "document.changed"))
        now = await shown(served, document)
    assert (now["version"], now["text"]) == (1 + won + changed, f"m{changed}\np{won}") and changed == len(steps)


async def test_edits_that_no_model_has_seen_survive_a_restart(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([CREATE, "Written."])) as served:
        session, document = await make_document(served)
        await save_document(served, document, version=1, text="New.")
    model = Scripted(["I see.", "Yes."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        assert of_kind(await served.chat("Now?", session=session), "notice")
        assert not of_kind(await served.chat("Now?", session=session), "notice")
        assert (await served.client.delete(f"/sessions/{session}")).status_code == 204
        assert (await served.client.get(f"/documents/{document}")).status_code == 404
    assert document not in rows_kept(tmp_path)


WRONG: Mapping[str, tuple[str, str]] = {
    "no title": (tool_call("create_document", title=" ", content="x"), "give one of 1 to"),
    "a strange kind": (tool_call("create_document", title="A", content="x", kind="a b"), "kind is markdown"),
    "too long": (tool_call("create_document", title="A", content="x" * (MOST_CHARACTERS + 1)), "keep it to 200,000"),
    "no document": (tool_call("update_document", document="B", old="x", new="y"), "There are none"),
    "nothing to read": (tool_call("read_document"), "There are no documents"),
}


async def test_calls_that_cannot_be_done_leave_no_document(tmp_path: Path) -> None:
    script = [*(call for call, _ in WRONG.values()), [CREATE[:-30]], "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script), summarise_at="1") as served:
        events = await served.chat("x", max_rounds=20)
        answers = [event.get("text", "") for event in of_kind(events, "tool.finished")]
        for (name, (_, expected)), answer in zip(WRONG.items(), answers, strict=True):
            assert expected in answer, name
        ends = of_kind(events, "document.finished")
        assert [end["ok"] for end in ends] == [False] * len(of_kind(events, "document.started")) and len(ends) == 4
        assert (await served.client.get(f"/sessions/{events[0]['session']}/documents")).json() == {"documents": []}


async def test_documents_are_their_owners_and_never_pages(tmp_path: Path) -> None:
    page = tool_call("create_document", title="A/b \u202e<i>", content="<script>alert(1)</script>", kind="html")
    script = [page, "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script)) as served:
        served.client.headers |= await bearer(served, "ann")
        session, document = await make_document(served)
        file = await served.client.get(f"/documents/{document}/file")
        assert file.headers["content-type"] == "text/plain; charset=utf-8"
        assert file.headers["content-disposition"] == "attachment; filename*=UTF-8''A_b%20%3Ci%3E.html"
        assert "sandbox" in file.headers["content-security-policy"] and file.text.startswith("<script>alert")
        paths = [f"/documents/{document}{rest}" for rest in ("", "/versions", "/file", "?version=1", "/suggestions/1")]
        assert (await served.client.get(f"{paths[0]}?version=9")).status_code == 404
        assert (await served.client.post(paths[-1], json={"decision": "accept"})).status_code == 404
        assert [(await save_document(served, document, **body))[0] for body in ({"version": 1}, {"text": "x"})] == [
            422,
            422,
        ]
        assert (await save_document(served, document, version=1, text="x" * (MOST_CHARACTERS + 1)))[0] == 422
        served.client.headers |= await bearer(served, "bob", "admin")
        got = [await served.client.get(path) for path in [*paths[:-1], f"/sessions/{session}/documents"]]
        got += [await served.client.put(paths[0], json={"version": 1, "text": ""})]
        got += [await served.client.post(paths[-1], json={"decision": "accept"})]
        assert {one.status_code for one in got} == {404}


async def test_where_nothing_is_kept_there_is_no_document(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([CREATE, "Done."])) as served:
        runs, agent = served.services.runs, await served.services.factory.agent(LOCAL_USER, RunOptions())
        row = await runs.start(agent, LOCAL_USER, RunRequest("Write it.", unlisted=True))
        async with aclosing(runs.watch(row.id, 0)) as pages:
            rows = [one async for page in pages for one in page]
        [end] = [json.loads(one.data) for one in rows if one.type == "document.finished"]
        assert not end["ok"] and "Nothing is kept" in next(one.data for one in rows if one.type == "tool.finished")
        document = DocumentRow("doc_1", "ses_1", "Trip", "plain", 1, 1, 1.0, 1.0)
        for gone in (served.services.runs.documents.save(document, 1, "x", None), decided(served, document)):
            with pytest.raises(Gone):
                await gone
    assert "We go by train" not in rows_kept(tmp_path)


async def decided(served: Served, document: DocumentRow) -> Decided:
    return await served.services.runs.documents.decide(document, 1, accept=True)


async def test_the_terminal_prints_a_document_and_a_line_for_each_change(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([CREATE, UPDATE, "Done."])) as served:
        events = await served.chat("Write it.")
        view, printed = View(summary=False), list[str]()
        for event in of_kind(events, "document.finished") + of_kind(events, "document.changed"):
            kind = event["type"]
            read = read_event(kind, json.dumps({name: value for name, value in event.items() if name != "seq"}))
            assert read
            printed += [text.plain for text in view.apply(read, 0.0)]
        asked = ("/document", "/document trip", "/document other")
        _, shown = await conversed(served.client, *asked, choices=Choices(session=events[0]["session"]))
        _, without = await conversed(served.client, "/document")
    [make_document] = of_kind(events, "document.finished")
    assert printed == [f"  ▤ Trip ({make_document['document']})\n", "  ▤ Trip: version 2\n"]
    assert shown.count(f"Trip ({make_document['document']}), version 2\nTrip\n\nWe go by boat.\n") == 2
    assert shown.count("There is no such document") == without.count("There is no such document") == 1


async def test_a_secret_is_in_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_API_KEY", SECRET)
    call = tool_call("create_document", title="Keys", content=f"It is {SECRET}.")
    script = [[call[at : at + 5] for at in range(0, len(call), 5)], "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script)) as served:
        events = await served.chat("Write it.")
        text = "".join(event["text"] for event in of_kind(events, "document.delta"))
        document = of_kind(events, "document.finished")[0]["document"]
        assert (await shown(served, document))["text"] == text and SECRET not in text
    assert SECRET not in rows_kept(tmp_path)


def test_old_versions_are_forgotten() -> None:
    def infos(newest: int, characters: int) -> list[VersionInfo]:
        return [VersionInfo(number, "model", "", 0.0, characters) for number in range(newest, 0, -1)]

    assert last_forgotten(infos(MOST_VERSIONS - 1, 10), 10) == 0
    assert last_forgotten(infos(MOST_VERSIONS, 10), 10) == 1
    assert last_forgotten(infos(50, 200_000), 200_000) == 50 - 20 + 1

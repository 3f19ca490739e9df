"""Links to conversations: what they show, what they never show, and when they lead nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.data_delimiters import as_data
from app.models.scripted import Scripted
from app.redaction.logs import redacted_logs
from app.redaction.redactor import Redactor
from app.storage.labels import SessionLabel
from app.storage.library.shares import ShareRemoved, ShareRow, ShareUpdated
from routes.access.token_text import fingerprint
from routes.http.library import shares, snapshot
from routes.http.library.shares import MOST_SHARES
from tests.support.access.people import bearer
from tests.support.lanes.small_lane import holds
from tests.support.models.pictures import CAT, hashed, image_part, text_part
from tests.support.server.serving import Served, serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]
LIMIT_S = 30
BROWSER = {"accept": "text/html"}
SECRET = "dgm_" + "s" * 43
TURN = f"<think>A private thought.</think>Look: {SECRET}\n```bash\necho res''ult\n```"


async def shared(served: Served, session: str, **options: object) -> dict[str, Any]:
    answer = await served.client.post(f"/sessions/{session}/shares", json=options)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def read(served: Served, link: dict[str, Any]) -> tuple[int, str]:
    """As one who has nothing but the link."""
    answer = await served.client.get(link["path"], headers={"authorization": ""})
    return answer.status_code, answer.text


async def test_a_link_shows_the_conversation_as_it_was_and_no_more(tmp_path: Path) -> None:
    script = [TURN, "It <b>printed</b> that.", "Later words."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script)) as served:
        served.client.headers |= await bearer(served, "ann")
        message = [text_part("Look."), image_part(CAT)]
        session = (await served.chat(message, approval="sandboxed"))[0]["session"]
        whole, texts = (
            await shared(served, session, attachments=True),
            await shared(served, session, tool_results=False),
        )
        await served.chat("More?", session=session)
        status, text = await read(served, whole)
        assert status == 200 and "result" in text and "<b>printed</b>" in text and hashed(CAT) in text
        assert not any(one in text for one in ("private thought", SECRET, "Later words", "More?", "ann", session))
        [run] = json.loads(text)["runs"]
        kinds = {event["type"] for event in run["events"]}
        [begun] = [event["call"] for event in run["events"] if event["type"] == "tool.started"]
        assert [event.get("call") for event in run["events"] if event["type"] == "text.delta"][:2] == [None, begun]
        assert kinds <= {"round.started", "text.delta", "tool.started", "tool.finished", "run.finished"}, kinds
        status, text = await read(served, texts)
        assert status == 200 and "result" not in text and hashed(CAT) not in text and "printed" in text
        assert "```bash" in text and '"call"' not in text, "the text has what no card shows"

        picture = f"{whole['path']}/files/{hashed(CAT)}"
        assert (await served.client.get(picture, headers={"authorization": ""})).content == CAT
        assert (await served.client.get(f"{texts['path']}/files/{hashed(CAT)}")).status_code == 404
        assert (await served.client.post(f"/shares/{whole['id']}")).status_code == 200
        assert "Later words" in (await read(served, whole))[1]
        listed = (await served.client.get("/shares")).text
        assert whole["path"].rsplit("/", 1)[1] not in listed and whole["id"] in listed
        rows = (await served.services.store.share(whole["id"]),)
        assert rows[0] and rows[0].sha256 == fingerprint(whole["path"].rsplit("/", 1)[1])


async def test_links_lead_nowhere_once_they_may_not(tmp_path: Path) -> None:
    """Each in the same words; the page for a browser, too."""
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."] * 4)) as served:
        admin = await bearer(served, "root", "admin")
        served.client.headers |= await bearer(served, "ann")
        sessions = [(await served.chat("x"))[0]["session"] for _ in range(3)]
        revoked, by_admin, expired, deleted, labelled, last = [
            await shared(served, session)
            for session in (sessions[0], *sessions[:2], sessions[1], sessions[2], sessions[0])
        ]
        store = served.services.store
        row = await store.share(expired["id"])
        assert row
        await store.write([ShareRemoved(row.id), replace(row, expires=1.0)])
        await served.client.delete(f"/shares/{revoked['id']}")
        seen = (await served.client.get("/shares?all=true", headers=admin)).json()["shares"]
        assert by_admin["id"] in {one["id"] for one in seen} and {one["owner"] for one in seen} == {"ann"}
        await served.client.delete(f"/shares/{by_admin['id']}", headers=admin)
        await served.client.delete(f"/sessions/{sessions[1]}")
        await store.write([SessionLabel(sessions[2], "secret", "mark", "", "", 1.0)])
        assert (await served.client.post(f"/sessions/{sessions[2]}/shares", json={})).status_code == 409
        wrong = {"path": "/shared/dgm_" + "x" * 43}
        answers = {await read(served, one) for one in (revoked, by_admin, expired, deleted, labelled, wrong)}
        assert len(answers) == 1 and answers.pop()[0] == 404
        gone = await served.client.get(revoked["path"], headers=BROWSER)
        there = await served.client.get(
            last["path"], headers=BROWSER | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        )
        assert (gone.status_code, there.status_code) == (404, 200) and gone.text == there.text
        for name, value in (
            ("x-robots-tag", "noindex"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ):
            assert value in there.headers[name]
        foreign = await served.client.get(
            last["path"], headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        )
        assert foreign.status_code == 403
        for method, path in (
            ("POST", last["path"]),
            ("DELETE", last["path"]),
            ("GET", "/sessions"),
            ("GET", "/events"),
        ):
            assert (await served.client.request(method, path, headers={"authorization": ""})).status_code in (401, 405)
        decisions = [(row.action, row.decision) for _, row in await store.audit(1 << 62, 100) if row.action == "share"]
        assert decisions.count(("share", "revoked")) == 2 and decisions.count(("share", "shared")) == 6
        revoked_token = await served.client.delete("/tokens/ann", headers=admin)
        assert revoked_token.status_code == 204 and (await read(served, last))[0] == 404


@pytest.mark.parametrize(
    ("sharing", "role", "status"),
    [("users", "guest", 403), ("admins", "user", 403), ("off", "admin", 403), ("admins", "admin", 201)],
)
async def test_the_setting_says_who_may_share(tmp_path: Path, sharing: str, role: str, status: int) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."]), sharing=sharing) as served:
        served.client.headers |= await bearer(served, "ann", role)
        session = (await served.chat("x"))[0]["session"]
        assert (await served.client.post(f"/sessions/{session}/shares", json={})).status_code == status
        assert (await served.client.get("/shares")).json()["may_share"] is (status == 201)


async def test_links_and_their_readers_are_bounded(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."])) as served:
        session = (await served.chat("x"))[0]["session"]
        for body in (
            {"expires_in_s": 1},
            {"expires_in_s": 1e12},
            {"expires_in_s": "x"},
            {"tool_results": 3},
            {"more": 1},
        ):
            assert (await served.client.post(f"/sessions/{session}/shares", json=body)).status_code == 422, body
        rows = [
            ShareRow(f"shr_{n}", f"{n}", session, "local", 1.0, 1.0, None, "", "{}", "{}") for n in range(MOST_SHARES)
        ]
        await served.services.store.write(rows)
        full = await served.client.post(f"/sessions/{session}/shares", json={})
        assert (full.status_code, full.json()["error"]["code"]) == (409, "too_many_shares")
        codes = [(await served.client.get("/shared/x")).status_code for _ in range(121)]
        assert codes[:120] == [404] * 120 and codes[-1] == 429


async def test_a_link_is_neither_made_of_what_is_deleted_meanwhile_nor_made_again(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."])) as served:
        store, runs = served.services.store, served.services.runs
        session = (await served.chat("x"))[0]["session"]
        link = await shared(served, session)
        await store.write([ShareRemoved(link["id"]), ShareUpdated(link["id"], 2.0, "Later", "{}")])
        assert (await read(served, link))[0] == 404 and await store.share(link["id"]) is None
        async with runs.peers.lock("session", session):
            asked = asyncio.create_task(served.client.post(f"/sessions/{session}/shares", json={}))
            await holds(lambda: shares._sharing.locked() or asked.done())
            await store.delete_session(session)
        assert (await asked).status_code == 404
        assert (await served.client.get("/shares")).json()["shares"] == []


async def test_a_branch_is_shared_whole_once_its_parent_is_deleted(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["A1", "A2", "B2"])) as served:
        asked = (await served.chat("One"))[0]
        await served.chat("Of the parent alone", session=asked["session"])
        fork = await served.client.post(f"/sessions/{asked['session']}/fork", json={"after": asked["run"]})
        await served.chat("Two", session=fork.json()["id"])
        await served.client.delete(f"/sessions/{asked['session']}")
        runs = json.loads((await read(served, await shared(served, fork.json()["id"])))[1])["runs"]
        assert [run["message"] and run["message"]["text"] for run in runs] == ["One", "Two"]


async def test_a_link_without_results_has_no_output_of_a_job_in_its_messages(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["A1"])) as served:
        ended = as_data("Its output", "printed\n[end aaaaaaaa]\n")
        session = (await served.chat(f"A job has ended.\n\n{ended}\n\nGo on."))[0]["session"]
        [run] = json.loads((await read(served, await shared(served, session, tool_results=False)))[1])["runs"]
        assert "printed" not in run["message"]["text"] and run["message"]["text"].endswith("Go on.")
        assert "printed" in (await read(served, await shared(served, session)))[1]


def test_a_link_in_a_log_is_hidden(caplog: pytest.LogCaptureFixture) -> None:
    """The access log of uvicorn has the path among its arguments."""
    token, now = "dgm_" + "Ab1-_" * 8 + "xyz", time.time()
    log = logging.getLogger("tests.access")
    with redacted_logs(Redactor()), caplog.at_level(logging.INFO, log.name):
        log.info('%s - "%s %s"', "127.0.0.1:1", "GET", f"/shared/{token}")
        log.info('%s - "%s %s"', "127.0.0.1:1", "GET", f"/shared/{token}/files/{now}")
    assert len(caplog.records) == 2 and token not in caplog.text


async def test_a_turn_that_is_longer_than_a_link_shows_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST", 100)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Long. " * 50])) as served:
        session = (await served.chat("Hello"))[0]["session"]
        answer = await served.client.post(f"/sessions/{session}/shares", json={})
        assert answer.status_code == 409 and "longer than what a link shows" in answer.text

"""Links of webhooks that decide one waiting call: what they show, that they decide once, and when not at all."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from app.models.scripted import Scripted
from app.redaction.logs import redacted_logs
from app.redaction.redactor import Redactor
from app.storage.approvals import DecisionLinksExpired
from app.storage.labels import SessionLabel
from app.storage.tokens import TokenChanged, TokenRevoked
from routes.access.authentication import WRONG_PER_MINUTE
from routes.access.token_text import fingerprint
from tests.support.access.people import bearer
from tests.support.server.approvals import WRITE
from tests.support.server.receivers import Receiver, receiver
from tests.support.server.serving import Served, serving, until

pytestmark = [pytest.mark.anyio]
LIMIT_S = 60
ADDRESS = "https://agent.example.org"
ON: dict[str, Any] = {"public_url": ADDRESS, "decision_link_time_limit_s": 600, "private_hosts": "127.0.0.1"}
ODD = "```write_file\nnote.txt\n<b>bold</b> \u202eabc\u200b & 'x'\n```"
FORM = {"content-type": "application/x-www-form-urlencoded"}
ANONYMOUS = {"authorization": "", "accept-language": "en-GB,en;q=0.9"}


@dataclass(slots=True)
class Linked:
    """A server whose user ann has a webhook with links that decide."""

    served: Served
    there: Receiver
    hook: str
    ann: dict[str, str]
    taken: int = 0

    async def asked(self, **more: object) -> dict[str, Any]:
        """A call that waits: what the webhook got, with `token` of its link, and `path` to decide it by."""
        async with aclosing(self.served.turn(message="Write.", approval="ask", **more)) as turn:
            run = (await until(turn, "run.started"))["run"]
            question = await until(turn, "approval.required")
        self.taken += 1
        request = (await self.there.got(self.taken))[self.taken - 1]
        data: dict[str, Any] = json.loads(request.body)["data"]
        token = str(data.get("decide", "")).removeprefix(f"{ADDRESS}/decide/")
        return data | {"run": run, "token": token, "path": f"/runs/{run}/approvals/{question['call']}"}

    async def look(self, token: str, **headers: str) -> httpx2.Response:
        return await self.served.client.get(f"/decide/{token}", headers=ANONYMOUS | headers)

    async def send(self, token: str, decision: str = "approve", **headers: str) -> httpx2.Response:
        body = f"token={token}&decision={decision}"
        return await self.served.client.post("/decide", content=body, headers=ANONYMOUS | FORM | headers)

    async def ended(self, run: str) -> list[dict[str, Any]]:
        await self.served.services.runs.ended(run)
        return await self.served.events(run)


@asynccontextmanager
async def linked(folder: Path, *script: str, role: str = "user", **settings: Any) -> AsyncGenerator[Linked, None]:
    async with asyncio.timeout(LIMIT_S), receiver() as there:
        async with serving(folder, Scripted(list(script)), **(ON | settings)) as served:
            ann = await bearer(served, "ann", role)
            served.client.headers |= ann
            body = {"url": there.url, "events": ["approval.required"], "decides": True}
            made = (await served.client.post("/webhooks", json=body)).json()
            assert made["decides"], made
            yield Linked(served, there, made["id"], ann)


@pytest.mark.usefixtures("database")
async def test_a_link_shows_the_exact_call_and_decides_it_once(tmp_path: Path) -> None:
    async with linked(tmp_path, ODD, "Done.") as one:
        call = await one.asked()
        token = call["token"]
        assert len(token) == len("dgm_") + 43 and (await one.served.client.head(f"/decide/{token}")).status_code == 200
        page = [await one.look(token) for _ in range(3)][-1]  # as the preview of a chat does
        assert page.status_code == 200 and "&lt;b&gt;bold&lt;/b&gt; &lt;U+202E&gt;abc&lt;U+200B&gt; &amp;" in page.text
        assert "write_file is waiting for a decision" in page.text
        assert "note.txt" in page.text and "<script" not in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "form-action 'self'" in policy and "frame-ancestors 'none'" in policy
        assert page.headers["cache-control"] == "no-store" and "noindex" in page.headers["x-robots-tag"]
        assert page.headers["referrer-policy"] == "strict-origin"
        assert "wartet auf eine Entscheidung" in (await one.look(token, **{"accept-language": "de-AT"})).text
        assert (await one.served.client.get(call["path"].rpartition("/approvals")[0])).json()["state"] != "answered"

        site = {"origin": str(one.served.client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
        done = await one.send(token, **site)
        assert (done.status_code, "Approved by ann by link" in done.text) == (200, True), done.text
        events = await one.ended(call["run"])
        [resolved] = [event for event in events if event["type"] == "approval.resolved"]
        assert (resolved["decision"], resolved["by"], resolved["door"]) == ("approved", "ann", "link")
        assert resolved["scope"] == "once"
        assert [event["type"] for event in events].count("tool.started") == 1
        [note] = (tmp_path / "work").rglob("note.txt")
        assert note.read_text() == "<b>bold</b> \u202eabc\u200b & 'x'"
        for late in (await one.send(token, "deny"), await one.look(token)):
            assert (late.status_code, "Approved by ann by link" in late.text) == (409, True)
        again = await one.served.client.post(call["path"], json={"decision": "deny"})
        assert again.status_code == 409 and again.json()["error"]["door"] == "link"
        rows = await one.served.services.store.audit(10**9, 50)
        [audited] = [row for _, row in rows if row.decision == "approved"]
        assert (audited.by, audited.why) == ("ann", "scope once, by link")

        listed = [
            (await one.served.client.get(path)).text for path in ("/webhooks", f"/webhooks/{one.hook}/deliveries")
        ]
        assert not any(token in text for text in listed)
        link = await one.served.services.store.decision_link(fingerprint(token))
        assert link and (link.run, link.call) == (call["run"], call["call"])
        for file in (tmp_path / "data").rglob("*"):
            assert not file.is_file() or token.encode() not in file.read_bytes(), file
        await one.served.client.delete(f"/sessions/{call['session']}")
        assert await one.served.services.store.decision_link(fingerprint(token)) is None
        assert (await one.look(token)).status_code == 404


Spoil = Callable[[Linked, dict[str, Any]], Awaitable[object]]


async def _decided(one: Linked, call: dict[str, Any]) -> None:
    answer = await one.served.client.post(call["path"], json={"decision": "deny", "door": "terminal"})
    assert answer.json()["door"] == "terminal"


async def _cancelled(one: Linked, call: dict[str, Any]) -> None:
    await one.served.client.post(f"/runs/{call['run']}/cancel")
    await one.served.services.runs.ended(call["run"])


async def _changed(one: Linked, role: str = "user", disabled_at: float | None = None) -> None:
    store = one.served.services.store
    [row] = [row for row in await store.tokens() if row.name == "ann"]
    assert await store.change_token(TokenChanged(row.sha256, role, disabled_at, row.version + 1), time.time())


async def _revoked(one: Linked, _: dict[str, Any]) -> None:
    store = one.served.services.store
    [row] = [row for row in await store.tokens() if row.name == "ann"]
    await store.write([TokenRevoked(row.sha256, time.time())])


async def _over(one: Linked, call: dict[str, Any]) -> None:
    store = one.served.services.store
    link = await store.decision_link(fingerprint(call["token"]))
    assert link
    await store.write([DecisionLinksExpired(link.expires + 1), replace(link, expires=1.0)])


async def _other(one: Linked, call: dict[str, Any]) -> None:
    store = one.served.services.store
    link = await store.decision_link(fingerprint(call["token"]))
    assert link
    await store.write([DecisionLinksExpired(link.expires + 1), replace(link, fingerprint="f" * 64)])


async def _labelled(one: Linked, call: dict[str, Any]) -> None:
    await one.served.services.store.write([SessionLabel(call["session"], "secret", "mark", "", "", 1.0)])


async def _switched_off(one: Linked, _: dict[str, Any]) -> None:
    assert (await one.served.client.patch(f"/webhooks/{one.hook}", json={"decides": False})).status_code == 200


async def _webhook_removed(one: Linked, _: dict[str, Any]) -> None:
    assert (await one.served.client.delete(f"/webhooks/{one.hook}")).status_code == 204


async def _unknown(_: Linked, call: dict[str, Any]) -> None:
    call["token"] = "dgm_" + "x" * 43


REFUSED: dict[str, tuple[Spoil, int, str]] = {
    "decided in the terminal": (_decided, 409, "Denied by ann in the terminal"),
    "its run was cancelled": (_cancelled, 409, "No longer needed: the run"),
    "the link has expired": (_over, 410, "This link has expired"),
    "another call": (_other, 409, "is not the one"),
    "a labelled conversation": (_labelled, 403, "cannot be decided by link"),
    "its webhook has no links any more": (_switched_off, 403, "cannot be decided by link"),
    "its webhook is removed": (_webhook_removed, 403, "cannot be decided by link"),
    "an unknown link": (_unknown, 404, "does not exist"),
    "its owner is a guest": (lambda one, _: _changed(one, role="guest"), 403, "ann is a guest"),
    "its owner may not use the tool": (lambda one, _: _changed(one, "user"), 403, "cannot be decided by link"),
    "its owner's token is revoked": (_revoked, 403, "no longer has a valid"),
    "its owner is disabled": (lambda one, _: _changed(one, disabled_at=time.time()), 403, "no longer has a valid"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_link_that_may_not_decide_says_why(tmp_path: Path, case: str) -> None:
    spoil, status, words = REFUSED[case]
    of_admins = json.dumps([{"match": "write_file", "role": "admin"}])
    more = {"tools": of_admins, "role": "admin"} if "tool" in case else {}
    async with linked(tmp_path, WRITE, "Done.", **more) as one:
        await bearer(one.served, "root", "admin")
        call = await one.asked()
        await spoil(one, call)
        for answer in (await one.look(call["token"]), await one.send(call["token"])):
            assert (answer.status_code, words in answer.text) == (status, True), answer.text
            assert "<form" not in answer.text
        assert not list((tmp_path / "work").rglob("note.txt"))


async def test_an_expired_call_is_not_decided_by_its_link(tmp_path: Path) -> None:
    async with linked(tmp_path, WRITE, "Done.", approval_time_limit_s=1.0) as one:
        call = await one.asked()
        link = await one.served.services.store.decision_link(fingerprint(call["token"]))
        row = await one.served.services.store.approval(call["run"], call["call"])
        assert link and row and link.expires == row.expires, "at latest with the approval"
        await one.served.services.runs.ended(call["run"])
        answer = await one.send(call["token"])
        assert (answer.status_code, "has expired" in answer.text) == (410, True)


async def test_links_go_to_the_owners_signed_webhooks_that_want_them_and_nowhere_else(tmp_path: Path) -> None:
    async with linked(tmp_path, WRITE, "```ask_user\nWhich?\n```", "Done.", "Done.") as one, receiver() as other:
        root = await bearer(one.served, "root", "admin")
        client = one.served.client
        for headers, more in (({}, {}), (root, {"everyone": True, "decides": True})):
            made = await client.post("/webhooks", json={"url": other.url} | more, headers=headers)
            assert made.status_code == 201
        topic = await client.post("/webhooks", json={"url": other.url, "channel": "ntfy", "decides": True})
        assert (topic.status_code, "signed webhooks only" in topic.text) == (403, True)
        call = await one.asked()
        assert call["token"] and call["title"] == "Write."
        bodies = [json.loads(request.body) for request in await other.got(2)]
        assert not any("decide" in body["data"] for body in bodies)
        await client.post(call["path"], json={"decision": "approve"})
        question = json.loads((await one.there.got(2))[1].body)["data"]
        assert question["run"] == call["run"] and "decide" not in question, "it needs an answer"
        off = await client.patch(f"/webhooks/{one.hook}", json={"decides": False})
        assert off.json()["decides"] is False


@pytest.mark.parametrize("missing", ["public_url", "decision_link_time_limit_s"])
async def test_links_are_off_by_default(tmp_path: Path, missing: str) -> None:
    settings = {name: value for name, value in ON.items() if name != missing}
    async with asyncio.timeout(LIMIT_S), receiver() as there:
        async with serving(tmp_path, Scripted([WRITE]), **settings) as served:
            answer = await served.client.post("/webhooks", json={"url": there.url, "decides": True})
            assert (answer.status_code, "DRAGOMAN_PUBLIC_URL" in answer.text) == (403, True)
            assert (await served.client.get("/webhooks")).json()["decides"] is False


async def test_other_sites_and_guesses_get_nowhere(tmp_path: Path) -> None:
    async with linked(tmp_path, WRITE, "Done.") as one:
        token = (await one.asked())["token"]
        foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert (await one.look(token, **foreign)).status_code == 200, "a link in a chat can be followed"
        assert (await one.send(token, **foreign)).status_code == 403
        assert (await one.send(token, origin="https://evil.example")).status_code == 403
        assert (await one.send(token, "approve&scope=session&arguments={}", **{})).status_code == 200
        assert (await one.send(token, "maybe")).status_code == 422
        assert (await one.send(token, "x" * 2000)).status_code == 413
        assert (await one.send(token, "maybe" + "&x=1" * 20)).status_code == 422, "many fields are no error of ours"
        answers = [await one.look(f"dgm_{number}") for number in range(WRONG_PER_MINUTE + 1)]
        assert [answer.status_code for answer in answers] == [404] * WRONG_PER_MINUTE + [429]
        assert answers[-1].headers["retry-after"] and "wrong links came from" in answers[-1].text
        assert (await one.look(token)).status_code == 409, "the right one goes on"


async def test_each_attempt_has_a_link_and_no_log_has_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with linked(tmp_path, WRITE, "Done.") as one:
        with redacted_logs(Redactor()), caplog.at_level(logging.DEBUG):
            call = await one.asked()
            deliveries = (await one.served.client.get(f"/webhooks/{one.hook}/deliveries")).json()["deliveries"]
            await one.served.client.post(f"/webhooks/{one.hook}/deliveries/{deliveries[0]['id']}/retry")
            second = json.loads((await one.there.got(2))[1].body)["data"]["decide"].rpartition("/")[2]
            assert second != call["token"]
            logging.getLogger("uvicorn.access").info('%s - "%s %s"', "127.0.0.1", "GET", f"/decide/{second}")
            assert (await one.send(second, "deny")).status_code == 200
            assert (await one.send(call["token"])).status_code == 409
        assert second not in caplog.text and call["token"] not in caplog.text

"""People as admins see and change them, stored prompts, defaults of new conversations, and the audit with its calls."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from app.storage.people.prompts import PromptRow
from routes.http.people.prompts import MOST
from tests.support.access.people import LIMIT_S, bearer
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio


async def test_admins_see_people_with_what_they_use(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served:
        root, ann = await bearer(served, "root", "admin"), await bearer(served, "ann")
        served.client.headers |= ann
        async with aclosing(served.turn(message="Hello")) as turn:
            await until(turn, "run.finished")
        await served.client.post("/sign-ins")
        served.client.cookies.clear()
        people = (await served.client.get("/people", headers=root)).json()["people"]
        assert [row["name"] for row in people] == ["ann", "root"]
        assert (people[0]["sessions"], people[0]["sign_ins"], people[0]["active_runs"]) == (1, 1, 0)
        assert people[0]["last_seen"] and people[0]["usage"]["requests"] == 1 and people[1]["last_seen"] is None
        assert (await served.client.get("/people")).status_code == 403


async def test_a_disabled_person_is_out_until_enabled(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["```bash\nsleep 600\n```", "Done."])) as served:
        root, ann = await bearer(served, "root", "admin"), await bearer(served, "ann")
        served.client.headers |= ann
        async with aclosing(served.turn(message="Wait", approval="sandboxed")) as turn:
            await until(turn, "tool.started")
            changed = await served.client.patch("/people/ann", json={"disabled": True}, headers=root)
            assert (changed.status_code, changed.json()["state"]) == (200, "disabled")
            assert (await until(turn, "run.finished"))["reason"] == "revoked"
        refused = await served.client.get("/sessions")
        assert refused.status_code == 401 and "disabled" in refused.json()["error"]["message"]
        taken = await served.client.post("/tokens", json={"name": "ann"}, headers=root)
        assert taken.json()["error"]["code"] == "name_in_use"
        await served.client.patch("/people/ann", json={"disabled": False}, headers=root)
        assert (await served.client.get("/sessions")).status_code == 200
        decisions = [(row.principal, row.decision, row.by) for _, row in await served.services.store.audit(10**9, 9)]
        assert {("ann", "disabled", "root"), ("ann", "enabled", "root")} <= set(decisions)


async def test_another_role_holds_from_the_next_request(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        root, ann = await bearer(served, "root", "admin"), await bearer(served, "ann", "admin")
        assert (await served.client.get("/tokens", headers=ann)).status_code == 200
        changed = await served.client.patch("/people/ann", json={"role": "guest"}, headers=root)
        assert changed.json()["role"] == "guest"
        assert (await served.client.get("/tokens", headers=ann)).status_code == 403
        assert (await served.client.patch("/people/root", json={"role": "user"}, headers=ann)).status_code == 403


async def test_what_acts_for_a_person_rests_while_that_is_a_guest(tmp_path: Path) -> None:
    provider = Scripted([["Done."]] * 4)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, schedules_per_guest="0") as served:
        root, ann = await bearer(served, "root", "admin"), await bearer(served, "ann")
        served.client.headers |= ann
        made = {"name": "look", "message": "Look."}
        schedule = (await served.client.post("/schedules", json=made | {"cron": "0 7 * * *"})).json()
        trigger = (await served.client.post("/triggers", json=made | {"scheme": "bearer"})).json()
        at = f"/schedules/{schedule['id']}"

        async def acted() -> list[int]:
            key = {"authorization": f"Bearer {trigger['secret']}"}
            answers = [await served.client.post(trigger["path"], json={}, headers=key)]
            answers.append(await served.client.post(f"{at}/run"))
            for answer in answers:
                if answer.status_code == 202:
                    await served.services.runs.ended(answer.json()["run"])
            return [answer.status_code for answer in answers]

        assert await acted() == [202, 202]
        await served.client.patch("/people/ann", json={"role": "guest"}, headers=root)
        assert await acted() == [409, 409]
        words = "Guests have no {}, and ann is a guest."
        assert words.format("schedules") in (await served.client.post(f"{at}/run")).json()["error"]["message"]
        last = (await served.client.get(trigger["path"])).json()["last"][0]
        assert last["outcome"] == "refused" and last["reason"].startswith(words.format("triggers"))
        assert words.format("triggers") in (await served.client.get("/audit", headers=root)).text
        for path in (at, trigger["path"]):
            changed = await served.client.patch(path, json={"message": "Look again."})
            assert (changed.status_code, changed.json()["error"]["code"]) == (403, "forbidden"), changed.text
            assert (await served.client.patch(path, json={"enabled": False})).status_code == 200
            assert (await served.client.patch(path, json={"enabled": True})).status_code == 200
        await served.client.patch("/people/ann", json={"role": "user"}, headers=root)
        assert await acted() == [202, 202]


async def test_the_last_admin_stays(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        root = await bearer(served, "root", "admin")
        await bearer(served, "gone", "admin", revoked=1.0)
        await bearer(served, "ann")
        served.client.headers |= root
        for body in ({"role": "user"}, {"disabled": True}):
            refused = await served.client.patch("/people/root", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "last_admin"), body
        refused = await served.client.delete("/tokens/root")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "last_admin")
        assert (await served.client.patch("/people/ann", json={"role": "admin"})).status_code == 200
        both = [served.client.patch(f"/people/{name}", json={"role": "user"}) for name in ("root", "ann")]
        statuses = [answer.status_code for answer in await asyncio.gather(*both)]
        assert statuses.count(200) == 1, "one of them is still an admin"


@pytest.mark.usefixtures("database")
async def test_two_admins_who_revoke_each_other_leave_one(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        tokens = {name: await bearer(served, name, "admin") for name in ("root", "ann")}
        revoking = [
            served.client.delete(f"/tokens/{other}", headers=tokens[name])
            for name, other in (("root", "ann"), ("ann", "root"))
        ]
        answers = await asyncio.gather(*revoking)
        assert [answer.status_code for answer in answers].count(204) == 1
        people = [await served.client.get("/people", headers=one) for one in tokens.values()]
        assert sorted(answer.status_code for answer in people) == [200, 401]


@pytest.mark.parametrize(("body", "status"), [({}, 422), ({"role": "king"}, 422), ({"name": "x"}, 422), ("x", 400)])
async def test_bad_changes_of_people_are_refused(tmp_path: Path, body: object, status: int) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        root = await bearer(served, "root", "admin")
        assert (await served.client.patch("/people/root", json=body, headers=root)).status_code == status
        assert (await served.client.patch("/people/zoe", json={"role": "user"}, headers=root)).status_code == 404


async def test_prompts_are_kept_for_their_owner(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob")
        body = {"text": "Review {{file}}.", "about": "A look at a file"}
        assert (await served.client.put("/prompts/review", json=body, headers=ann)).status_code == 201
        assert (await served.client.put("/prompts/review", json={"text": "New"}, headers=ann)).status_code == 200
        [row] = (await served.client.get("/prompts", headers=ann)).json()["prompts"]
        assert (row["name"], row["text"], row["about"]) == ("review", "New", "")
        assert (await served.client.get("/prompts", headers=bob)).json() == {"prompts": []}
        assert (await served.client.get("/prompts/review", headers=bob)).status_code == 404
        assert (await served.client.delete("/prompts/review", headers=bob)).status_code == 404
        for name, wrong in (("Two words", body), ("a", {"text": " "}), ("a", {"text": "x" * 16_001}), ("a", {})):
            assert (await served.client.put(f"/prompts/{name}", json=wrong, headers=ann)).status_code == 422
        await served.services.store.write([PromptRow("ann", f"p{n}", "", "x", 1.0) for n in range(MOST)])
        full = await served.client.put("/prompts/more", json=body, headers=ann)
        assert (full.status_code, full.json()["error"]["code"]) == (409, "too_many_prompts")


async def test_defaults_of_new_conversations(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob")
        given = {"options": {"temperature": 0.5, "instructions": "Be brief."}, "plan": True}
        kept = (await served.client.put("/preferences", json=given, headers=ann)).json()
        assert kept == given | {"profile": None}
        assert (await served.client.get("/preferences", headers=ann)).json() == kept
        assert (await served.client.get("/preferences", headers=bob)).json()["options"] == {}
        for wrong, status in (({"options": {"temperature": 9}}, 422), ({"profile": "none"}, 422)):
            assert (await served.client.put("/preferences", json=wrong, headers=ann)).status_code == status, wrong


async def test_instructions_of_a_conversation_reach_its_runs(tmp_path: Path) -> None:
    provider = Scripted(["One.", "Two."])
    async with serving(tmp_path, provider) as served:
        session = None
        for text in ("First", "Second"):
            async with aclosing(served.turn(message=text, **({"session": session} if session else {}))) as turn:
                session = (await until(turn, "run.started"))["session"]
                await until(turn, "run.finished")
            options = {"options": {"instructions": "Answer in rhymes.", "temperature": 0.25}}
            answer = await served.client.patch(f"/sessions/{session}", json=options)
            assert answer.json()["options"] == options["options"]
        first, second = (request.opening()[0].text for request in provider.requests)
        assert "Answer in rhymes." not in first and "Answer in rhymes." in second
        empty = {"options": {"instructions": "  "}}
        assert (await served.client.patch(f"/sessions/{session}", json=empty)).status_code == 422


async def test_the_audit_shows_what_was_decided_on(tmp_path: Path) -> None:
    command = "echo " + "x" * 300
    provider = Scripted([f"```bash\n{command}\n```", "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="Go", approval="sandboxed")) as turn:
            started = await until(turn, "run.started")
            await until(turn, "run.finished")
        rows = (await served.client.get("/audit?calls=1&action=bash")).json()["audit"]
        assert rows and {row["action"] for row in rows} == {"bash"}
        assert rows[0]["arguments"]["command"] == command[:200] + "…"
        whole = (await served.client.get(f"/audit/{rows[0]['number']}")).json()
        assert whole["arguments"]["command"] == command
        assert (await served.client.get("/audit?decision=none")).json()["audit"] == []
        assert (await served.client.get("/audit?principal=none")).json()["audit"] == []
        await served.client.delete(f"/sessions/{started['session']}")
        assert (await served.client.get(f"/audit/{rows[0]['number']}")).json()["arguments"] is None

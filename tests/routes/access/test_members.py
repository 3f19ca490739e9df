"""Members of a bot's chats: guests of its token, linked to accounts by codes, and never more than either."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest
from msgspec.structs import replace

from app.config.connection_settings import Limit
from app.config.sources import SettingsError
from app.models.scripted import Pause, Scripted
from app.policy.current_rights import MANAGEMENT, NO_TOOL, both, principal_named
from app.runs.composition.unattended import UnattendedRuns
from app.storage.people.members import member_name
from app.storage.principals import Budget
from app.transcript.run_request import NotFound, speaker_of
from routes.access.members import CODE_S, WRONG_PER_MINUTE
from routes.access.token_text import fingerprint
from routes.management.actions import AREAS, SCHEDULES
from tests.support.access.people import bearer
from tests.support.server.approvals import WRITE, rest_of
from tests.support.server.serving import Served, events_of, serving, settings_in, until
from tools.base.rights import Role, names_match

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]
MEMBER = "X-Dragoman-Member"
Headers = dict[str, str]


class Chats:
    """A server with an admin, an account and two bots."""

    def __init__(self, served: Served, headers: dict[str, Headers]) -> None:
        self.served, self.headers, self.client = served, headers, served.client

    async def say(self, who: str = "bot", message: str = "Hello", **body: Any) -> httpx2.Response:
        return await self.client.post("/chat", json={"message": message, **body}, headers=self.headers[who])

    async def ask(self, who: str, request: str, member: str = "", **body: Any) -> httpx2.Response:
        method, _, path = request.partition(" ")
        headers = self.headers[who] | ({MEMBER: member} if member else {})
        return await self.client.request(method, path, headers=headers, json=body or None)

    async def code(self, account: str = "ann", bot: str = "bot") -> str:
        answer = await self.ask(account, "POST /member-codes", bot=bot)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["code"])

    async def link(self, member: str = "42", account: str = "ann", bot: str = "bot") -> None:
        answer = await self.ask(bot, "POST /member-links", code=await self.code(account, bot), member=member)
        assert answer.status_code == 200 and answer.json()["account"] == account, answer.text

    async def owner(self, answer: httpx2.Response) -> str:
        assert answer.status_code == 200, answer.text
        row = await self.served.services.store.run(answer.headers["x-run-id"])
        assert row
        return f"{row.principal} by {speaker_of(row)}" if speaker_of(row) else row.principal


@asynccontextmanager
async def chats(folder: Path, replies: Scripted | None = None, **flags: Any) -> AsyncGenerator[Chats, None]:
    provider = replies or Scripted([["Hi."]], repeat=True)
    async with asyncio.timeout(120), serving(folder, provider, **flags) as served:
        headers = {"root": await bearer(served, "root", "admin"), "ann": await bearer(served, "ann")}
        headers |= {name: await bearer(served, name, members=True) for name in ("bot", "other")}
        headers["plain"] = await bearer(served, "plain", "admin")
        yield Chats(served, headers)


def session_of(answer: httpx2.Response) -> str:
    return str(answer.headers["x-session-id"])


async def audit_of(at: Chats) -> list[str]:
    rows = (await at.ask("root", "GET /audit?limit=200")).json()["audit"]
    return [f"{row['principal']} {row['decision']}" for row in rows if row["action"] == "member"][::-1]


def message_of(answer: httpx2.Response) -> str:
    return str(answer.json()["error"]["message"])


async def test_each_member_is_a_guest_with_conversations_of_its_own(tmp_path: Path) -> None:
    async with chats(tmp_path, guest_budget='{"tokens_per_month": 1000}') as at:
        one = await at.say(member="42", conversation="c")
        two = await at.say(member="43", conversation="c")
        assert (await at.owner(one), await at.owner(two)) == ("bot/42", "bot/43")
        assert one.headers["x-session-id"] != two.headers["x-session-id"]
        again = await at.client.post(
            "/chat", json={"message": "x", "conversation": "c"}, headers=at.headers["bot"] | {MEMBER: "42"}
        )
        assert again.headers["x-session-id"] == one.headers["x-session-id"]
        mine = (await at.ask("bot", "GET /sessions", "42")).json()["sessions"]
        assert [row["id"] for row in mine] == [one.headers["x-session-id"]]
        assert (await at.ask("bot", "GET /sessions")).json()["sessions"] == []
        assert (await at.ask("bot", f"GET /runs/{two.headers['x-run-id']}", "42")).status_code == 404
        used = (await at.ask("bot", "GET /usage", "42")).json()
        assert used == (await at.ask("root", "GET /usage?principal=bot/42")).json()
        assert (used["principal"], used["usage"]["tokens_per_month"]["limit"]) == ("bot/42", 1000)
        member = await principal_named(at.served.services.store, "bot/42")
        assert (member.role, member.member, member.is_linked, member.members) == (Role.GUEST, "bot/42", False, False)
        listed = (await at.ask("root", "GET /tokens/bot/members")).json()["members"]
        assert [row["member"] for row in listed] == ["42", "43"]
        assert (await at.ask("other", "GET /tokens/bot/members")).status_code == 403
        assert (await at.ask("root", "DELETE /tokens/bot/members/42")).status_code == 204
        assert await at.served.services.store.sessions("bot/42", 9) == []
        assert await audit_of(at) == ["bot/42 made", "bot/43 made", "bot/42 deleted"]


async def test_names_of_members_are_no_names_of_others(tmp_path: Path) -> None:
    names = ["root", "bot", "ann", "\u0430nn", "a/b", "../root", "~ann", "ann ", "ANN", "a\u0301nn", "ánn", "x" * 200]
    async with chats(tmp_path) as at:
        owners = [await at.owner(await at.say(member=name)) for name in names]
        assert len(set(owners)) == len(names) and all(one.startswith("bot/") and one.count("/") == 1 for one in owners)
        assert all(one.isascii() and len(one) < 70 for one in owners)
        assert (
            member_name("bot", "~ann") != "bot/~ann"
            and await at.owner(await at.say("other", member="root")) == "other/root"
        )
        folders = {path.name for path in (tmp_path / "work" / "people").iterdir()}
        assert len(folders) == len(names) + 1, "each has a folder of its own"


@pytest.mark.parametrize(
    ("who", "sent", "status", "words"),
    [
        ("plain", {"member": "42"}, 403, "may not say which member speaks"),
        ("ann", {"member": "42"}, 403, "may not say which member speaks"),
        ("bot", {"member": ""}, 422, "1 to 200 printable characters"),
        ("bot", {"member": "a\tb"}, 422, "1 to 200 printable characters"),
        ("bot", {"member": "x" * 201}, 422, "1 to 200 printable characters"),
        ("bot", {"member": 42}, 422, "member"),
    ],
)
async def test_who_may_name_a_member(tmp_path: Path, who: str, sent: dict[str, Any], status: int, words: str) -> None:
    async with chats(tmp_path) as at:
        answer = await at.say(who, **sent)
        assert answer.status_code == status and words in message_of(answer), answer.text


async def test_members_are_bounded_and_agree_with_the_header(tmp_path: Path) -> None:
    async with chats(tmp_path, max_members=2) as at:
        answers = await asyncio.gather(*(at.say(member=str(number)) for number in range(5)))
        assert sorted(one.status_code for one in answers) == [200, 200, 409, 409, 409]
        [known, *_] = (await at.ask("root", "GET /tokens/bot/members")).json()["members"]
        named = at.headers["bot"] | {MEMBER: known["member"]}
        both_named = await at.client.post("/chat", json={"message": "x", "member": "zz"}, headers=named)
        assert both_named.status_code == 422 and "send one of both" in message_of(both_named)
        for path in ("GET /sign-ins", "POST /sign-ins", "POST /member-codes", "GET /tokens", "GET /people"):
            assert (await at.ask("bot", path, known["member"])).status_code == 403, path


async def test_a_linked_member_is_the_account_with_the_rights_of_both(tmp_path: Path) -> None:
    async with chats(tmp_path) as at:
        guest = await at.say(member="42", conversation="c")
        own = await at.say("ann")
        await at.link()
        linked = await at.say(member="42", conversation="c")
        assert await at.owner(linked) == "ann by bot/42"
        assert linked.headers["x-session-id"] not in (guest.headers["x-session-id"], own.headers["x-session-id"])
        sessions = (await at.ask("ann", "GET /sessions")).json()["sessions"]
        assert {row["id"] for row in sessions} == {one.headers["x-session-id"] for one in (own, linked)}
        links = (await at.ask("ann", "GET /member-links")).json()
        assert [row["principal"] for row in links["links"]] == ["bot/42"] and links["bots"] == ["bot", "other"]
        assert (await at.ask("other", "DELETE /member-links/bot/42")).status_code == 404
        assert (await at.ask("ann", "DELETE /member-links/bot/42")).status_code == 204
        assert await at.owner(await at.say(member="42", conversation="c")) == "bot/42"
        assert await audit_of(at) == ["bot/42 made", "ann code", "ann linked", "ann unlinked"]
        with pytest.raises(NotFound):
            await principal_named(at.served.services.store, "ann", "bot/42")


async def test_what_a_bot_may_not_do_for_an_account(tmp_path: Path) -> None:
    """It reaches the runs that it has begun, and nothing else that is the account's."""
    async with chats(tmp_path, Scripted([["Hi."], [WRITE], ["Done."]] + [["Hi."]] * 9)) as at:
        await at.link()
        session = (await at.say("ann")).headers["x-session-id"]
        body = {"message": "Write.", "approval": "ask"}
        async with at.client.stream("POST", "/chat", json=body, headers=at.headers["ann"]) as stream:
            async with aclosing(events_of(stream)) as turn:
                run = (await until(turn, "run.started"))["run"]
                call = (await until(turn, "approval.required"))["call"]
                tried = {
                    f"GET /runs/{run}": 404,
                    f"GET /runs/{run}/events": 404,
                    f"POST /runs/{run}/cancel": 404,
                    f"POST /runs/{run}/messages": 404,
                    f"POST /runs/{run}/approvals/{call}": 404,
                    "GET /approvals": 403,
                    "GET /sessions": 403,
                    f"GET /sessions/{session}": 403,
                    f"DELETE /sessions/{session}": 403,
                    "GET /memory": 403,
                    "GET /permissions": 403,
                    "GET /member-links": 403,
                    "DELETE /member-links/bot/42": 403,
                    "POST /schedules": 403,
                    "PUT /prompts/x": 403,
                    "GET /workspace/files/x": 403,
                }
                for request, status in tried.items():
                    answer = await at.ask("bot", request, "42", message="x", decision="approve")
                    assert answer.status_code == status, f"{request}: {answer.text}"
                assert (await at.say(member="42", session=session)).status_code == 404
                path = f"POST /runs/{run}/approvals/{call}"
                assert (await at.ask("ann", path, decision="deny")).status_code == 200
                assert (await rest_of(turn))[-1]["type"] == "run.finished"


async def test_a_member_approves_what_its_messages_began_and_only_once(tmp_path: Path) -> None:
    async with chats(tmp_path, Scripted([[WRITE], ["Done."]])) as at:
        await at.link()
        body = {"message": "Write.", "approval": "ask", "member": "42"}
        async with at.client.stream("POST", "/chat", json=body, headers=at.headers["bot"]) as stream:
            async with aclosing(events_of(stream)) as turn:
                run = (await until(turn, "run.started"))["run"]
                path = f"POST /runs/{run}/approvals/{(await until(turn, 'approval.required'))['call']}"
                for who, member, status in (("bot", "43", 404), ("bot", "", 404), ("other", "42", 404)):
                    assert (await at.ask(who, path, member, decision="approve")).status_code == status
                session = await at.ask("bot", path, "42", decision="approve", scope="session")
                assert session.status_code == 403 and "approved once" in message_of(session)
                assert (await at.ask("bot", path, "42", decision="approve")).status_code == 200
                assert (await rest_of(turn))[-1]["reason"] == "answered"


async def test_codes(tmp_path: Path) -> None:
    """Guessed, said twice, said to another bot, replaced, expired, in another spelling."""
    async with chats(tmp_path) as at:

        async def sent(code: str, bot: str = "bot", member: str = "42") -> int:
            return (await at.ask(bot, "POST /member-links", code=code, member=member)).status_code

        assert await sent(await at.code(), "other") == 404, "a code is for one bot"
        first, second = await at.code(), await at.code()
        assert (await sent(first), await sent(f" {second.lower().replace('-', '')} ")) == (404, 200)
        assert await sent(second, member="43") == 404, "once"
        assert await sent(await at.code(), member="42") == 403, "linked already"
        assert (await at.ask("bot", "POST /member-codes", "44", bot="bot")).status_code == 403
        assert (await at.ask("ann", "POST /member-codes", bot="plain")).status_code == 404
        assert (await at.ask("ann", "POST /member-links", code="x")).status_code == 422
        assert (await at.ask("ann", "POST /member-links", code="x", member="1")).status_code == 403
        code = await at.code()
        both_at_once = await asyncio.gather(sent(code, member="50"), sent(code, member="51"))
        assert sorted(both_at_once) == [200, 404]
        guesses = [await sent("AAAA-AAAA", "other", str(number)) for number in range(WRONG_PER_MINUTE + 2)]
        assert guesses.count(404) >= WRONG_PER_MINUTE - 1 and guesses[-1] == 429
        store, late = at.served.services.store, await at.code()
        [row] = [one for one in [await store.member_code(fingerprint(late.replace("-", "")))] if one]
        await store.write([type(row)(row.account, row.token, row.sha256, row.expires - CODE_S - 1)])
        assert await sent(late, member="60") == 404
        assert "ann linked" in await audit_of(at) and "bot/42 refused" in await audit_of(at)


async def test_an_admin_stays_low_through_a_bot(tmp_path: Path) -> None:
    async with chats(tmp_path) as at:
        await at.link(account="root")
        store = at.served.services.store
        linked = await principal_named(store, "root", "bot/42")
        assert (linked.role, linked.disabled) == (Role.USER, MANAGEMENT)
        refused = await at.say(member="42", approval="auto")
        assert refused.status_code == 403 and "approval: auto is for admins" in message_of(refused)
        assert (await at.ask("bot", "GET /tokens", "42")).status_code == 403
        low = await bearer(at.served, "low", "guest", members=True, tools='["read_*"]', disabled='["read_file"]')
        at.headers["low"] = low
        await at.link("9", "root", "low")
        theirs = await principal_named(store, "root", "low/9")
        assert (theirs.role, theirs.tools, theirs.disabled) == (Role.GUEST, ("read_*",), ("read_file", *MANAGEMENT))


def test_patterns_of_both() -> None:
    assert both((), ("a*",)) == both(("a*",), ()) == ("a*",) and both((), ()) == ()
    assert both(("read_*", "bash"), ("*",)) == ("read_*", "bash")
    assert set(both(("read_*", "bash"), ("read_file", "bash"))) == {"bash", "read_file"}
    assert both(("read_*",), ("*_file",)) == NO_TOOL and both(("a*",), ("a?",)) == ("a?",)


async def test_what_ends_with_an_account_a_link_or_a_bot(tmp_path: Path) -> None:
    endless = Pause(asyncio.Event())
    async with chats(tmp_path, Scripted([["Well", endless]] * 9)) as at:

        async def begun(member: str) -> str:
            body = {"message": "x", "member": member}
            prefer = at.headers["bot"] | {"Prefer": "respond-async"}
            answer = await at.client.post("/chat", json=body, headers=prefer)
            assert answer.status_code == 202, answer.text
            return str(answer.json()["run"])

        async def state(run: str) -> str:
            row = await at.served.services.store.run(run)
            assert row
            return row.state

        await at.link("1")
        linked, guest = await begun("1"), await begun("2")
        assert (await at.ask("ann", "DELETE /member-links/bot/1")).status_code == 204
        assert (await state(linked), await state(guest)) == ("cancelled", "running")
        await at.link("1")
        linked = await begun("1")
        assert (await at.ask("root", "PATCH /people/ann", disabled=True)).status_code == 200
        assert await state(linked) == "revoked"
        gone = await at.say(member="1")
        assert gone.status_code == 403 and "no longer has a valid token" in message_of(gone)
        assert (await at.ask("root", "PATCH /people/ann", disabled=False)).status_code == 200
        linked = await begun("1")
        assert (await at.ask("root", "DELETE /tokens/bot")).status_code == 204
        assert (await state(linked), await state(guest)) == ("revoked", "revoked")
        at.headers["bot"] = await bearer(at.served, "bot", members=True)
        [row, *_] = await at.served.services.store.members("bot")
        assert row.account == "", "a new token of the name has no links"
        await at.link("3", account="ann")
        assert (await at.ask("root", "DELETE /tokens/ann")).status_code == 204
        assert await at.served.services.store.linked_members("ann") == []


async def test_what_a_revoked_token_leaves_behind(tmp_path: Path) -> None:
    """Its codes are worth nothing to a later token of the name, and the keys of its members begin new conversations."""
    async with chats(tmp_path) as at:
        await at.link()
        linked = await at.say(member="42", conversation="c")
        assert await at.owner(linked) == "ann by bot/42"
        for revoked, members in (("ann", ("43", "44")), ("bot", ("45", "46"))):
            stolen = await at.code()
            assert (await at.ask("root", f"DELETE /tokens/{revoked}")).status_code == 204
            at.headers[revoked] = await bearer(at.served, revoked, members=revoked == "bot")
            late = await at.ask("bot", "POST /member-links", code=stolen, member=members[0])
            assert late.status_code == 404, late.text
            await at.link(members[1])
        guest = await at.say(member="42", conversation="c")
        assert await at.owner(guest) == "bot/42"
        assert session_of(await at.say(member="42", conversation="c")) == session_of(guest) != session_of(linked)
        await at.link()
        assert await at.owner(await at.say(member="42", conversation="c")) == "ann by bot/42"


async def test_a_member_is_deleted_with_its_temporary_conversations(tmp_path: Path) -> None:
    async with chats(tmp_path) as at:
        session = session_of(await at.say(member="42", temporary=True))
        theirs = session_of(await at.say(member="43", temporary=True))
        assert (await at.ask("root", "DELETE /tokens/bot/members/42")).status_code == 204
        assert await at.served.services.store.session(session) is None
        assert await at.served.services.store.session(theirs)


async def test_a_run_for_an_account_goes_on_with_the_rights_of_both(tmp_path: Path) -> None:
    """After a restart, for a follow-up, at another server: the row of the run says who speaks."""
    async with chats(tmp_path) as at:
        await at.link(account="root")
        answer = await at.say(member="42")
        store = at.served.services.store
        row = await store.run(answer.headers["x-run-id"])
        assert row and speaker_of(row) == "bot/42"
        unattended = UnattendedRuns(at.served.services.factory)
        agent, _ = await unattended.restored_agent(row)
        assert agent.scope.gate.principal.role is Role.USER and agent.scope.gate.principal.is_linked
        assert speaker_of(replace(row, policy=agent.policy_with("{}"))) == "bot/42"
        assert (await at.ask("root", "DELETE /member-links/bot/42")).status_code == 204
        with pytest.raises(NotFound):
            await unattended.restored_agent(row)


async def test_without_tokens_there_are_no_members(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted([])) as served:
        for sent, headers in (({"member": "42"}, {}), ({}, {MEMBER: "42"})):
            answer = await served.client.post("/chat", json={"message": "x", **sent}, headers=headers)
            assert answer.status_code == 403 and "dragoman token create --members" in message_of(answer)


async def test_guests_have_a_default_budget(tmp_path: Path) -> None:
    """Of the settings where the token says nothing; a member has the lower of it and its token's."""
    settings = '{"runs": 1, "tokens_per_month": 900, "requests_per_minute": 4}'
    async with chats(tmp_path, guest_budget=settings, tokens_per_month=5000) as at:
        at.headers["guest"] = await bearer(at.served, "guest", "guest")
        at.headers["rich"] = await bearer(at.served, "rich", "guest", budget='{"tokens_per_month": 7000}')
        at.headers["low"] = await bearer(at.served, "low", members=True, budget='{"tokens_per_month": 70, "runs": 3}')

        async def limits(who: str, member: str = "") -> list[int]:
            usage = (await at.ask(who, "GET /usage", member)).json()["usage"]
            return [usage[name]["limit"] for name in ("runs", "tokens_per_month")]

        assert await limits("guest") == [1, 900] and await limits("rich") == [1, 7000]
        assert await limits("bot", "1") == [1, 900] and await limits("low", "1") == [1, 70]
        assert await limits("ann") == [1024, 5000]
        answers = [(await at.ask("bot", "GET /usage", "2")).status_code for _ in range(5)]
        assert answers == [200] * 4 + [429]
        assert (await at.ask("bot", "GET /usage", "3")).status_code == 200


@pytest.mark.parametrize("budget", ['{"run": 1}', '{"runs": 1.5}', '{"runs": 0}', "[]"])
def test_a_budget_of_guests_is_checked(tmp_path: Path, budget: str) -> None:
    with pytest.raises(SettingsError, match=r"guest_budget .* a table such as"):
        settings_in(tmp_path, guest_budget=budget)
    assert set(get_args(Limit)) == set(Budget.__struct_fields__)


async def test_what_a_bot_may_not_do_for_an_account_in_the_lanes(tmp_path: Path) -> None:
    async with chats(tmp_path) as at:
        await at.link()
        linked = at.headers["bot"] | {MEMBER: "42"}
        text = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
        own = await at.client.post(
            "/ui-message-stream", json={"id": "c1", "messages": [text]}, headers=at.headers["ann"]
        )
        assert own.status_code == 200
        theirs = await at.client.post("/ui-message-stream", json={"id": "c1", "messages": [text]}, headers=linked)
        assert await at.owner(theirs) == "ann by bot/42"
        assert theirs.headers["x-session-id"] != own.headers["x-session-id"]
        asked = {"model": "dragoman/agent", "input": "Hello"}
        first = (await at.client.post("/v1/responses", json=asked, headers=at.headers["ann"])).json()["id"]
        again = await at.client.post("/v1/responses", json=asked | {"previous_response_id": first}, headers=linked)
        assert again.status_code == 400 and "no such previous response" in again.text
        assert (await at.client.get(f"/v1/responses/{first}", headers=linked)).status_code == 404


async def test_a_deleted_member_leaves_no_reminder(tmp_path: Path) -> None:
    async with chats(tmp_path, schedules_per_guest=2) as at:
        await at.say(member="42")
        wish = {"name": "r", "message": "x", "every": "1d"}
        made = await at.ask("bot", "POST /schedules", "42", **wish)
        assert made.status_code == 201, made.text
        assert (await at.ask("root", "DELETE /tokens/bot/members/42")).status_code == 204
        assert (await at.ask("bot", "GET /schedules", "42")).json()["schedules"] == []


def scheduling(**arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': 'manage_schedules', 'arguments': arguments})}</tool_call>"


async def test_a_linked_account_has_reminders_with_the_rights_of_both(tmp_path: Path) -> None:
    """Set in the chat, approved there, begun with what bot and account both may, seen by that speaker only."""
    wish = {"action": "add", "name": "tea", "message": "Tea!", "every": "1d"}
    looks = [scheduling(action="list"), scheduling(action="triggers")]
    replies = [[scheduling(**wish)], ["Set."], [looks[0]], [looks[1]], ["."], ["Tea."], ["Hi."]]
    async with chats(tmp_path, Scripted(replies)) as at:
        at.headers["low"] = await bearer(at.served, "low", members=True, disabled='["read_file"]')
        await at.link("42", bot="low")
        own = await at.ask("ann", "POST /schedules", name="own", message="x", every="1d")
        hook = await at.ask("ann", "POST /triggers", name="hook", message="x")
        assert (own.status_code, hook.status_code) == (201, 201), own.text + hook.text
        body = {"message": "Remind me.", "member": "42", "conversation": "c"}
        async with at.client.stream("POST", "/chat", json=body, headers=at.headers["low"]) as stream:
            async with aclosing(events_of(stream)) as turn:
                began = await until(turn, "run.started")
                asked = await until(turn, "approval.required")
                assert "A run begins by itself" in asked["reason"]
                path = f"POST /runs/{began['run']}/approvals/{asked['call']}"
                assert (await at.ask("low", path, "42", decision="approve")).status_code == 200
                assert (await until(turn, "tool.finished"))["ok"]
                await rest_of(turn)
        listed = await at.client.post("/chat", json=body | {"message": "Which?"}, headers=at.headers["low"])
        assert "hook" not in listed.text and '"own' not in listed.text and "Tea!" in listed.text
        [theirs] = (await at.ask("low", "GET /schedules", "42")).json()["schedules"]
        schedule = theirs["id"]
        assert theirs["session"] == session_of(listed)
        for who, request, status in (
            ("low", f"GET /schedules/{own.json()['id']}", 404),
            ("low", f"DELETE /schedules/{schedule}", 403),
            ("low", "GET /triggers", 403),
            ("other", f"GET /schedules/{schedule}", 404),
        ):
            member = "42" if who == "low" else ""
            assert (await at.ask(who, request, member)).status_code == status, request
        await at.link("42", bot="other")
        assert (await at.ask("other", f"GET /schedules/{schedule}", "42")).status_code == 404
        assert (await at.ask("other", "GET /schedules", "42")).json()["schedules"] == []
        changed = await at.ask("ann", f"PATCH /schedules/{schedule}", message="Tea now!")
        assert changed.status_code == 200, "the account may change it, and its runs stay those of the chat"
        begun = (await at.ask("ann", f"POST /schedules/{schedule}/run")).json()
        assert begun["session"] == theirs["session"]
        row = await at.served.services.store.run(begun["run"])
        assert row and speaker_of(row) == "low/42" and "read_file" not in json.loads(row.policy)["tools"]
        answer = await at.ask("low", f"GET /runs/{begun['run']}/events", "42")
        assert "Tea." in answer.text
        assert (await at.ask("other", f"GET /runs/{begun['run']}", "42")).status_code == 404
        assert (await at.ask("ann", "DELETE /member-links/low/42")).status_code == 204
        ended = (await at.ask("ann", f"GET /schedules/{schedule}")).json()
        assert not ended["enabled"] and "low/42, who has set it, is not linked any more" in ended["last"][0]["reason"]
        assert (await at.ask("ann", f"GET /schedules/{own.json()['id']}")).json()["enabled"]
        assert (await at.ask("ann", f"PATCH /schedules/{schedule}", enabled=True)).status_code == 200
        refused = await at.ask("ann", f"POST /schedules/{schedule}/run")
        assert refused.status_code == 409 and "no member any more" in message_of(refused)
        await at.link("42", bot="low")
        assert not (await at.ask("ann", f"GET /schedules/{schedule}")).json()["enabled"], "a new link revives none"


def test_of_the_tools_that_manage_a_link_leaves_those_for_schedules() -> None:
    names = [f"manage_{area.name}" for area in (*AREAS, SCHEDULES)]
    assert [name for name in names if not names_match((name,), MANAGEMENT)] == ["manage_schedules"]

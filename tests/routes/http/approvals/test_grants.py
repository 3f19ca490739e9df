"""What is allowed for a session: listed, bounded in time, taken back at once, and network to some hosts."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from app.policy.grants import Grant, granted_hosts, narrowed, without_granted_hosts
from tests.support.access.people import bearer
from tests.support.server.approvals import WRITE, asked_turn, note, rest_of
from tests.support.server.serving import Served, serving, until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("servers")]
LIMIT_S = 30


async def granted(served: Served, **wish: Any) -> str:
    """A session in which a person has granted what its first call asked for."""
    turn, question, path = await asked_turn(served)
    async with aclosing(turn):
        answer = await served.client.post(path, json={"decision": "approve", "scope": "session", **wish})
        assert answer.status_code == 200, answer.text
        await rest_of(turn)
    return str(question["session"])


async def grants_of(served: Served, session: str, **more: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await served.client.get(f"/sessions/{session}/grants", **more)).json()["grants"]
    return listed


async def test_a_grant_is_listed_and_asks_again_once_it_is_withdrawn(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."] * 3)) as served:
        session = await granted(served)
        [grant] = await grants_of(served, session)
        assert grant["expires_at"] == grant["created"] + 28_800
        assert {"tool": "write_file", "kind": "exact", "by": "local", "tainted": False}.items() <= grant.items()
        assert grant["arguments"] == {"path": "note.txt", "content": "first"}
        kinds = [event["type"] for event in await served.chat("Again.", session=session, approval="ask")]
        assert "approval.required" not in kinds
        gone = await served.client.delete(f"/sessions/{session}/grants/{grant['id']}")
        assert (gone.status_code, gone.json()) == (200, {"withdrawn": 1})
        assert await grants_of(served, session) == []
        turn, later, _ = await asked_turn(served, session=session)
        async with aclosing(turn):
            await served.client.post(f"/runs/{later['run']}/cancel")
        again = await served.client.delete(f"/sessions/{session}/grants/{grant['id']}")
        assert (again.status_code, again.json()["error"]["code"]) == (404, "not_found")
        audit = (await served.client.get("/audit")).json()["audit"]
        [withdrawn] = [row for row in audit if row["decision"] == "grant withdrawn"]
        assert withdrawn["action"] == "write_file" and withdrawn["by"] == "local" and grant["id"] in withdrawn["why"]


async def test_a_grant_that_is_withdrawn_in_the_middle_of_a_run_asks_again_in_it(tmp_path: Path) -> None:
    other = "```write_file\nother.txt\nfirst\n```"
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, other, WRITE, "Done."])) as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            await served.client.post(path, json={"decision": "approve", "scope": "session"})
            second = await until(turn, "approval.required")
            assert second["arguments"]["path"] == "other.txt"
            gone = await served.client.delete(f"/sessions/{question['session']}/grants")
            assert gone.json() == {"withdrawn": 1}
            await served.client.post(
                f"/runs/{question['run']}/approvals/{second['call']}", json={"decision": "approve"}
            )
            third = await until(turn, "approval.required")
            assert third["arguments"]["path"] == "note.txt"
            await served.client.post(f"/runs/{question['run']}/cancel")


async def test_a_grant_ends_with_its_time(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        serving(tmp_path, Scripted([WRITE, "Done."] * 2), grant_time_limit_s="1") as served,
    ):
        session = await granted(served)
        while await grants_of(served, session):
            pass  # bounded by the time limit around it
        turn, later, _ = await asked_turn(served, session=session)
        async with aclosing(turn):
            await served.client.post(f"/runs/{later['run']}/cancel")


async def test_a_grant_may_last_as_long_as_its_session(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        serving(tmp_path, Scripted([WRITE, "Done."]), grant_time_limit_s="0") as served,
    ):
        [grant] = await grants_of(served, await granted(served, pattern={"path": "note*", "content": "*"}))
        assert grant["expires_at"] is None and grant["kind"] == "pattern"
        assert grant["pattern"] == {"path": "note*", "content": "*"}


async def test_grants_survive_a_restart_and_go_with_their_session(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with serving(tmp_path, Scripted([WRITE, "Done."])) as served:
            session = await granted(served)
            before = await grants_of(served, session)
        async with serving(tmp_path, Scripted([WRITE, "Done."])) as served:
            assert await grants_of(served, session) == before != []
            kinds = [event["type"] for event in await served.chat("Again.", session=session, approval="ask")]
            assert "approval.required" not in kinds and note(tmp_path).exists()
            await served.client.delete(f"/sessions/{session}")
            assert await served.services.store.grants(session) == []


async def test_only_the_owner_sees_grants_and_takes_them_back(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."])) as served:
        served.client.headers |= await bearer(served, "ann")
        session = await granted(served)
        [grant] = await grants_of(served, session)
        for role in ("user", "admin"):
            other = await bearer(served, f"other-{role}", role)
            for method, path in (("GET", ""), ("DELETE", ""), ("DELETE", f"/{grant['id']}")):
                answer = await served.client.request(method, f"/sessions/{session}/grants{path}", headers=other)
                assert answer.status_code == 404, (method, path)
        assert await grants_of(served, session) == [grant]


def wants_network(command: str, network: object) -> str:
    return (
        f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': command, 'network': network}})}</tool_call>"
    )


async def test_hosts_that_a_person_chose_are_what_runs_and_what_later_calls_get(tmp_path: Path) -> None:
    script = [
        wants_network("true a", True),
        wants_network("ls -a", True),
        wants_network("ls -b", ["example.net"]),
        "Done.",
    ]
    hosts = ["example.org", "*.example.org"]
    server = serving(tmp_path, Scripted(script), unsafe_no_sandbox="true")
    async with asyncio.timeout(LIMIT_S), server as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            assert question["arguments"] == {"command": "true a", "network": True}
            for wrong in ({"hosts": ["exa mple"]}, {"hosts": ["example.org"], "pattern": {"command": "ls *"}}):
                wish = {"decision": "approve", "scope": "session", **wrong}
                assert (await served.client.post(path, json=wish)).status_code == 422
            wish = {"decision": "approve", "scope": "session", "hosts": hosts}
            answer = await served.client.post(path, json=wish)
            assert answer.json()["edited"] == {"command": "true a", "network": sorted(hosts)}
            assert (await until(turn, "tool.started"))["arguments"]["network"] == sorted(hosts)
            narrowed_call = await until(turn, "tool.started")
            assert narrowed_call["arguments"] == {"command": "ls -a", "network": sorted(hosts)}
            [grant] = await grants_of(served, question["session"])
            assert grant["kind"] == "hosts" and grant["hosts"] == sorted(hosts) and grant["tool"] == "bash"
            await served.client.post(f"/runs/{question['run']}/cancel")


async def test_hosts_go_with_a_call_that_wants_network(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."])) as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            answer = await served.client.post(path, json={"decision": "approve", "hosts": ["example.org"]})
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unfit_arguments")
            assert "requests no network" in answer.json()["error"]["message"]
            await served.client.post(f"/runs/{question['run']}/cancel")


HOSTS = (Grant("bash", hosts=("example.org", "*.example.org")), Grant("bash", hosts=("wiki.example",)))


@pytest.mark.parametrize(
    ("network", "left"),
    [
        (["example.org"], None),
        (["a.b.example.org", "wiki.example"], None),
        (["*.example.org"], None),
        (["example.net"], ["example.net"]),
        (["example.org", "example.net"], ["example.org", "example.net"]),
        (["*"], ["*"]),
        (True, True),
        ([], []),
    ],
)
def test_of_a_call_to_granted_hosts_only_the_rest_is_decided_on(network: object, left: object) -> None:
    call = {"command": "x", "network": network}
    assert without_granted_hosts(HOSTS, call) == (
        {"command": "x"} if left is None else {"command": "x", "network": left}
    )
    assert without_granted_hosts((), call) == call
    assert not any(grant.covers("ann", {"command": "x"}) for grant in HOSTS)


def test_a_call_that_wants_any_host_is_narrowed_to_those_that_are_granted() -> None:
    everything = {"command": "x", "network": True}
    hosts = ["*.example.org", "example.org", "wiki.example"]
    assert narrowed(HOSTS, everything) == {"command": "x", "network": hosts}
    assert narrowed(HOSTS, narrowed(HOSTS, everything)) == narrowed(HOSTS, everything)
    for other in ({"command": "x"}, {"command": "x", "network": ["example.net"]}):
        assert narrowed(HOSTS, other) == other
    over = (Grant("bash", hosts=("example.org",), expires=1.0),)
    assert granted_hosts(over) == () and narrowed(over, everything) == everything


async def test_what_is_disabled_stays_so_when_grants_are_withdrawn(tmp_path: Path) -> None:
    replies = [WRITE, "```bash\necho hello\n```", "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies)) as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            session = question["session"]
            await served.client.patch(f"/sessions/{session}", json={"disabled_tools": ["bash"]})
            for _ in range(3):  # at each server, where there are several
                await served.client.delete(f"/sessions/{session}/grants")
            await served.client.post(path, json={"decision": "approve"})
            events = await rest_of(turn)
    assert [event["name"] for event in events if event["type"] == "tool.started"] == ["write_file"]

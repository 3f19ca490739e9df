"""Profiles over HTTP: chosen by request, session and token, narrow there, pinned to their runs, and their owner's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from app.models.scripted import Scripted
from app.runs.run_options import RunOptions
from app.storage.principals import LOCAL_USER
from tests.support.access.people import bearer
from tests.support.models.chatting import DONE, chunk
from tests.support.models.chatting import says as said_as_chunk
from tests.support.models.replies import in_background, says
from tests.support.models.upstream import stream, upstream
from tests.support.server.background_jobs import runs_after_jobs
from tests.support.server.dragoman_process import server
from tests.support.server.serving import Served, events_of, serving, until

pytestmark = pytest.mark.anyio
FILE = """
[profiles.careful]
prompt = "Quote the lines that you mean."
tools = ["read_*", "list_files"]
approval = "ask"
temperature = 0.2
max_rounds = 2
memory = false

[profiles.wide]
tools = ["*"]
approval = "auto"
max_rounds = 200

[profiles.writer]
tools = ["write_file"]
approval = "ask"
max_rounds = 3
"""
WRITES = "```write_file\nnote.txt\nfirst\n```"


@asynccontextmanager
async def profiled(folder: Path, *replies: str) -> AsyncGenerator[tuple[Served, Scripted], None]:
    (folder / "dragoman.toml").write_text(FILE)
    model = Scripted(list(replies) or ["Done."], repeat=not replies)
    async with serving(folder, model) as served:
        yield served, model


def fits(event: dict[str, Any]) -> dict[str, Any]:
    """What an event of a run says of its profiles and rights."""
    limits = event["limits"]
    names = [(one["name"], one["source"]) for one in event.get("profiles", [])]
    return {"tools": event["tools"], "profiles": names, **{key: limits.get(key) for key in ("approval", "max_rounds")}}


async def test_a_request_names_a_profile_that_narrows_its_run(tmp_path: Path) -> None:
    async with profiled(tmp_path) as (served, model):
        plain, *_ = await served.chat()
        assert "profiles" not in plain and "bash" in plain["tools"]
        begun, *_ = await served.chat(profile="careful", max_rounds=9, approval="auto")
        assert fits(begun) == {
            "tools": ["read_file", "list_files", "read_result", "read_document"],
            "profiles": [("careful", "request")],
            "approval": "ask",
            "max_rounds": 2,
        }
        request = model.requests[-1]
        assert request.parameters["temperature"] == 0.2
        assert "\n\nQuote the lines that you mean.\n\n" in request.opening()[0].text
        run = (await served.client.get(f"/runs/{begun['run']}")).json()
        assert run["profiles"] == begun["profiles"] and "policy" not in run
        assert {"option": "max_rounds", "value": 2, "from": "profile careful"} in run["options"]
        wide, *_ = await served.chat(profile="wide", max_rounds=5)
        assert fits(wide) | {"tools": 0} == fits(wide) | {"tools": 0, "approval": "auto", "max_rounds": 5}
        assert set(wide["tools"]) <= set(plain["tools"])


async def test_the_instructions_stand_between_the_person_and_the_project(tmp_path: Path) -> None:
    persona = tmp_path / "data" / "persona" / "local"
    persona.mkdir(parents=True)
    (persona / "SOUL.md").write_text("You are Iris.")
    (persona / "USER.md").write_text("Ann grows roses.")
    async with profiled(tmp_path) as (served, model):
        await served.chat(profile="careful", system="Be brief.")
        await served.chat(profile="careful", system={"text": "Be brief.", "mode": "replace"})
    first, second = (request.opening()[0].text for request in model.requests)
    order = ["Be brief.", "You are Iris.", "Ann grows roses.", "Quote the lines that you mean."]
    assert sorted(order, key=first.index) == order
    assert "Iris" not in second and "roses" not in second and "Quote the lines" in second


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"profile": "nope"}, 422, "unknown_profile", "there are careful, wide, writer."),
        ({"profile": "careful", "tools": ["bash"]}, 422, "unknown_tool", "read_file"),
        ({"profile": "x" * 65}, 422, "invalid_request", "profile"),
        ({"profile": 3}, 422, "invalid_request", "profile"),
        ({"pinned": {}}, 422, "invalid_request", "unknown field pinned"),
    ],
)
async def test_a_wrong_choice_says_what_there_is(
    tmp_path: Path, body: dict[str, Any], status: int, code: str, words: str
) -> None:
    async with profiled(tmp_path) as (served, _):
        answer = await served.client.post("/chat", json={"message": "x"} | body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code) and words in error["message"]


async def test_a_model_that_does_not_exist_is_blamed_on_the_profile_that_names_it(tmp_path: Path) -> None:
    async with profiled(tmp_path) as (served, _):
        await served.client.put("/profiles/lost", json={"model": "nowhere/none"})
        answer = await served.client.post("/chat", json={"message": "x", "profile": "lost"})
        assert answer.status_code == 422 and "It is named by the profile lost." in answer.text
        answer = await served.client.post("/chat", json={"message": "x", "profile": "lost", "model": "none"})
        assert answer.status_code == 422 and "It is named by" not in answer.text


async def test_a_session_keeps_its_profile_and_options(tmp_path: Path) -> None:
    async with profiled(tmp_path) as (served, model):
        begun, *_ = await served.chat()
        session = f"/sessions/{begun['session']}"
        for body, words in (
            ({"profile": "nope"}, "careful"),
            ({"options": {"model": "nope"}}, "nope"),
            ({"options": {"tools": []}}, "unknown field options.tools"),
            ({"options": {"max_rounds": 0}}, "options.max_rounds"),
        ):
            answer = await served.client.patch(session, json=body)
            assert answer.status_code == 422 and words in answer.text, answer.text
        answer = await served.client.patch(
            session, json={"profile": "careful", "options": {"max_rounds": 1, "seed": 7}}
        )
        assert (answer.json()["profile"], answer.json()["options"]) == ("careful", {"max_rounds": 1, "seed": 7})
        next_one, *_ = await served.chat(session=begun["session"])
        assert fits(next_one)["profiles"] == [("careful", "session")] and next_one["limits"]["max_rounds"] == 1
        assert (model.requests[-1].parameters["seed"], model.requests[-1].parameters["temperature"]) == (7, 0.2)
        other, *_ = await served.chat(session=begun["session"], profile="writer", seed=8)
        assert fits(other)["profiles"] == [("writer", "request")] and fits(other)["tools"] == ["write_file"]
        assert model.requests[-1].parameters["seed"] == 8
        shown = (await served.client.get("/options", params={"session": begun["session"]})).json()
        assert {"option": "seed", "value": 7, "from": "session"} in shown["options"]
        await served.client.patch(session, json={"profile": None})
        bare, *_ = await served.chat(session=begun["session"])
        assert "profiles" not in fits(bare) or fits(bare)["profiles"] == []
        assert bare["limits"]["max_rounds"] == 1 and "bash" in bare["tools"]
        listed = (await served.client.get("/sessions")).json()["sessions"][0]
        assert (listed["profile"], listed["options"]) == (None, {"max_rounds": 1, "seed": 7})


async def test_a_session_without_its_profile_does_not_run_wider(tmp_path: Path) -> None:
    async with profiled(tmp_path) as (served, _):
        assert (await served.client.put("/profiles/tiny", json={"max_rounds": 1})).status_code == 201
        begun, *_ = await served.chat()
        await served.client.patch(f"/sessions/{begun['session']}", json={"profile": "tiny"})
        assert (await served.client.delete("/profiles/tiny")).status_code == 204
        answer = await served.client.post("/chat", json={"message": "x", "session": begun["session"]})
        assert answer.status_code == 422 and "The session's profile does not exist any more" in answer.text
        chosen, *_ = await served.chat(session=begun["session"], profile="careful")
        assert fits(chosen)["profiles"] == [("careful", "request")]


async def test_a_token_cannot_leave_its_profile(tmp_path: Path) -> None:
    async with profiled(tmp_path) as (served, model):
        root = await bearer(served, "root", "admin")
        bound = {"name": "ann", "profile": "writer"}
        missing = await served.client.post("/tokens", json=bound | {"profile": "nope"}, headers=root)
        assert missing.status_code == 422 and "careful" in missing.text
        made = (await served.client.post("/tokens", json=bound, headers=root)).json()
        assert made["profile"] == "writer"
        served.client.headers["authorization"] = f"Bearer {made['token']}"
        tools = [tool["name"] for tool in (await served.client.get("/tools")).json()["tools"]]
        assert tools == ["write_file"]
        plain, *_ = await served.chat(approval="sandboxed", max_rounds=50)
        assert fits(plain) == {
            "tools": ["write_file"],
            "profiles": [("writer", "token")],
            "approval": "ask",
            "max_rounds": 3,
        }
        wide, *_ = await served.chat(profile="wide")
        assert fits(wide)["tools"] == ["write_file"] and fits(wide)["max_rounds"] == 3
        narrow, *_ = await served.chat(profile="careful")
        assert (fits(narrow)["tools"], fits(narrow)["max_rounds"]) == ([], 2)
        # The lanes are under it, too: the agent's, and a relay, which has tools of the client only.
        tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
        asked = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
        for name in ("dragoman/agent", "scripted"):
            answer = await served.client.post("/v1/chat/completions", json=asked | {"model": name})
            assert answer.status_code == 200, answer.text
            assert "bash" not in [one.name for one in model.requests[-1].tools], name


@pytest.mark.parametrize("model", ["dragoman/agent", "scripted"])
async def test_a_client_of_a_lane_names_a_profile_in_a_header(tmp_path: Path, model: str) -> None:
    async with profiled(tmp_path) as (served, upstream_model):
        asked = {"messages": [{"role": "user", "content": "x"}], "model": model}
        post, name = served.client.post, "X-Dragoman-Profile"
        answer = await post("/v1/chat/completions", json=asked, headers={name: "careful"})
        assert answer.status_code == 200, answer.text
        request = upstream_model.requests[-1]
        assert request.parameters["temperature"] == 0.2
        prompts = [message.text for message in (*request.opening(), *request.messages)]
        assert any("Quote the lines" in text for text in prompts) == (model == "dragoman/agent")
        for wrong in ("nope", "x" * 65):
            answer = await post("/v1/chat/completions", json=asked, headers={name: wrong})
            assert answer.status_code in (400, 422) and "There is no profile" in answer.json()["error"]["message"]


async def test_a_server_without_profiles_reads_and_stores_nothing_for_them(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Done."], repeat=True)) as served:
        begun, *_ = await served.chat()
        options, reads = RunOptions(max_rounds=3), list[str]()
        served.services.factory.profiles._store = cast(Any, Reads(reads))
        assert await served.services.factory.resolved(LOCAL_USER, options, begun["session"]) is options
        assert reads == []
        [row] = await served.services.store.runs(begun["session"])
        assert row.policy == "{}" and "profiles" not in begun


class Reads:
    """A store that notes what is read of it."""

    def __init__(self, reads: list[str]) -> None:
        self._reads = reads

    def __getattr__(self, name: str) -> Any:
        self._reads.append(name)
        raise AttributeError(name)


async def test_a_run_that_follows_from_a_job_has_the_profile_of_the_run_that_began_it(tmp_path: Path) -> None:
    replies = [in_background("echo done"), says("It runs."), says("It has ended.")]
    async with asyncio.timeout(60), serving(tmp_path, Scripted(replies)) as served:
        await served.client.put("/profiles/jobs", json={"tools": ["bash"], "prompt": "Slowly.", "max_rounds": 3})
        begun, *_ = await served.chat(profile="jobs")
        await served.client.put("/profiles/jobs", json={})
        runs = await runs_after_jobs(served, 2, begun["session"])
        started = (await served.events(runs[1]["id"]))[0]
        assert started["profiles"] == begun["profiles"] and started["tools"] == ["bash"]
        assert started["limits"]["max_rounds"] <= 3


async def test_an_admin_whose_token_is_bound_changes_no_profile_and_makes_no_other_token(tmp_path: Path) -> None:
    async with profiled(tmp_path) as (served, _):
        bound = await bearer(served, "ben", "admin", profile="writer")
        for path, method, body in (
            ("/tokens", "POST", {"name": "free", "role": "admin"}),
            ("/profiles/new", "PUT", {"max_rounds": 3}),
        ):
            answer = await served.client.request(method, path, json=body, headers=bound)
            assert answer.status_code == 403 and "bound to the profile writer" in answer.text, path


async def test_a_token_whose_profile_is_gone_runs_nothing(tmp_path: Path) -> None:
    async with profiled(tmp_path) as (served, model):
        ann = await bearer(served, "ann", profile="gone")
        answer = await served.client.post("/chat", json={"message": "x"}, headers=ann)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "profile_missing")
        root = await bearer(served, "root", "admin")
        assert (await served.client.put("/profiles/gone", json={}, headers=root)).status_code == 201
        assert (await served.client.post("/chat", json={"message": "x"}, headers=ann)).status_code == 200
        kept = await served.client.delete("/profiles/gone", headers=root)
        assert kept.status_code == 409 and "revoke ann first" in kept.text
    assert len(model.requests) == 1


async def test_profiles_are_shared_by_admins_or_ones_own(tmp_path: Path) -> None:
    async with profiled(tmp_path) as (served, _):
        root, ann, bob = await bearer(served, "root", "admin"), await bearer(served, "ann"), await bearer(served, "bob")
        put, get = served.client.put, served.client.get
        assert (await put("/profiles/house", json={"max_rounds": 4}, headers=root)).json()["source"] == "shared"
        assert (await put("/profiles/mine", json={"max_rounds": 5}, headers=ann)).json()["source"] == "own"
        again = await put("/profiles/mine", json={"seed": 1}, headers=ann)
        assert (again.status_code, again.json()["options"]) == (200, {"seed": 1})  # replaced whole
        for headers, path, body, status in (
            (ann, "house", {}, 409),
            (ann, "new", {"shared": True}, 403),
            (ann, "careful", {}, 409),
            (ann, "a b", {}, 422),
            (ann, "odd", {"max_roundz": 1}, 422),
            (ann, "odd", {"tools": [""]}, 422),
            (ann, "odd", {"prompt": "x" * 16_001}, 422),
        ):
            answer = await put(f"/profiles/{path}", json=body, headers=headers)
            assert answer.status_code == status and answer.json()["error"]["message"], (path, answer.text)
        names = {}
        for name, headers in (("ann", ann), ("bob", bob)):
            rows = (await get("/profiles", headers=headers)).json()["profiles"]
            names[name] = [row["name"] for row in rows]
        assert names == {
            "ann": ["careful", "house", "mine", "wide", "writer"],
            "bob": ["careful", "house", "wide", "writer"],
        }
        refused = await served.client.post("/chat", json={"message": "x", "profile": "mine"}, headers=bob)
        assert refused.status_code == 422 and "mine" not in refused.json()["error"]["message"].partition(";")[2]
        assert (await served.client.delete("/profiles/house", headers=ann)).status_code == 403
        bound = await served.client.post("/tokens", json={"name": "new", "profile": "mine"}, headers=root)
        assert bound.status_code == 422  # a token is never bound to one's own
        audit = (await get("/audit", headers=root)).json()["audit"]
        assert {("profile house", "set"), ("profile mine", "set")} <= {
            (row["action"], row["decision"]) for row in audit
        }


async def test_a_run_that_waits_keeps_its_profile_over_a_restart(tmp_path: Path) -> None:
    """Edited and deleted meanwhile, on disk and in the database: the run goes on as it began."""
    async with profiled(tmp_path, WRITES) as (served, _):
        await served.client.put("/profiles/slow", json={"max_rounds": 2, "tools": ["write_*"], "prompt": "Slowly."})
        async with aclosing(served.turn(message="Go", profile="slow", approval="ask")) as turn:
            begun, waiting = await until(turn, "run.started"), await until(turn, "approval.required")
        await served.client.put("/profiles/slow", json={"max_rounds": 9, "prompt": "Quickly."})
        assert fits(begun)["max_rounds"] == 2
        await served.client.delete("/profiles/slow")
        await served.services.runs.close(0)
    async with profiled(tmp_path, WRITES, "Done.") as (served, model):
        run = f"/runs/{begun['run']}"
        await served.client.post(f"{run}/approvals/{waiting['call']}", json={"decision": "approve"})
        await served.services.runs.ended(begun["run"])
        ended = (await served.events(begun["run"]))[-1]
        assert (ended["type"], ended["rounds"]) == ("run.finished", 2)  # not 9, and not 20
        assert "Slowly." in model.requests[0].opening()[0].text
        assert [tool.name for tool in model.requests[0].tools] in ([], ["write_file"])
        state = (await served.client.get(run)).json()
        assert state["profiles"] == begun["profiles"]
        policy = json.loads((await served.services.store.runs(begun["session"]))[0].policy)
        assert policy["pinned"]["tools"] == [["write_*"]]


@pytest.mark.timeout(60)
async def test_a_killed_server_does_not_lose_what_limits_a_run(tmp_path: Path) -> None:
    """Killed while a call waits, after the profile was deleted: the run goes on under it."""
    (tmp_path / "work").mkdir()
    call = json.dumps({"name": "write_file", "arguments": {"path": "note.txt", "content": "x"}})
    said = stream(said_as_chunk(f"<tool_call>{call}</tool_call>"), chunk(finish="stop"), DONE)
    slow = {"max_rounds": 2, "tools": ["write_*"], "prompt": "Slowly.", "approval": "ask"}
    async with asyncio.timeout(50), upstream(said, repeat=True, chats=True) as model:
        async with server(tmp_path, model.base_url) as (client, process):
            assert (await client.put("/profiles/slow", json=slow)).status_code == 201
            body = {"message": "Go", "profile": "slow"}
            async with client.stream("POST", "/chat", json=body) as response, aclosing(events_of(response)) as turn:
                begun, waiting = await until(turn, "run.started"), await until(turn, "approval.required")
                assert (await client.delete("/profiles/slow")).status_code == 204
                process.kill()
            await process.wait()
        async with server(tmp_path, model.base_url) as (client, _):
            run = f"/runs/{begun['run']}"
            assert (await client.get("/profiles")).json()["profiles"] == []
            await client.post(f"{run}/approvals/{waiting['call']}", json={"decision": "approve"})
            async with client.stream("GET", f"{run}/events") as response, aclosing(events_of(response)) as events:
                ended = [event async for event in events][-1]
            state = (await client.get(run)).json()
    assert (ended["type"], ended["rounds"]) == ("run.finished", 2)
    assert state["profiles"] == begun["profiles"] != []
    prompts = [asked.json["messages"][0]["content"] for asked in model.asked if "messages" in (asked.json or {})]
    assert ["Slowly." in prompt for prompt in prompts[:2]] == [True, True]  # before the kill and after it


async def test_a_change_of_a_session_keeps_what_another_has_set_meanwhile(tmp_path: Path) -> None:
    async with asyncio.timeout(50), profiled(tmp_path) as (served, _):
        path = f"/sessions/{(await served.chat('Hi'))[0]['session']}"

        async def slowly() -> AsyncGenerator[bytes, None]:
            yield b'{"options": '
            assert (await served.client.patch(path, json={"profile": "careful"})).status_code == 200
            yield b'{"max_rounds": 5}}'

        headers = {"content-type": "application/json"}
        answer = await served.client.patch(path, content=slowly(), headers=headers)
        kept = (await served.client.get(path)).json()
    assert answer.status_code == 200 and (kept["profile"], kept["options"]) == ("careful", {"max_rounds": 5})

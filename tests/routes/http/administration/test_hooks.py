"""Hooks: guards fail closed and only narrow, observers change nothing, secrets do not leave."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.config.sources import SettingsError
from app.hooks.run_hooks import MOST_MESSAGES
from app.models.scripted import Scripted
from parsing import Call
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.sandbox.processes import all_gone, endless, until_alive
from tests.support.server.dragoman_process import server
from tests.support.server.events import kinds
from tests.support.server.receivers import HANG, HUGE, receiver
from tests.support.server.serving import Served, serving, settings_in, until

pytestmark = pytest.mark.anyio
LIMIT_S = 30
ALLOW, DENY, ASK = ({"decision": word, "reason": "Rule 7."} for word in ("allow", "deny", "ask"))
WRITE = "```write_file\nnote.txt\nfirst\n```"
READ = "```read_file\nnote.txt\n```"


def script(folder: Path, answer: object = ALLOW, *, name: str = "hook", last: str = "", first: str = "") -> list[str]:
    """A command that keeps what it is given, each payload on a line of `NAME.jsonl`, and its environment."""
    file = folder / f"{name}.sh"
    text = answer if isinstance(answer, str) else json.dumps(answer)
    lines = [first, f"cat >> {folder}/{name}.jsonl", f"echo >> {folder}/{name}.jsonl", f"env > {folder}/{name}.env"]
    file.write_text("\n".join(["#!/bin/sh", *lines, f"printf '%s' '{text}'", last, ""]))
    file.chmod(0o755)
    return [str(file)]


def hooked(folder: Path, *rows: Mapping[str, object]) -> None:
    tables = ["\n".join(f"{name} = {json.dumps(value)}" for name, value in row.items()) for row in rows]
    (folder / "dragoman.toml").write_text("".join(f"[[hooks]]\n{table}\n" for table in tables))


def guard(folder: Path, on: str, answer: object = ALLOW, **more: object) -> dict[str, object]:
    return {"name": "g", "on": on, "kind": "guard", "command": script(folder, answer)} | more


def payloads(folder: Path, name: str = "hook") -> list[dict[str, Any]]:
    file = folder / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def audited(served: Served) -> list[tuple[str, str, str]]:
    rows = (await served.client.get("/audit")).json()["audit"]
    return [(row["action"], row["decision"], row["by"]) for row in rows]


async def test_a_guard_sees_the_arguments_that_run_and_may_deny_them(tmp_path: Path) -> None:
    hooked(tmp_path, guard(tmp_path, "before_tool", DENY, tools=["write_*"]))
    provider = Scripted([READ, WRITE, "Not done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Write.")
        assert ("write_file", "deny", "hook g") in await audited(served)
    [payload] = payloads(tmp_path)
    assert payload["arguments"] == {"path": "note.txt", "content": "first\n"} or payload["arguments"] == {
        "path": "note.txt",
        "content": "first",
    }
    assert (payload["version"], payload["event"], payload["tool"]) == (1, "before_tool", "write_file")
    assert payload["principal"] == "local" and payload["untrusted"] is False
    rejected = next(event for event in events if event["type"] == "tool.rejected")
    assert rejected["code"] == "hook" and "Rule 7." in rejected["reason"] and events[-1]["type"] == "run.finished"
    assert not (tmp_path / "work" / "note.txt").exists()


@pytest.mark.parametrize(
    ("answer", "last", "trouble"),
    [
        (ALLOW, "exit 3", "ended with exit code 3"),
        ("", "", "answered no JSON"),
        ("yes", "", "answered no JSON"),
        ('{"decision": "maybe"}', "", "answered no decision"),
        ('{"decision": "allow", "reason": 5}', "", "a reason that is no text"),
        ("[" * 50_000, "", "answered no JSON"),
        ("", "head -c 99999 /dev/zero", "answered more than 65,536 bytes"),
        ("", "sleep 60 & wait", "took more than 0.3 s"),
    ],
)
async def test_a_guard_that_does_not_answer_denies(tmp_path: Path, answer: object, last: str, trouble: str) -> None:
    row = guard(tmp_path, "before_tool", answer, time_limit_s=0.3 if "sleep" in last else 20)
    row["command"] = script(tmp_path, answer, last=last)
    hooked(tmp_path, row)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Not done."])) as served:
        events = await served.chat("Write.")
        state = (await served.client.get("/hooks")).json()
    reason = next(event for event in events if event["type"] == "tool.rejected")["reason"]
    assert trouble in reason and "The hook g" in reason and state["failed"] == 1
    assert not (tmp_path / "work" / "note.txt").exists() and events[-1]["type"] == "run.finished"


@pytest.mark.parametrize(
    ("status", "body", "runs"),
    [
        *((200, json.dumps(ALLOW), True), (200, json.dumps(DENY), False)),
        *((status, "", False) for status in (302, 500, HUGE, HANG)),
    ],
)
async def test_a_guard_over_http(tmp_path: Path, status: int, body: str, runs: bool) -> None:
    async with asyncio.timeout(LIMIT_S), receiver(status) as there:
        there.body = body
        row = {"name": "g", "on": "before_tool", "kind": "guard", "url": there.url, "key_env": "HOME"}
        hooked(tmp_path, row | {"time_limit_s": 0.5 if status == HANG else 20})
        async with serving(tmp_path, Scripted([WRITE, "Done."])) as served:
            await served.chat("Write.")
        [request] = await there.got(1)
    assert request.headers["authorization"] == f"Bearer {os.environ['HOME']}"
    assert json.loads(request.body)["tool"] == "write_file"
    assert (tmp_path / "work" / "note.txt").exists() is runs


async def test_a_guard_may_ask_and_never_allows_what_needs_approval(tmp_path: Path) -> None:
    hooked(tmp_path, guard(tmp_path, "before_tool", ASK))
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."] * 2)) as served:
        async with aclosing(served.turn(message="Write.", approval="auto")) as turn:
            run = (await until(turn, "run.started"))["run"]
            question = await until(turn, "approval.required")
            assert question["reason"] == "The hook g asks first. Rule 7."
            edited = {"decision": "approve", "arguments": {"path": "other.txt", "content": "x"}}
            await served.client.post(f"/runs/{run}/approvals/{question['call']}", json=edited)
            assert [event async for event in turn][-1]["type"] == "run.finished"
        unattended = await served.chat("Write.", approval="deny")
    assert "tool.started" not in kinds(unattended)
    assert [one["arguments"]["path"] for one in payloads(tmp_path)] == ["note.txt", "other.txt", "note.txt"]
    hooked(tmp_path, guard(tmp_path, "before_tool", ALLOW))
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."])) as served:
        assert "tool.started" not in kinds(await served.chat("Write.", approval="ask", when_absent="deny"))


async def test_edited_arguments_are_asked_about_again(tmp_path: Path) -> None:
    row = guard(tmp_path, "before_tool")
    deny_other = f"grep -q other.txt {tmp_path}/hook.jsonl && printf '%s' '{json.dumps(DENY)}' || printf '%s' "
    row["command"] = script(tmp_path, "", last=f"{deny_other}'{json.dumps(ASK)}'")
    hooked(tmp_path, row)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."])) as served:
        async with aclosing(served.turn(message="Write.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            question = await until(turn, "approval.required")
            edited = {"decision": "approve", "arguments": {"path": "other.txt", "content": "x"}}
            await served.client.post(f"/runs/{run}/approvals/{question['call']}", json=edited)
            events = [event async for event in turn]
    assert "tool.started" not in kinds(events)
    assert [one["code"] for one in events if one["type"] == "tool.rejected"] == ["hook"]


async def test_a_withheld_result_does_not_reach_the_model_or_its_record(tmp_path: Path) -> None:
    hooked(tmp_path, guard(tmp_path, "after_tool", DENY))
    provider = Scripted([READ, "So."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        (tmp_path / "work" / "note.txt").write_text("the code is 4711")
        events = await served.chat("Read.")
        [started] = [event for event in events if event["type"] == "tool.started"]
        run = events[0]["run"]
        whole = await served.client.get(f"/runs/{run}/calls/{started['call']}/output")
    assert "4711" in payloads(tmp_path)[0]["text"]
    assert "4711" not in json.dumps(events) + whole.text
    assert not any("4711" in message.text for request in provider.requests for message in request.messages)


@pytest.mark.parametrize("on", ["before_model", "after_model", "before_answer"])
async def test_a_denied_request_or_answer_ends_the_run_once(tmp_path: Path, on: str) -> None:
    hooked(tmp_path, guard(tmp_path, on, DENY))
    provider = Scripted([WRITE, "Done."] if on != "before_answer" else ["Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Write.")
        hooked(tmp_path, {"name": "o", "on": on, "kind": "observer", "command": script(tmp_path, name="o")})
        session = (await served.client.get(f"/sessions/{events[0]['session']}")).json()
        assert (on, "deny", "hook g") in await audited(served)
    assert [kind for kind in kinds(events) if kind in ("run.finished", "run.failed")] == ["run.failed"]
    assert events[-1]["code"] == "hook_denied" and "Rule 7." in events[-1]["message"]
    assert "tool.started" not in kinds(events) and len(provider.requests) == (0 if on == "before_model" else 1)
    calls = [call["id"] for message in session["messages"] for call in message.get("calls", ())]
    assert {message.get("call") for message in session["messages"]} >= set(calls)  # the history stays valid


async def test_every_way_to_a_model_passes_the_hooks(tmp_path: Path) -> None:
    """Runs, their side queries and the relay: whatever reserves budget for a request asks first."""
    hooked(tmp_path, {"name": "g", "on": "before_model", "kind": "guard", "command": script(tmp_path, DENY)})
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Never."])) as served:
        await served.chat("x " * MOST_MESSAGES)
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        body = {"model": "scripted", "messages": [{"role": "user", "content": "relayed"}], "tools": [tool]}
        answer = await served.client.post("/v1/chat/completions", json=body)
        assert answer.status_code >= 400 and "Rule 7." in answer.text
    assert [one["messages"][-1]["text"].strip()[:7] for one in payloads(tmp_path)] == ["x x x x", "relayed"]


def test_whatever_streams_a_model_is_metered() -> None:
    """The check of hooks is in the reservation: no module reads a provider's stream without one."""
    streaming = [path for path in Path("app").rglob("*.py") if "aclosing(provider.stream(" in path.read_text()]
    streaming += [Path("app/budget/side_query.py"), Path("app/runs/agent.py")]
    assert all("metered_request" in path.read_text() for path in streaming)


@pytest.mark.parametrize(("called", "verdict"), [("f", DENY), ("f", ASK), ("undeclared", DENY)])
async def test_a_relayed_call_is_asked_about_and_not_handed_over(
    tmp_path: Path, called: str, verdict: dict[str, str]
) -> None:
    hooked(tmp_path, guard(tmp_path, "before_tool", verdict))
    call = Call(0, called, {"x": 1}, "native")
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([(call,)])) as served:
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        body = {"model": "scripted", "messages": [{"role": "user", "content": "go"}], "tools": [tool]}
        answer = (await served.client.post("/v1/chat/completions", json=body)).json()
    assert not answer["choices"][0]["message"].get("tool_calls")
    assert [one["arguments"] for one in payloads(tmp_path)] == [{"x": 1}]


async def test_a_call_of_the_clients_tool_that_a_person_should_be_asked_about_is_refused(tmp_path: Path) -> None:
    hooked(tmp_path, guard(tmp_path, "before_tool", ASK))
    provider = Scripted(['<tool_call>{"name": "look", "arguments": {}}</tool_call>', "Not done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        tool = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
        events = await served.chat("Look.", client_tools=[tool])
    assert "tool.handed" not in kinds(events) and events[-1]["reason"] == "answered"
    assert "would have a person asked" in next(one for one in events if one["type"] == "tool.rejected")["reason"]


@pytest.mark.parametrize("on", ["before_model", "after_tool"])
async def test_cancelling_a_run_ends_the_hook_that_it_waits_for(tmp_path: Path, on: str) -> None:
    sleeper = endless()
    hooked(tmp_path, guard(tmp_path, on, time_limit_s=60) | {"command": script(tmp_path, last=sleeper)})
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."])) as served:
        async with aclosing(served.turn(message="Write.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            cancelled = asyncio.create_task(cancel_when_alive(served, run, sleeper))
            events = [event async for event in turn]
            await cancelled
        assert await asyncio.to_thread(all_gone, sleeper)
    assert events[-1]["type"] == "run.finished" and events[-1]["reason"] == "cancelled"
    assert (tmp_path / "work" / "note.txt").exists() is (on == "after_tool")


async def cancel_when_alive(served: Served, run: str, command: str) -> None:
    await until_alive(command)
    assert (await served.client.post(f"/runs/{run}/cancel")).status_code < 300


async def test_observers_change_nothing_and_are_not_waited_for(tmp_path: Path) -> None:
    events = ("before_model", "after_model", "before_tool", "after_tool", "before_answer", "after_answer")
    rows = [
        {"name": on, "on": on, "kind": "observer", "command": script(tmp_path, DENY, name=on, first=f"echo {on}; ")}
        for on in events
    ]
    os.mkfifo(gate := tmp_path / "gate")
    waits = ["/bin/sh", "-c", 'read line < "$0"', str(gate)]
    stuck = {"name": "stuck", "on": "before_tool", "kind": "observer", "command": waits, "time_limit_s": LIMIT_S}
    hooked(tmp_path, *rows, stuck)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."])) as served:
        log = await served.chat("Write.")
        assert log[-1]["type"] == "run.finished" and (tmp_path / "work" / "note.txt").read_text()
        hooks = served.services.factory.hooks
        assert hooks and hooks.failed == 0  # the stuck one has not been waited for
        writes = os.open(gate, os.O_RDWR)  # which waits for no reader
        os.write(writes, b"Go on.\n")
        await hooks.informed()
        os.close(writes)
        assert hooks.failed == 0
    assert payloads(tmp_path, "after_answer")[0]["text"].endswith("Done.")
    assert [len(payloads(tmp_path, on)) for on in events] == [2, 2, 1, 1, 1, 1]


async def test_secrets_do_not_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "sk-very-secret-4711")
    hooked(tmp_path, guard(tmp_path, "after_tool", env=["HOME"]), guard(tmp_path, "before_model") | {"name": "h"})
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([READ, "So."])) as served:
        (tmp_path / "work" / "note.txt").write_text("key: sk-very-secret-4711")
        await served.chat("Read sk-very-secret-4711.")
    assert len(payloads(tmp_path)) == 3 and "sk-very-secret-4711" not in (tmp_path / "hook.jsonl").read_text()
    environment = dict(line.split("=", 1) for line in (tmp_path / "hook.env").read_text().splitlines() if "=" in line)
    assert "SERVICE_API_KEY" not in environment


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"on": "sometimes"}, "on"),
        ({"kind": "judge"}, "kind"),
        ({"url": "http://127.0.0.1:9"}, "either a command"),
        ({"command": ["./hook.sh"]}, "is no program here"),
        ({"command": ["/no/such/program"]}, "is no program here"),
        ({"tools": ["bash"], "on": "before_model"}, "has tools"),
        ({"on": "after_answer"}, "nothing is left to decide"),
        ({"env": ["NOT_SET_4711"]}, "NOT_SET_4711, which is not set"),
        ({"time_limit_s": 0}, "time_limit_s"),
        ({"what": 1}, "what"),
    ],
)
def test_a_row_that_cannot_be_understood_stops_the_start(tmp_path: Path, row: dict[str, Any], problem: str) -> None:
    usual = {"name": "g", "on": "before_tool", "kind": "guard", "command": ["/bin/true"]}
    hooked(tmp_path, usual | row)
    with pytest.raises(SettingsError) as stopped:
        settings_in(tmp_path)
    assert problem in str(stopped.value)


async def test_a_server_killed_while_a_guard_is_asked_has_not_run_the_call(tmp_path: Path) -> None:
    row = guard(tmp_path, "before_tool", time_limit_s=60)
    sleeper = endless()
    row["command"] = script(tmp_path, last=sleeper)
    hooked(tmp_path, row)
    replies = stream(says(WRITE), chunk(finish="stop"), DONE)
    config = ("--config", str(tmp_path / "dragoman.toml"))
    async with asyncio.timeout(60), upstream(replies, chats=True) as model:
        async with server(tmp_path, model.base_url, *config) as (client, process):
            body = {"message": "Write."}
            answer = await client.post("/chat", json=body, headers={"Prefer": "respond-async"})
            run = answer.headers["x-run-id"]
            await until_alive(sleeper)
            process.kill()
            await process.wait()
        assert await asyncio.to_thread(all_gone, sleeper)
        async with server(tmp_path, model.base_url, *config) as (client, process):
            await until_alive(sleeper)  # it is asked again
            await client.post(f"/runs/{run}/cancel")
            log = (await client.get(f"/runs/{run}/events")).text
    assert log.count("event: run.f") == 1 and '"cancelled"' in log
    assert "tool.started" not in log and not (tmp_path / "work" / "note.txt").exists()

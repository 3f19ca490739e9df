"""Apps of MCP servers: what is shown of a call, and what an app may do, each thing under the gate and in the audit."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.config.sources import SettingsError
from app.models.scripted import Scripted
from app.runs.composition.app_requests import MOST_WAITING
from app.transcript.run_request import MAX_LINE
from routes.http.mcp.apps import PER_MINUTE
from tests.support.access.people import bearer
from tests.support.mcp.faulty_servers import FIXTURES
from tests.support.mcp.real_servers import node_server
from tests.support.mcp.served import READS, helper, serving_mcp
from tests.support.server.approvals import follow, stop_as_killed
from tests.support.server.serving import Served, settings_in, until

pytestmark = pytest.mark.anyio
SHOW = "```mcp__clock__show\n{}\n```"
ALLOWED = {"appDomains": ["https://api.example.com"]}
LIMIT_S = 30


def clock(*args: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(FIXTURES / "apps.py"), *args], **more}


@asynccontextmanager
async def showing(
    folder: Path, *replies: str, **flags: Any
) -> AsyncGenerator[tuple[Served, dict[str, Any], Scripted], None]:
    """A server, and the event of an app that it shows."""
    provider = Scripted([SHOW, "There it is.", *replies])
    servers: dict[str, object] = {"clock": clock(**ALLOWED), "helper": helper()}
    async with serving_mcp(folder, provider, servers, **{"tools": READS, **flags}) as served:
        events = await served.chat("Show me the clock.")
        [shown] = [event for event in events if event["type"] == "tool.app"]
        yield served, shown | {key: events[0][key] for key in ("run", "session")}, provider


async def asked(served: Served, shown: dict[str, Any], method: str, **params: Any) -> httpx2.Response:
    path = f"/runs/{shown['run']}/calls/{shown['call']}/app"
    return await served.client.post(path, json={"method": method, "params": params})


async def state_of(served: Served, shown: dict[str, Any]) -> Any:
    answer = await served.client.get(f"/runs/{shown['run']}/calls/{shown['call']}/app")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def last_run(served: Served, session: str) -> str:
    return (await served.services.store.last_runs(session, None, 1))[0].id


async def test_a_result_is_shown_by_an_app_which_calls_tools_of_its_server(tmp_path: Path) -> None:
    async with showing(tmp_path) as (served, shown, provider):
        assert (shown["name"], shown["server"], shown["uri"]) == ("mcp__clock__show", "clock", "ui://clock/app.html")
        assert shown["csp"]["connectDomains"] == ["https://api.example.com"] and shown["border"] is True
        assert shown["csp"]["resourceDomains"] == []
        files = f"/sessions/{shown['session']}/files"
        html = await served.client.get(f"{files}/{shown['file']}")
        assert html.text == "<!doctype html><p>Page</p>" and "attachment" in html.headers["content-disposition"]
        whole = json.loads((await served.client.get(f"{files}/{shown['result']}")).text)
        assert whole["structuredContent"]["tool"] == "show" and whole["_meta"] == {"of": "show"}
        [again] = [one for one in await served.events(shown["run"]) if one["type"] == "tool.app"]
        assert again["file"] == shown["file"], "from the log"

        before = (await served.client.get(f"/sessions/{shown['session']}")).json()["messages"]
        answer = await asked(served, shown, "tools/call", name="tick", arguments={"at": 5})
        assert answer.status_code == 200, answer.text
        result = answer.json()["result"]
        assert result["content"] == [{"type": "text", "text": "tick has run"}] and result["_meta"] == {"of": "tick"}
        assert result["structuredContent"]["arguments"] == {"at": 5}
        events = await served.events(await last_run(served, shown["session"]))
        assert (events[0]["type"], events[0]["source"]) == ("run.started", "app")
        assert [one["name"] for one in events if one["type"] == "tool.finished"] == ["mcp__clock__tick"]
        assert sum(one["type"] in ("run.finished", "run.failed") for one in events) == 1
        of_show = await asked(served, shown, "tools/call", name="show")
        assert of_show.status_code == 200, of_show.text
        assert of_show.json()["result"]["structuredContent"]["tool"] == "show"
        events = await served.events(await last_run(served, shown["session"]))
        assert "tool.app" not in [one["type"] for one in events], "an app shows no app"
        after = (await served.client.get(f"/sessions/{shown['session']}")).json()["messages"]
        assert after == before and len(provider.requests) == 2, "no model reads what an app does"
        rows = (await served.client.get("/audit")).json()["audit"]
        of_app = [(one["action"], one["decision"], one["why"]) for one in rows if one["action"] == "app clock"]
        assert of_app[-1] == ("app clock", "tools/call", '{"name": "tick", "arguments": {"at": 5}}')
        assert "mcp__clock__tick" in [one["action"] for one in rows], "and the gate's own decision"


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("tools/call", {"name": "think"}, 403, "has no tool 'think' for its apps"),
    ("tools/call", {"name": "nobody"}, 403, "for its apps"),
    ("tools/call", {"name": "echo", "arguments": {"text": "x"}}, 403, "for its apps"),
    ("tools/call", {"name": "mcp__helper__echo"}, 403, "for its apps"),
    ("tools/call", {"name": "mcp__clock__tick"}, 403, "for its apps"),
    ("tools/call", {"name": "bash", "arguments": {"command": "id"}}, 403, "for its apps"),
    ("tools/call", {"name": ["tick"]}, 403, "name must be a text"),
    ("tools/call", {"name": "tick", "arguments": "x"}, 403, "arguments must be an object"),
    ("resources/read", {}, 403, "uri must be a text"),
    ("ui/message", {"role": "user", "content": []}, 403, "An app says 1 to"),
    ("ui/message", {"content": [{"type": "text", "text": "x" * 20_001}]}, 403, "1 to 20,000"),
    ("ui/update-model-context", {"structuredContent": {"x": "x" * 20_001}}, 403, "1 to 20,000"),
    ("state", {"x": "x" * 64_001}, 403, "at most 64,000"),
    ("ui/initialize", {}, 422, "method"),
]


async def test_what_an_app_may_not_do(tmp_path: Path) -> None:
    async with showing(tmp_path) as (served, shown, _):
        for method, params, status, words in REFUSED:
            answer = await asked(served, shown, method, **params)
            assert answer.status_code == status and words in answer.json()["error"]["message"], (method, answer.text)
        assert (await asked(served, shown, "state", x="x" * 600_000)).status_code == 413
        assert (await asked(served, shown | {"call": "call_none"}, "state")).status_code == 404
        assert (await asked(served, shown, "ui/open-link", url="https://example.com/a")).json() == {"result": {}}
        other = await bearer(served, "bob", role="admin")
        path = f"/runs/{shown['run']}/calls/{shown['call']}/app"
        assert (await served.client.get(path, headers=other)).status_code == 404
        body = {"method": "tools/call", "params": {"name": "tick"}}
        assert (await served.client.post(path, json=body, headers=other)).status_code == 404


async def test_a_flood_of_requests_ends(tmp_path: Path) -> None:
    async with showing(tmp_path) as (served, shown, _):
        answers = [(await asked(served, shown, "tools/call")).status_code for _ in range(PER_MINUTE + 1)]
        assert set(answers[:-1]) == {403} and answers[-1] == 429


async def test_a_model_neither_sees_nor_calls_what_is_for_apps(tmp_path: Path) -> None:
    calls = ("```mcp__clock__tick\n{}\n```", '<tool_call>{"name": "mcp__clock__tick", "arguments": {}}</tool_call>')
    async with showing(tmp_path, *calls, "Pity.") as (served, _, provider):
        listed = (await served.client.get("/tools")).json()["tools"]
        assert {"mcp__clock__show", "mcp__clock__think"} <= {one["name"] for one in listed}
        assert not {"mcp__clock__tick", "mcp__clock__nobody"} & {one["name"] for one in listed}
        fenced, tagged = await served.chat("Tick."), await served.chat("Tick.")
        assert not [one for one in fenced + tagged if one["type"] in ("tool.started", "tool.finished")]
        [rejected] = [one for one in tagged if one["type"] == "tool.rejected"]
        assert "mcp__clock__tick may not be used: mcp__clock__tick is not for models." in rejected["reason"]
        assert rejected["code"] == "app"
        assert not any("tick" in one.name for request in provider.requests for one in request.tools)


async def test_what_an_app_gives_the_model_is_data_of_the_next_turn(tmp_path: Path) -> None:
    async with showing(tmp_path, "I see.", "Nothing new.") as (served, shown, provider):
        given = [{"type": "text", "text": "first"}]
        assert (await asked(served, shown, "ui/update-model-context", content=given)).status_code == 200
        given = [{"type": "text", "text": "12 is chosen"}, {"type": "image", "data": "x"}]
        structured = {"hour": 12}
        await asked(served, shown, "ui/update-model-context", content=given, structuredContent=structured)
        await asked(served, shown, "state", height=300, context="forged")
        state = (await state_of(served, shown))["state"]
        assert state == {"context": {"content": given, "structuredContent": structured}, "height": 300}
        await asked(served, shown, "tools/call", name="tick")
        events = await served.chat("And now?", session=shown["session"])
        assert "app_context" in [one.get("code") for one in events]
        *_, data, question = provider.requests[-1].messages
        assert "12 is chosen" in data.text and '{"hour": 12}' in data.text and "first" not in data.text
        assert "Untrusted data of the app" in data.text and question.text.endswith("And now?")
        assert await served.services.store.tainted(shown["session"])
        await served.chat("And now?", session=shown["session"])
        read = [one for one in provider.requests[-1].messages if "12 is chosen" in one.text]
        assert len(read) == 1, "once"
        assert (await asked(served, shown, "ui/update-model-context", content=given)).status_code == 200
        assert (await asked(served, shown, "ui/update-model-context")).status_code == 200
        assert not (await served.services.store.session_state(shown["session"])).contexts, "it was taken back"


async def test_a_confirmed_message_is_a_turn_of_untrusted_words(tmp_path: Path) -> None:
    async with showing(tmp_path, "Twelve it is.") as (served, shown, provider):
        content = [{"type": "text", "text": "Take twelve."}]
        answer = (await asked(served, shown, "ui/message", role="user", content=content)).json()["result"]
        assert answer["session"] == shown["session"]
        assert (await served.events(answer["run"]))[-1]["text"] == "Twelve it is."
        words = provider.requests[-1].messages[-1].text
        assert "The app of mcp__clock__show" in words and "Take twelve." in words and "Untrusted data" in words
        assert await served.services.store.tainted(shown["session"])
        path = f"/sessions/{shown['session']}"
        run = (await served.client.get(f"{path}/log")).json()["runs"][-1]
        assert (run["run"], run["message"]["shown"], run["message"]["app"]) == (answer["run"], "Take twelve.", "clock")
        kept = [one for one in (await served.client.get(path)).json()["messages"] if one.get("app")]
        assert [one["shown"] for one in kept] == ["Take twelve."], "people are shown the bare words"
        for kind in ("markdown", "html"):
            exported = (await served.client.get(f"{path}/export?format={kind}")).text
            assert "From the app of clock, confirmed by you" in exported and "Take twelve." in exported
            assert "Untrusted data" not in exported
        items = (await served.client.get(f"{path}/export?format=responses")).json()["input"]
        assert "Untrusted data of the app" in json.dumps(items), "what a model reads stays delimited"
        for whole, shared in ((True, "Take twelve."), (False, "(not shared)")):
            made = await served.client.post(f"{path}/shares", json={"tool_results": whole})
            read = await served.client.get(
                made.json()["path"], headers={"authorization": "", "accept": "application/json"}
            )
            [of_app] = [one["message"] for one in read.json()["runs"] if one["message"].get("app")]
            assert (of_app["shown"], of_app["app"]) == (shared, "clock"), read.text


async def test_what_an_app_polls_leaves_the_turns_in_the_first_page_of_the_log(tmp_path: Path) -> None:
    async with showing(tmp_path) as (served, shown, _):
        path = f"/sessions/{shown['session']}/log"
        before = (await served.client.get(path)).json()
        for _ in range(3):
            assert (await asked(served, shown, "tools/call", name="tick")).status_code == 200
        newest = await last_run(served, shown["session"])
        log = (await served.client.get(f"{path}?runs=2")).json()
        assert [one["run"] for one in log["runs"]] == [shown["run"], newest] and not log["earlier"]
        assert log["cursor"].startswith(f"{newest}:"), "a page goes on behind all of them"
        assert log["usage"] == before["usage"]
        earlier = (await served.client.get(f"{path}?before={newest}")).json()
        assert [one["run"] for one in earlier["runs"]] == [shown["run"]]


RULES = '[{"match": "mcp__clock__show", "risk": "read", "untrusted": false}]'


async def waiting_call(
    served: Served, shown: dict[str, Any], uri: str = ""
) -> tuple[asyncio.Task[httpx2.Response], str, str]:
    """A call of the app that waits, or its reading of a resource: the request, its run, and the id of the call."""
    before = await last_run(served, shown["session"])
    with served.services.runs.notifier.subscribed(shown["session"]) as begun:
        note = {"uri": uri} if uri else {"note": "from an app"}
        method, params = ("resources/read", note) if uri else ("tools/call", {"name": "tick", "arguments": note})
        calling = asyncio.create_task(asked(served, shown, method, **params))
        async with asyncio.timeout(LIMIT_S):
            while True:
                begun.clear()
                if (run := await last_run(served, shown["session"])) != before:
                    break
                await begun.wait()
    async with asyncio.timeout(LIMIT_S), aclosing(follow(served.client, run, 0)) as turn:
        approval = await until(turn, "approval.required")
    assert (approval["name"], approval["arguments"]) == (f"mcp__clock__{'resources' if uri else 'tick'}", note)
    return calling, run, approval["call"]


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_call_of_an_app_waits_for_a_person(decision: str, tmp_path: Path) -> None:
    async with showing(tmp_path, tools=RULES) as (served, shown, _):
        calling, run, call = await waiting_call(served, shown)
        answer = await served.client.post(f"/runs/{run}/approvals/{call}", json={"decision": decision})
        assert answer.status_code == 200
        async with asyncio.timeout(LIMIT_S):
            result = (await calling).json()["result"]
        if decision == "approve":
            assert result["structuredContent"]["arguments"] == {"note": "from an app"}
        else:
            assert result["isError"] and "denied it" in result["content"][0]["text"]


READ: list[tuple[str, str, int, str]] = [
    ("note://data", "approve", 200, '"data of the server"'),
    ("note://data", "deny", 502, "denied it"),
    ("file:///etc/passwd", "approve", 502, "no such resource"),
]


async def test_an_app_reads_resources_as_it_calls(tmp_path: Path) -> None:
    """A page into which a result has brought a script of others asks before an address takes data to its server."""
    async with showing(tmp_path) as (served, shown, _):
        for uri, decision, status, words in READ:
            reading, run, call = await waiting_call(served, shown, uri)
            await served.client.post(f"/runs/{run}/approvals/{call}", json={"decision": decision})
            async with asyncio.timeout(LIMIT_S):
                answer = await reading
            assert answer.status_code == status and words in answer.text
        left_out = {"disabled_tools": ["mcp__clock__resources"]}
        assert (await served.client.patch(f"/sessions/{shown['session']}", json=left_out)).is_success
        refused = await asked(served, shown, "resources/read", uri="note://data")
        assert refused.status_code == 502 and "disabled" in refused.text


async def test_calls_of_an_app_leave_room_for_the_person(tmp_path: Path) -> None:
    async with showing(tmp_path, tools=RULES) as (served, shown, _):
        calling, run, _ = await waiting_call(served, shown)
        with served.services.runs.notifier.subscribed(shown["session"]) as begun:
            note = {"name": "tick", "arguments": {"note": "again"}}
            more = [asyncio.create_task(asked(served, shown, "tools/call", **note)) for _ in range(MAX_LINE)]
            refused = [(await first).status_code for first in islice(asyncio.as_completed(more), MOST_WAITING)]
            while len(await served.services.runs.waiting(shown["session"])) < MOST_WAITING:
                begun.clear()
                await asyncio.wait_for(begun.wait(), LIMIT_S)
        steered = await served.client.post(f"/runs/{run}/messages", json={"message": "Wait for me."})
        assert steered.status_code == 409, "no model would read it"
        assert refused == [403] * MOST_WAITING
        later = {"message": "Hello?", "session": shown["session"], "when_busy": "queue"}
        answer = await served.client.post("/chat", json=later, headers={"prefer": "respond-async"})
        assert answer.status_code == 202, answer.text
        await served.services.runs.cancel_all("cancelled")
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(calling, *more)


async def test_an_app_learns_why_its_call_failed(tmp_path: Path) -> None:
    servers: dict[str, object] = {"clock": clock("dies of tick")}
    async with serving_mcp(tmp_path, Scripted([SHOW, "There it is."]), servers, tools=READS) as served:
        events = await served.chat("Show me the clock.")
        [shown] = [event for event in events if event["type"] == "tool.app"]
        shown |= {key: events[0][key] for key in ("run", "session")}
        result = (await asked(served, shown, "tools/call", name="tick")).json()["result"]
    assert result["isError"] and "went away during the call" in result["content"][0]["text"]


async def test_a_call_of_an_app_ends_with_its_request(tmp_path: Path) -> None:
    async with showing(tmp_path, tools=RULES) as (served, shown, _):
        calling, run, _ = await waiting_call(served, shown)
        calling.cancel()
        async with asyncio.timeout(LIMIT_S):
            await served.services.runs.ended(run)
        assert (await served.events(run))[-1]["reason"] == "cancelled"
        assert (await served.client.get("/approvals")).json()["approvals"] == []


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_call_of_an_app_ends_with_its_server(is_killed: bool, tmp_path: Path) -> None:
    """It is beside the conversation, and the app that waited for it is gone."""
    async with showing(tmp_path, tools=RULES) as (served, shown, _):
        calling, run, _ = await waiting_call(served, shown)
        if is_killed:
            await stop_as_killed(served.services, run)
        else:
            await served.services.runs.close()
        await asyncio.wait({calling}, timeout=LIMIT_S)
    servers: dict[str, object] = {"clock": clock(**ALLOWED), "helper": helper()}
    async with serving_mcp(tmp_path, Scripted(["On it goes."]), servers, tools=RULES) as served:
        kinds = [event["type"] for event in await served.events(run)]
        assert "tool.started" not in kinds and sum(one in ("run.finished", "run.failed") for one in kinds) == 1
        assert (await served.client.get("/approvals")).json()["approvals"] == []
        events = await served.chat("Go on.", session=shown["session"])
        assert events[-1]["text"] == "On it goes."
        messages = (await served.client.get(f"/sessions/{shown['session']}")).json()["messages"]
        assert [one["role"] for one in messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_an_app_of_the_extensions_own_kit(tmp_path: Path) -> None:
    """`get-time` of the first example of the kit: its page, its state and its button."""
    real = node_server("basic-vanillajs", "--stdio")
    servers: dict[str, object] = {"basic": {"command": real.command, "args": list(real.args)}}
    provider = Scripted(["```mcp__basic__get-time\n{}\n```", "Late."])
    async with serving_mcp(tmp_path, provider, servers, tools=READS) as served:
        events = await served.chat("What time is it?")
        [shown] = [event for event in events if event["type"] == "tool.app"]
        shown |= {key: events[0][key] for key in ("run", "session")}
        html = await served.client.get(f"/sessions/{shown['session']}/files/{shown['file']}")
        assert len(html.text) > 100_000 and "<!DOCTYPE html>" in html.text
        tool = (await state_of(served, shown))["tool"]
        assert tool["name"] == "get-time" and tool["inputSchema"]["type"] == "object"
        result = (await asked(served, shown, "tools/call", name="get-time", arguments={})).json()["result"]
        assert result["structuredContent"]["time"] == result["content"][0]["text"]


async def test_an_app_that_cannot_be_shown_is_a_line(tmp_path: Path) -> None:
    servers: dict[str, object] = {"clock": clock("missing")}
    async with serving_mcp(tmp_path, Scripted([SHOW, "Well."]), servers, tools=READS) as served:
        events = await served.chat("x")
    assert [one["ok"] for one in events if one["type"] == "tool.finished"] == [True]
    [notice] = [one for one in events if one.get("code") == "app_missing"]
    assert notice["message"] == "The app of mcp__clock__show is not shown: clock could not answer: no such resource."


async def test_the_origin_of_apps_has_a_frame_and_nothing_else(tmp_path: Path) -> None:
    flags = {"apps_origin": "https://apps.example.org", "public_url": "https://agent.example.org/below/"}
    async with showing(tmp_path, **flags) as (served, shown, _):
        there = {"host": "apps.example.org"}
        frame = await served.client.get("/page/frame/artefact.html", headers=there)
        policy = frame.headers["content-security-policy"]
        assert frame.status_code == 200 and "sandbox allow-scripts allow-same-origin" in policy
        assert "frame-ancestors https://agent.example.org;" in policy and "default-src 'none'" in policy
        token = await bearer(served, "bob", role="admin")
        for path in ("/", "/livez", "/tools", "/page/index.html", f"/runs/{shown['run']}", "/page/frame/probe.html"):
            answer = await served.client.get(path, headers=there | token)
            assert answer.status_code == 404 and "frame for apps" in answer.text, path
        index = await served.client.get("/", headers={"accept": "text/html"} | token)
        assert "frame-src 'self' https://apps.example.org" in index.headers["content-security-policy"]
        here = await served.client.get("/page/frame/artefact.html", headers=token)
        assert "allow-same-origin" not in here.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"apps_origin": "https://a.example.org"}, "apps_origin needs public_url"),
        ({"apps_origin": "http://localhost:9000", "public_url": "https://b.example.org"}, "of another host"),
        ({"apps_origin": "https://a.example.org", "public_url": "https://a.example.org/"}, "of another host"),
        ({"apps_origin": "https://a.example.org/path", "public_url": "https://b.example.org/"}, "without a path"),
        ({"apps_origin": "a.example.org", "public_url": "https://b.example.org/"}, "apps_origin"),
    ],
)
def test_an_origin_that_is_no_other_one_is_refused(flags: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_in(tmp_path, **flags)
    assert words in str(refused.value)

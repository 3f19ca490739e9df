"""AG-UI and `useChat` clients at a real server: threads, the client's tools, approvals, failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import ProviderFailed
from app.models.scripted import Pause, Raise, Reply, Scripted
from tests.support.lanes.logs import data_of
from tests.support.lanes.page_clients import AGUI, HANDED, RESUME, UI, WEATHER, WRITE, page
from tests.support.mcp.served import READS, helper, serving_mcp
from tests.support.server.events import kinds
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio


def conversation(model: Scripted, at: int = -1) -> list[tuple[str, str]]:
    return [(one.role, one.text) for one in model.requests[at].messages if one.role != "system"]


async def test_ag_ui_goes_on_in_its_thread(tmp_path: Path) -> None:
    model = Scripted(["One.", "Two."])
    async with page(AGUI, tmp_path, model) as client:
        await client.send("First")
        events = await client.send("Second")
    assert events[-1]["outcome"] == {"type": "success"}
    assert conversation(model) == [("user", "First"), ("assistant", "One."), ("user", "Second")]


async def test_ag_ui_runs_its_own_tools(tmp_path: Path) -> None:
    model = Scripted([HANDED, "It is sunny."])
    async with page(AGUI, tmp_path, model) as client:
        (call,) = (await client.send("How is it?", tools=[WEATHER]))[-1]["outcome"]["pendingToolCallIds"]
        client.answer(call, "Sunny.")
        events = await client.send(tools=[WEATHER])
    assert "It is sunny." in [one.get("delta") for one in events]
    assert [role for role, _ in conversation(model)] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    "approved, result",
    [(True, "Created note.txt"), (False, "This call was not run")],
    ids=["approved", "denied"],
)
async def test_ag_ui_decides_on_a_call(tmp_path: Path, approved: bool, result: str) -> None:
    model = Scripted([WRITE, "Done."])
    async with page(AGUI, tmp_path, model, approval_admin="ask") as client:
        first = await client.send("Write it.")
        (interrupt,) = first[-1]["outcome"]["interrupts"]
        assert interrupt["toolCallId"] in [one.get("toolCallId") for one in first if one["type"] == "TOOL_CALL_START"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": approved}}
        second = await client.send(runId="r2", resume=[entry])
    changed = ["CUSTOM"] * (1 + approved)  # who has decided, and the file that was written
    assert kinds(second)[: 2 + len(changed)] == ["RUN_STARTED", *changed, "TOOL_CALL_RESULT"]
    assert second[1 + len(changed)]["content"].startswith(result)
    assert second[-1]["outcome"] == {"type": "success"}
    assert (tmp_path / "work" / "note.txt").exists() is approved


async def test_ag_ui_changes_a_call(tmp_path: Path) -> None:
    async with page(AGUI, tmp_path, Scripted([WRITE, "Done."]), approval_admin="ask") as client:
        (interrupt,) = (await client.send("Write it."))[-1]["outcome"]["interrupts"]
        payload = {"approved": True, "editedArgs": {"path": "other.txt", "content": "second"}}
        await client.send(resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}])
    assert (tmp_path / "work" / "other.txt").read_text() == "second"


ASK = "```mcp__helper__ask\n```"


async def test_ag_ui_answers_the_form_of_an_mcp_server(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([ASK, "Blue."]), {"helper": helper()}, tools=READS) as served:
        client = AGUI(served)
        (interrupt,) = (await client.send("Ask."))[-1]["outcome"]["interrupts"]
        assert (interrupt["reason"], interrupt["metadata"]["message"]) == ("input_required", "Which colour?")
        assert "colour" in interrupt["responseSchema"]["properties"]
        answered = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"colour": "blue"}}
        events = await client.send(resume=[answered])
    (result,) = (one["content"] for one in events if one["type"] == "TOOL_CALL_RESULT")
    assert '"blue"' in result
    assert events[-1]["outcome"] == {"type": "success"}


async def test_an_answer_that_does_not_fit_the_form_is_refused_and_can_be_sent_again(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([ASK, "Blue."]), {"helper": helper()}, tools=READS) as served:
        client = AGUI(served)
        (interrupt,) = (await client.send("Ask."))[-1]["outcome"]["interrupts"]
        answered = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"colour": "green"}}
        body = {"threadId": "t1", "runId": "r2", "messages": client.messages, "resume": [answered]}
        refused = await served.client.post("/ag-ui", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unfit_arguments")
        events = await client.send(resume=[answered | {"payload": {"colour": "blue"}}])
    assert events[-1]["outcome"] == {"type": "success"}


async def test_ui_answers_the_form_of_an_mcp_server(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([ASK, "Blue."]), {"helper": helper()}, tools=READS) as served:
        client = UI(served)
        chunks = await client.send("Ask.")
        (asked,) = (one for one in chunks if one["type"] == "tool-approval-request")
        approval = {"id": asked["approvalId"], "approved": True, "reason": '{"colour": "blue"}'}
        part = {"type": "dynamic-tool", "toolName": "question", "toolCallId": asked["toolCallId"], "input": {}}
        client.keep(chunks[0]["messageId"], part | {"state": "approval-responded", "approval": approval})
        chunks = await client.send(messageId=chunks[0]["messageId"])
    outputs = [one["output"] for one in chunks if one["type"] == "tool-output-available"]
    assert outputs[0] == "answered" and '"blue"' in outputs[-1]


async def test_a_decision_on_nothing_is_refused(tmp_path: Path) -> None:
    body = {"threadId": "t1", "runId": "r1", "messages": [], "resume": [{"interruptId": "c1", "status": "cancelled"}]}
    async with serving(tmp_path, Scripted([])) as served:
        response = await served.client.post("/ag-ui", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "no_approval")


async def test_a_run_that_waits_for_the_client_is_not_cancelled_when_its_stream_has_ended(tmp_path: Path) -> None:
    async with page(AGUI, tmp_path, Scripted([WRITE, "Done."]), approval_admin="ask") as client:
        (interrupt,) = (await client.send("Write it."))[-1]["outcome"]["interrupts"]
        waiting = (await client.served.client.get("/approvals")).json()
        assert interrupt["id"] in json.dumps(waiting)


async def test_ui_goes_on_in_its_chat_and_branches_where_an_answer_is_wanted_again(tmp_path: Path) -> None:
    model = Scripted(["One.", "Two.", "Two again.", "Three."])
    async with page(UI, tmp_path, model) as client:
        await client.send("First")
        client.keep("a1", {"type": "text", "text": "One."})
        await client.send("Second")
        await client.send(trigger="regenerate-message")
        assert conversation(model) == [("user", "First"), ("assistant", "One."), ("user", "Second")]
        client.keep("a2", {"type": "text", "text": "Two again."})
        await client.send("Third")
    assert conversation(model)[2:] == [("user", "Second"), ("assistant", "Two again."), ("user", "Third")]


async def test_ui_runs_its_own_tools(tmp_path: Path) -> None:
    model = Scripted([HANDED, "It is sunny."])
    async with page(UI, tmp_path, model) as client:
        chunks = await client.send("How is it?", tools=[WEATHER])
        (call,) = (one["toolCallId"] for one in chunks if one["type"] == "tool-input-available")
        result = {"type": "tool-weather", "toolCallId": call, "state": "output-available", "input": {}, "output": "Sun"}
        client.keep("a1", {"type": "text", "text": "I look."}, result)
        chunks = await client.send(tools=[WEATHER], messageId="a1")
    assert chunks[0] == {"type": "start", "messageId": "a1"}
    assert "It is sunny." in [one.get("delta") for one in chunks]
    assert [role for role, _ in conversation(model)] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    "approved, chunk", [(True, "tool-output-available"), (False, "tool-output-denied")], ids=["approved", "denied"]
)
async def test_ui_decides_on_a_call(tmp_path: Path, approved: bool, chunk: str) -> None:
    model = Scripted([WRITE, "Done."])
    async with page(UI, tmp_path, model, approval_admin="ask") as client:
        chunks = await client.send("Write it.")
        (asked,) = (one for one in chunks if one["type"] == "tool-approval-request")
        part: dict[str, Any] = {
            "type": "dynamic-tool",
            "toolName": "write_file",
            "toolCallId": asked["toolCallId"],
            "input": {},
        }
        approval = {"id": asked["approvalId"], "approved": approved, "reason": "It is my note."}
        client.keep(chunks[0]["messageId"], part | {"state": "approval-responded", "approval": approval})
        chunks = await client.send(messageId=chunks[0]["messageId"])
    changed = ["data-notice"] * (1 + approved)  # who has decided, and the file that was written
    assert kinds(chunks)[1 : 3 + len(changed)] == [*changed, chunk, "start-step"]
    assert approved or "It is my note." in conversation(model)[-1][1]
    assert (tmp_path / "work" / "note.txt").exists() is approved


async def test_a_page_that_is_loaded_again_gets_the_run_from_its_beginning(tmp_path: Path) -> None:
    gate = asyncio.Event()
    body = {"id": "c1", "trigger": "submit-message"} | PATHS["/ui-message-stream"]
    async with serving(tmp_path, Scripted([["One ", Pause(gate), "two."]])) as served, asyncio.timeout(30):
        assert (await served.client.get(RESUME)).status_code == 204
        async with served.client.stream("POST", "/ui-message-stream", json=body) as first:
            lines = first.aiter_lines()
            while "One " not in await anext(lines):
                pass
            async with served.client.stream("GET", RESUME) as again:
                gate.set()
                replayed = (await again.aread()).decode()
        ended = await served.client.get(RESUME)  # the end may be lost with a connection, and nobody knows
    assert again.headers["x-vercel-ai-ui-message-stream"] == "v1"
    chunks = data_of(replayed.removesuffix("data: [DONE]\n\n"))
    assert "".join(one.get("delta", "") for one in chunks) == "One two."
    assert data_of(ended.text.removesuffix("data: [DONE]\n\n")) == chunks


@pytest.mark.parametrize("kind", [AGUI, UI])
async def test_a_message_instead_of_a_decision_ends_the_run_that_waits(
    kind: Callable[[Served], AGUI | UI], tmp_path: Path
) -> None:
    model = Scripted([WRITE, "As you like."])
    async with page(kind, tmp_path, model, approval_admin="ask") as client, asyncio.timeout(30):
        await client.send("Write it.")
        if isinstance(client, UI):
            client.keep("a1", {"type": "text", "text": "I write."})
        events = await client.send("Leave it.")
    assert "As you like." in [one.get("delta") for one in events]
    assert conversation(model)[-1] == ("user", "Leave it.")
    assert not (tmp_path / "work" / "note.txt").exists()


PATHS: dict[str, dict[str, Any]] = {
    "/ag-ui": {"messages": [{"id": "1", "role": "user", "content": "Hello"}]},
    "/ui-message-stream": {"messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]},
}


@pytest.mark.parametrize("path", PATHS)
async def test_a_bare_model_is_relayed(tmp_path: Path, path: str) -> None:
    model = Scripted(["Hello."])
    named = {"model": "scripted", "forwardedProps": {"model": "scripted"}}
    async with serving(tmp_path, model) as served:
        response = await served.client.post(path, json=PATHS[path] | named)
    assert "Hello." in response.text
    assert [one.role for one in model.requests[0].whole()] == ["user"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_failure_of_the_model_is_an_event(tmp_path: Path, path: str) -> None:
    failed = Raise(ProviderFailed("model_failed", "It broke.", retryable=False))
    async with serving(tmp_path, Scripted([["Half", failed]])) as served:
        response = await served.client.post(path, json=PATHS[path])
    errors = [one for one in data_of(response.text.replace("data: [DONE]\n\n", "")) if "rror" in one["type"].lower()]
    (error,) = errors
    assert "It broke." in (error.get("message") or error["errorText"])


@pytest.mark.parametrize("path", PATHS)
async def test_a_message_whose_run_has_failed_is_not_sent_twice(tmp_path: Path, path: str) -> None:
    model = Scripted([[Raise(ProviderFailed("model_failed", "It broke.", retryable=False))], "Here."])
    async with serving(tmp_path, model) as served:
        body: dict[str, Any] = PATHS[path] | {"id": "c1", "threadId": "c1"}
        await served.client.post(path, json=body)
        again = {"id": "2", "role": "user", "content": "Again", "parts": [{"type": "text", "text": "Again"}]}
        await served.client.post(path, json=body | {"messages": [*body["messages"], again]})
    assert [text for role, text in conversation(model) if role == "user"] == ["Hello", "Again"]


@pytest.mark.parametrize("path", PATHS)
async def test_an_error_before_the_stream_has_its_status(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await served.client.post(path, json={"messages": []})
    assert response.status_code == 400
    assert response.headers["content-type"].startswith("application/json" if path == "/ag-ui" else "text/plain")
    assert "messages" in response.text


@pytest.mark.parametrize("path", PATHS)
async def test_the_head_comes_before_the_model_answers(tmp_path: Path, path: str) -> None:
    gate = asyncio.Event()
    reply: Reply = [Pause(gate), "Hello."]
    async with serving(tmp_path, Scripted([reply])) as served, asyncio.timeout(30):
        async with served.client.stream("POST", path, json=PATHS[path]) as response:
            first = await anext(response.aiter_text())
            assert '"RUN_STARTED"' in first or '"start"' in first
            gate.set()

"""Lanes whose clients leave: what becomes of the run, and what a client gets that comes back. Bad returns, too."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Pause, Scripted
from app.storage.runs import RunRow
from app.storage.tokens import TokenRow
from routes.access.token_text import fingerprint, new_token
from tests.support.lanes.logs import data_of
from tests.support.lanes.page_clients import AGUI, HANDED, RESUME, UI, WEATHER, WRITE, page
from tests.support.lanes.small_lane import holds, serving_plain
from tests.support.server.approvals import stop_as_killed
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
LIMIT_S = 30
AGENT = "dragoman/agent"
SAID = [{"role": "user", "content": "Go."}]
# Of each lane: its path, a request that streams, and whether its runs go on without their client.
LANES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "chat": ("/v1/chat/completions", {"model": AGENT, "stream": True, "messages": SAID}, False),
    "messages": ("/v1/messages", {"model": AGENT, "stream": True, "max_tokens": 9, "messages": SAID}, False),
    "responses": ("/v1/responses", {"model": AGENT, "stream": True, "input": "Go."}, False),
    "ag_ui": ("/ag-ui", {"threadId": "t1", "runId": "r1", "messages": [{"id": "u1", **SAID[0]}]}, True),
    "ui": (
        "/ui-message-stream",
        {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Go."}]}]},
        True,
    ),
}
SETTINGS = {"default": None, "cancel": False, "continue": True}


async def leave(served: Served, path: str, body: dict[str, Any]) -> RunRow:
    """Leave at the first words; return the run."""
    async with served.client.stream("POST", path, json=body) as response:
        lines = response.aiter_lines()
        while "One" not in await anext(lines):
            pass
        [run] = await served.services.runs.of("local")
    return run


@pytest.mark.parametrize(("lane", "setting"), list(product(LANES, SETTINGS)))
async def test_a_client_that_leaves(tmp_path: Path, lane: str, setting: str) -> None:
    path, body, goes_on = LANES[lane]
    on = asyncio.Event()
    model = Scripted([["One ", Pause(on), "two."]])
    async with serving(tmp_path, model, lane_disconnect=setting) as served, asyncio.timeout(LIMIT_S):
        run = await leave(served, path, body)
        await holds(lambda: served.services.presence.streams("local") == 0)
        if SETTINGS[setting] is False or (SETTINGS[setting] is None and not goes_on):
            await served.services.runs.ended(run.id)
            state = "cancelled"
        else:
            on.set()
            await served.services.runs.ended(run.id)
            state = "answered"
        assert (await served.services.store.run(run.id)).state == state  # type: ignore[union-attr]


@pytest.mark.parametrize("lane", LANES)
async def test_a_stream_whose_run_has_not_ended_does_not_end_as_if_it_were_whole(tmp_path: Path, lane: str) -> None:
    """As at a server that stops while another goes on with the run, or has lost its lease."""
    path, body, _ = LANES[lane]
    model = Scripted([["One ", Pause(asyncio.Event())]])
    async with serving(tmp_path, model, lane_disconnect="continue") as served, asyncio.timeout(LIMIT_S):
        async with served.client.stream("POST", path, json=body) as response:
            lines = response.aiter_lines()
            while "One" not in await anext(lines):
                pass
            [run] = await served.services.runs.of("local")
            await stop_as_killed(served.services, run.id)
            rest = "\n".join([line async for line in lines])
    if lane == "responses":  # its client looks for the event that ends it, and returns with a number
        assert "response.completed" not in rest and "error" not in rest
    else:
        assert "The server was stopped before the answer was complete." in rest


async def test_an_unknown_setting_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="default, cancel or continue"):
        async with serving(tmp_path, Scripted([]), lane_disconnect="stay"):
            pass


async def returned(served: Served, body: dict[str, Any], *received: dict[str, Any]) -> list[dict[str, Any]]:
    response = await served.client.post("/ag-ui", json=body | {"messages": [*body["messages"], *received]})
    assert response.status_code == 200, response.text
    return data_of(response.text)


@pytest.mark.parametrize("had", ["", "O", "One ", "One t", "One two."])
async def test_ag_ui_gets_the_rest_of_a_text(tmp_path: Path, had: str) -> None:
    path, body, _ = LANES["ag_ui"]
    on = asyncio.Event()
    async with serving(tmp_path, Scripted([["One ", Pause(on), "two."]])) as served, asyncio.timeout(LIMIT_S):
        run = await leave(served, path, body)
        on.set()
        await served.services.runs.ended(run.id)
        events = await returned(served, body, {"id": f"{run.id}-1", "role": "assistant", "content": had})
        assert had + "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT") == "One two."
        assert [one["messageId"] for one in events if one["type"] == "TEXT_MESSAGE_START"] == [f"{run.id}-1"]
        assert (events[0]["type"], events[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
        assert len(await served.services.store.runs(run.session)) == 1


async def test_ag_ui_gets_calls_and_results_once(tmp_path: Path) -> None:
    body = LANES["ag_ui"][1]
    async with serving(tmp_path, Scripted([WRITE, "Done."]), approval_admin="auto") as served:
        first = data_of((await served.client.post("/ag-ui", json=body)).text)
        (call,) = (one for one in first if one["type"] == "TOOL_CALL_START")
        (result,) = (one for one in first if one["type"] == "TOOL_CALL_RESULT")
        (arguments,) = (one["delta"] for one in first if one["type"] == "TOOL_CALL_ARGS")
        asked = {"id": call["toolCallId"], "type": "function", "function": {"name": "w", "arguments": arguments}}
        parent = call["parentMessageId"]
        text = "".join(one["delta"] for one in first if one.get("messageId") == parent and "delta" in one)
        assistant = {"id": parent, "role": "assistant", "content": text, "toolCalls": [asked]}
        tool = {"id": result["messageId"], "role": "tool", "toolCallId": asked["id"], "content": result["content"]}
        rest = await returned(served, body, assistant, tool)
        kinds = [one["type"] for one in rest]
        assert not {"TOOL_CALL_ARGS", "TOOL_CALL_RESULT"} & set(kinds)
        assert "".join(one["delta"] for one in rest if one["type"] == "TEXT_MESSAGE_CONTENT") == "Done."
        again = await returned(served, body)  # a page that was loaded again has nothing of it
        assert again == first


@pytest.mark.usefixtures("servers")
async def test_ag_ui_is_asked_again_what_waits_for_it_and_not_what_is_decided(tmp_path: Path) -> None:
    model = Scripted([WRITE, WRITE.replace("note", "other"), "Done."])
    async with page(AGUI, tmp_path, model, approval_admin="ask") as client, asyncio.timeout(LIMIT_S):
        body = LANES["ag_ui"][1]
        first = await returned(client.served, body)
        again = await returned(client.served, body)
        assert again == first
        (interrupt,) = again[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        second = await returned(client.served, body | {"runId": "r2", "resume": [entry]})
        (other,) = second[-1]["outcome"]["interrupts"]
        assert other["id"] != interrupt["id"]
        # The first stream's connection is lost, and its client comes back late: it gets all up to what waits now.
        late = await returned(client.served, body)
        assert late[-1]["outcome"]["interrupts"] == [other]
        results = [one["toolCallId"] for one in late if one["type"] == "TOOL_CALL_RESULT"]
        assert results == [interrupt["toolCallId"]]
        # So does that of the second one, which sends its decision once more.
        kept = {"id": f"{interrupt['toolCallId']}-result", "role": "tool", "toolCallId": interrupt["toolCallId"]}
        more = await returned(client.served, body | {"runId": "r2", "resume": [entry]}, kept | {"content": "x"})
        assert more[-1]["outcome"]["interrupts"] == [other]
        assert not [one for one in more if one["type"] == "TOOL_CALL_RESULT"]


async def test_ag_ui_begins_anew_with_a_new_message_or_a_new_run(tmp_path: Path) -> None:
    path, body, _ = LANES["ag_ui"]
    model = Scripted(["One.", "Two.", "Three."])
    async with serving(tmp_path, model) as served:
        await served.client.post(path, json=body)
        again = {"id": "u2", "role": "user", "content": "Again."}
        await served.client.post(path, json=body | {"messages": [*body["messages"], again]})
        await served.client.post(path, json=body | {"runId": "r2"})
    assert len(model.requests) == 3


async def test_ag_ui_returns_to_no_run_by_a_message_without_an_id(tmp_path: Path) -> None:
    path, body, _ = LANES["ag_ui"]
    model, said = Scripted(["One.", "Two."]), [*SAID]
    async with serving(tmp_path, model) as served:
        await served.client.post(path, json=body | {"messages": said})
        said += [{"role": "assistant", "content": "One."}, {"role": "user", "content": "Again."}]
        assert "Two." in (await served.client.post(path, json=body | {"messages": said})).text


@pytest.mark.parametrize("name", [AGENT, "scripted"])
async def test_nobody_returns_to_the_run_of_another(tmp_path: Path, name: str) -> None:
    model = Scripted(["Of Ann.", "Of Ann, too.", "Of Bob."])
    async with serving(tmp_path, model) as served:
        tokens = {one: new_token() for one in ("ann", "bob")}
        rows = [TokenRow(fingerprint(token), one, "user", 1.0) for one, token in tokens.items()]
        await served.services.store.write(rows)
        ann, bob = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
        body = LANES["ag_ui"][1] | {"forwardedProps": {"model": name}}
        await served.client.post("/ag-ui", json=body, headers=ann)
        await served.client.post("/ui-message-stream", json=LANES["ui"][1] | {"model": name}, headers=ann)
        assert (await served.client.get(RESUME, headers=ann)).status_code == 200
        assert (await served.client.get(RESUME, headers=bob)).status_code == 204
        theirs = await served.client.post("/ag-ui", json=body, headers=bob)
    assert "Of Bob." in theirs.text and "Ann" not in theirs.text


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("field", ["threadId", "runId"])
async def test_a_name_may_be_long(tmp_path: Path, field: str) -> None:
    path, body, _ = LANES["ag_ui"]
    named = body | {field: "".join(f"{at:x}" for at in range(3000))}  # longer than a row of an index of PostgreSQL
    async with serving(tmp_path, Scripted(["One."])) as served:
        first = await served.client.post(path, json=named)
        again = await served.client.post(path, json=named)
    assert (first.status_code, again.text) == (200, first.text)


async def test_a_result_of_a_handed_call_goes_on_under_the_same_name(tmp_path: Path) -> None:
    async with page(AGUI, tmp_path, Scripted([HANDED, "Sunny."])) as client:
        (call,) = (await client.send("How is it?", tools=[WEATHER]))[-1]["outcome"]["pendingToolCallIds"]
        client.answer(call, "Sun")
        assert "Sunny." in [one.get("delta") for one in await client.send(tools=[WEATHER])]


async def test_a_relay_is_returned_to_while_its_log_is_there(tmp_path: Path) -> None:
    path, body, _ = LANES["ag_ui"]
    body = body | {"forwardedProps": {"model": "scripted"}}
    model = Scripted([["One ", "two."], "Other."])
    async with serving(tmp_path, model) as served:
        first = data_of((await served.client.post(path, json=body)).text)
        assert await returned(served, body) == first
    assert len(model.requests) == 1


@pytest.mark.usefixtures("servers")
async def test_ui_gets_the_whole_message_of_two_runs(tmp_path: Path) -> None:
    on = asyncio.Event()
    model = Scripted([HANDED, ["It is ", Pause(on), "sunny."]])
    async with page(UI, tmp_path, model) as client, asyncio.timeout(LIMIT_S):
        chunks = await client.send("How is it?", tools=[WEATHER])
        message = chunks[0]["messageId"]
        (call,) = (one["toolCallId"] for one in chunks if one["type"] == "tool-input-available")
        result = {"type": "tool-weather", "toolCallId": call, "state": "output-available", "input": {}, "output": "Sun"}
        client.keep(message, {"type": "text", "text": "I look."}, result)
        body = {"id": "c1", "messages": client.messages, "messageId": message, "tools": [WEATHER]}
        async with client.served.client.stream("POST", "/ui-message-stream", json=body) as second:
            lines = second.aiter_lines()
            while "It is " not in await anext(lines):
                pass
        resumed = asyncio.create_task(client.served.client.get(RESUME))
        on.set()  # it comes before the end or behind it
        text = (await resumed).text
    chunks = data_of(text.removesuffix("data: [DONE]\n\n"))
    assert [one.get("messageId") for one in chunks if one["type"] == "start"] == [message]
    assert "".join(one.get("delta", "") for one in chunks) == "I look.It is sunny."
    (output,) = (one for one in chunks if one["type"] == "tool-output-available")
    assert (output["toolCallId"], output["output"]) == (call, "Sun")
    assert all(one["providerExecuted"] for one in chunks if one["type"] == "tool-input-available")
    assert [one["type"] for one in chunks].count("finish") == 1


async def test_ui_is_asked_again_what_waits_for_it(tmp_path: Path) -> None:
    async with page(UI, tmp_path, Scripted([WRITE, "Done."]), approval_admin="ask") as client:
        first = await client.send("Write it.")
        again = await client.served.client.get(RESUME)
        assert data_of(again.text.removesuffix("data: [DONE]\n\n")) == first


async def test_what_ended_long_ago_is_not_given_again(tmp_path: Path) -> None:
    path, body, _ = LANES["ui"]
    async with serving_plain(tmp_path, Scripted(["One."])) as served:
        await served.client.post(path, json=body)
        assert (await served.client.get(RESUME)).status_code == 200
        assert (await served.client.get("/ui-message-stream/other/stream")).status_code == 204
        served.attendance.return_s = -1
        assert (await served.client.get(RESUME)).status_code == 204

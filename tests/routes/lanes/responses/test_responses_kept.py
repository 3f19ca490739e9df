"""Responses through the real server: streamed, read again under their ids, continued, cancelled and deleted."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.log.log_compaction import joined_rows
from app.models.scripted import Line, Pause, Scripted
from app.storage.runs import ALL
from app.storage.tokens import TokenRow
from parsing import Thought
from routes.access.token_text import fingerprint, new_token
from routes.lanes.responses.ids import response_place
from tests.support.lanes.logs import blocks
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import hang, stream, upstream
from tests.support.server.dragoman_process import server
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
PATH = "/v1/responses"
NUMBERED = '"sequence_number": '


def words(count: int = 40) -> list[Line]:
    return [Thought("Let me "), Thought("see."), *(f"word{at} " for at in range(count))]


async def create_response(served: Served, given: Any = "Hello", model: str = "scripted", **more: Any) -> dict[str, Any]:
    response = await served.client.post(PATH, json={"model": model, "input": given} | more)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def streamed(served: Served, given: Any = "Hello", model: str = "scripted", **more: Any) -> str:
    response = await served.client.post(PATH, json={"model": model, "input": given, "stream": True} | more)
    assert response.status_code == 200, response.text
    return response.text


async def get(served: Served, path: str, **query: Any) -> dict[str, Any]:
    response = await served.client.get(f"{PATH}/{path}", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def replayed(served: Served, response: str, **query: Any) -> str:
    answer = await served.client.get(f"{PATH}/{response}", params={"stream": "true"} | query)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return answer.text


def bare(stream: str) -> list[str]:
    """The blocks of a stream without its comments."""
    return [block for block in stream.split("\n\n")[:-1] if not block.startswith(":")]


def last(stream: str) -> dict[str, Any]:
    found: dict[str, Any] = blocks(stream)[-1][1]["response"]
    return found


async def error_of(served: Served, method: str, path: str, **more: Any) -> tuple[int, dict[str, Any]]:
    response = await served.client.request(method, f"{PATH}{path}", **more)
    body = response.json()["error"]
    assert body.keys() == {"message", "type", "param", "code"}
    return response.status_code, body


async def test_a_response_is_the_same_whenever_it_is_read(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([words()])) as served:
        given = await streamed(served, metadata={"a": "b"})
        response = last(given)
        assert await get(served, response["id"]) == response
        assert response["metadata"] == {"a": "b"}
        assert bare(await replayed(served, response["id"])) == bare(given)
        run = response_place(response["id"]).run  # type: ignore[union-attr]
        rows = await served.services.store.events(run, 0, ALL)
        await served.services.store.replace_events(run, joined_rows(rows))
        frames = bare(given)
        assert bare(await replayed(served, response["id"])) == frames
        for at, frame in enumerate(frames):
            number = int(frame.partition(NUMBERED)[2].partition(",")[0])
            assert bare(await replayed(served, response["id"], starting_after=number)) == frames[at + 1 :]
    async with serving(tmp_path, Scripted([])) as served:  # another server on the same data
        assert await get(served, response["id"]) == response
        assert bare(await replayed(served, response["id"])) == frames


@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
async def test_a_whole_answer_is_kept_as_well(tmp_path: Path, model: str) -> None:
    async with serving(tmp_path, Scripted([words(2)])) as served:
        response = await create_response(served, model=model)
        assert response["status"] == "completed"
        assert response["model"] == model
        assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
        assert await get(served, response["id"]) == response


async def test_what_is_not_kept_is_not_there(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        response = await create_response(served, store=False)
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
            for one in (response["id"], "resp_0", "resp_x", "nothing"):
                status, error = await error_of(served, method, f"/{one}{path}")
                assert (status, error["code"], error["type"]) == (404, "not_found", "invalid_request_error")


async def test_runs_of_other_routes_are_no_responses(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        events = await served.chat()
        status, _ = await error_of(served, "GET", f"/{events[0]['run'].replace('run_', 'resp_')}")
        assert status == 404


async def test_responses_belong_to_who_made_them(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."] * 3)) as served:
        tokens = {name: new_token() for name in ("ann", "bob")}
        rows = [TokenRow(fingerprint(token), name, "user", 1.0) for name, token in tokens.items()]
        await served.services.store.write(rows)
        ann, bob = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
        served.client.headers.update(ann)
        response = await create_response(served)
        served.client.headers.update(bob)
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
            status, _ = await error_of(served, method, f"/{response['id']}{path}")
            assert status == 404
        body = {"model": "scripted", "input": "And?", "previous_response_id": response["id"]}
        status, error = await error_of(served, "POST", "", json=body)
        assert (status, error["code"]) == (400, "previous_response_not_found")
        reference = {"type": "item_reference", "id": response["output"][0]["id"]}
        status, error = await error_of(served, "POST", "", json={"model": "scripted", "input": [reference]})
        assert (status, error["param"]) == (400, "input.0.id")
        served.client.headers.update(ann)
        assert await get(served, response["id"]) == response


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
async def test_a_response_goes_on_from_any_other(tmp_path: Path, model: str) -> None:
    scripted = Scripted(["One.", "Two.", "Three."])
    async with serving(tmp_path, scripted) as served:
        first = await create_response(served, "a", model)
        second = await create_response(served, "b", model, previous_response_id=first["id"])
        await create_response(served, "c", model, previous_response_id=first["id"])  # a branch
    assert second["previous_response_id"] == first["id"]
    seen = [
        [one.text.partition("\n")[0] for one in asked.messages if one.role != "system"] for asked in scripted.requests
    ]
    assert seen[1] == ["a", "One.", "b"]
    assert seen[2] == ["a", "One.", "c"]


async def test_the_instructions_are_those_of_the_last_request(tmp_path: Path) -> None:
    scripted = Scripted(["One.", "Two."])
    async with serving(tmp_path, scripted) as served:
        first = await create_response(served, "a", instructions="Old.")
        await create_response(served, "b", instructions="New.", previous_response_id=first["id"])
    assert [one.text for one in scripted.requests[1].messages] == ["New.", "a", "One.", "b"]


@pytest.mark.parametrize("given", ["resp_x", "resp_00ff"])
async def test_an_unknown_previous_response_is_named(tmp_path: Path, given: str) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        body = {"model": "scripted", "input": "a", "previous_response_id": given}
        status, error = await error_of(served, "POST", "", json=body)
    assert (status, error["code"], error["param"]) == (400, "previous_response_not_found", "previous_response_id")


async def test_a_relay_goes_on_from_no_answer_that_is_still_to_come(tmp_path: Path) -> None:
    gate = asyncio.Event()
    scripted = Scripted([["Half ", Pause(gate), "done."], "Two."])
    async with serving(tmp_path, scripted) as served:
        first = await create_response(served, "a", background=True)
        body = {"model": "scripted", "input": "b", "previous_response_id": first["id"]}
        status, error = await error_of(served, "POST", "", json=body)
        assert (status, error["code"], error["param"]) == (
            *(400, "previous_response_in_progress", "previous_response_id"),
        )
        gate.set()
        await replayed(served, first["id"])
        await create_response(served, "b", previous_response_id=first["id"])
    assert [one.text for one in scripted.requests[1].messages] == ["a", "Half done.", "b"]


async def test_items_may_be_referred_to(tmp_path: Path) -> None:
    scripted = Scripted([words(2), "Two."])
    async with serving(tmp_path, scripted) as served:
        first = await create_response(served, "a")
        references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
        user = {"role": "user", "content": "b"}
        second = await create_response(served, [{"role": "user", "content": "a"}, *references, user])
        listed = await get(served, f"{second['id']}/input_items", order="asc")
        status, error = await error_of(
            served, "POST", "", json={"model": "scripted", "input": [user, {"type": "item_reference", "id": "msg_1"}]}
        )
    assert [one.text for one in scripted.requests[1].messages] == ["a", "word0 word1 ", "b"]
    assert scripted.requests[1].messages[1].reasoning == "Let me see."
    assert [item["type"] for item in listed["data"]] == ["message", "reasoning", "message", "message"]
    assert (status, error["param"]) == (400, "input.1.id")


async def test_input_items_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        items = [{"role": "user", "content": f"m{at}"} for at in range(25)]
        response = await create_response(served, items)
        path = f"{response['id']}/input_items"
        newest = await get(served, path)
        rest = await get(served, path, after=newest["last_id"])
        oldest = await get(served, path, order="asc", limit=2)
        status, _ = await error_of(served, "GET", f"/{path}?limit=0")
        wrong, _ = await error_of(served, "GET", f"/{path}?after=msg_none")
    texts = [item["content"][0]["text"] for item in [*newest["data"], *rest["data"]]]
    assert texts == [f"m{at}" for at in range(24, -1, -1)]
    assert (newest["object"], newest["has_more"], rest["has_more"]) == ("list", True, False)
    assert [item["content"][0]["text"] for item in oldest["data"]] == ["m0", "m1"]
    assert (status, wrong) == (400, 400)


@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
async def test_a_response_in_the_background_goes_on_and_can_be_cancelled(tmp_path: Path, model: str) -> None:
    gate = asyncio.Event()
    async with serving(tmp_path, Scripted([["Half ", Pause(gate), "done."]])) as served:
        response = await create_response(served, model=model, background=True)
        assert response["status"] == "in_progress"
        assert (response["background"], response["output"]) == (True, [])
        cancelled = (await served.client.post(f"{PATH}/{response['id']}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        assert await get(served, response["id"]) == cancelled
        name, data = blocks("\n\n".join([*bare(await replayed(served, response["id"])), ""]))[-1]
        assert (name, data["response"]["status"]) == ("response.incomplete", "cancelled")
        again = (await served.client.post(f"{PATH}/{response['id']}/cancel")).json()
        assert again == cancelled


async def test_a_response_in_the_background_can_be_followed(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with serving(tmp_path, Scripted([["Half ", Pause(gate), "done."]])) as served:
        response = await create_response(served, background=True)
        following = asyncio.create_task(replayed(served, response["id"]))
        gate.set()
        followed = await following
        assert last("\n\n".join([*bare(followed), ""]))["output"][0]["content"][0]["text"] == "Half done."
        assert (await get(served, response["id"]))["status"] == "completed"


async def test_a_deleted_response_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["One.", "Two."])) as served:
        response = await create_response(served)
        answer = await served.client.delete(f"{PATH}/{response['id']}")
        assert answer.json() == {"id": response["id"], "object": "response", "deleted": True}
        status, _ = await error_of(served, "GET", f"/{response['id']}")
        assert status == 404


async def test_deleting_one_response_leaves_the_others_of_its_session(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["One.", "Two."])) as served:
        first = await create_response(served, model="dragoman/agent")
        second = await create_response(served, "b", "dragoman/agent", previous_response_id=first["id"])
        await served.client.delete(f"{PATH}/{first['id']}")
        status, _ = await error_of(served, "GET", f"/{first['id']}")
        assert status == 404
        body = {"model": "dragoman/agent", "input": "c", "previous_response_id": first["id"]}
        status, error = await error_of(served, "POST", "", json=body)
        assert (status, error["code"]) == (400, "previous_response_not_found")
        assert await get(served, second["id"]) == second


BLOCK = "```write_file\nnote.txt\nfirst\n```\n"
MCP = {"type": "mcp", "server_label": "dragoman", "server_url": "http://localhost/mcp"}


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_client_decides_on_a_call(tmp_path: Path, approve: bool, is_streamed: bool) -> None:
    async def ask(given: Any, **more: Any) -> dict[str, Any]:
        if is_streamed:
            return last(await streamed(served, given, "dragoman/agent", tools=[MCP], **more))
        return await create_response(served, given, "dragoman/agent", tools=[MCP], **more)

    async with serving(tmp_path, Scripted([BLOCK, "I see."]), approval_admin="ask") as served:
        asked = await ask("Write")
        request = asked["output"][-1]
        assert (asked["status"], request["type"], request["name"]) == (
            "completed",
            "mcp_approval_request",
            "write_file",
        )
        verdict = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
        answer = await ask([verdict], previous_response_id=asked["id"])
        written = (tmp_path / "work" / "note.txt").exists()
        assert await get(served, asked["id"]) == asked
        again = await get(served, answer["id"])
    call, message = answer["output"]
    assert (call["type"], call["approval_request_id"], call["status"]) == (
        *("mcp_call", request["id"]),
        "completed" if approve else "failed",
    )
    assert message["content"][0]["text"] == "I see."
    assert answer["id"] != asked["id"]
    assert again["output"] == answer["output"]
    assert written is approve


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_decision_that_comes_too_late_is_answered_with_the_one_that_stands(
    tmp_path: Path, is_streamed: bool
) -> None:
    async def ask(given: Any, **more: Any) -> dict[str, Any]:
        if is_streamed:
            return last(await streamed(served, given, "dragoman/agent", tools=[MCP], **more))
        return await create_response(served, given, "dragoman/agent", tools=[MCP], **more)

    async with serving(tmp_path, Scripted([BLOCK, "I see.", "Good."]), approval_admin="ask") as served:
        asked = await ask("Write")
        [row] = (await served.client.get("/approvals")).json()["approvals"]
        path = f"/runs/{row['run']}/approvals/{row['call']}"
        assert (await served.client.post(path, json={"decision": "deny", "door": "page"})).status_code == 200
        request = asked["output"][-1]["id"]
        verdict = {"type": "mcp_approval_response", "approval_request_id": request, "approve": True}
        answer = await ask([verdict], previous_response_id=asked["id"])
        assert (await get(served, answer["id"]))["output"] == answer["output"]
        decided, call, message = answer["output"]
        more = await ask([*answer["output"], {"role": "user", "content": "And?"}])
    assert (decided["type"], decided["approval_request_id"], decided["approve"]) == (
        *("mcp_approval_response", request),
        False,
    )
    assert decided["reason"] == "denied by local on the page"
    assert (call["status"], message["content"][0]["text"]) == ("failed", "I see.")
    assert not (tmp_path / "work" / "note.txt").exists()
    assert more["output"][-1]["content"][0]["text"] == "Good.", "its own item is no verdict when it comes back"


async def test_a_failure_ends_the_stream_and_is_an_error_of_a_whole_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        name, data = blocks(await streamed(served))[-1]
        assert (name, data["response"]["error"]["code"]) == ("response.failed", "invalid_prompt")
        status, error = await error_of(served, "POST", "", json={"model": "scripted", "input": "a"})
        assert (status, error["code"]) == (500, "server_error")
        assert json.dumps(error)


@pytest.mark.parametrize(("model", "end"), [("m", "response.failed"), ("dragoman/agent", "response.completed")])
async def test_what_was_streamed_survives_a_kill_and_the_agent_goes_on(tmp_path: Path, model: str, end: str) -> None:
    (tmp_path / "work").mkdir()
    said = [says(f"word{at} ") for at in range(5)]
    last = stream(says("and so on."), chunk(finish="stop"), DONE)
    body = {"model": model, "input": "Go", "stream": True, "background": True}
    async with asyncio.timeout(60), upstream(stream(*said, then=hang), last, chats=True) as upper:
        seen = b""
        async with server(tmp_path, upper.base_url) as (client, process):
            with suppress(httpx2.TransportError):  # the connection dies with the server
                async with client.stream("POST", PATH, json=body) as response:
                    async for block in response.aiter_bytes():
                        seen += block
                        if b"word4" in seen and process.returncode is None:
                            process.kill()
        frames = bare(seen.decode())
        response_id = blocks(f"{frames[0]}\n\n")[0][1]["response"]["id"]
        async with server(tmp_path, upper.base_url) as (client, _):
            replay = bare((await client.get(f"{PATH}/{response_id}?stream=true")).text)
            kept = (await client.get(f"{PATH}/{response_id}")).json()
    assert replay[: len(frames)] == frames
    name, data = blocks(f"{replay[-1]}\n\n")[0]
    assert name == end and (name == "response.completed" or data["response"]["error"]["code"] == "server_error")
    assert data["response"] == kept
    assert kept["output"][0]["content"][0]["text"].startswith("word0 word1 word2 word3 word4")

"""A lane through the real server: agent and relay, streamed and whole, files, errors."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from app.context.view import View
from app.core.provider import Finished, ProviderFailed
from app.models.scripted import Line, Raise, Scripted
from app.runs.composition.unattended import UnattendedRuns
from parsing import Call
from routes.lanes.body import MOST_MESSAGES
from tests.support.lanes.small_lane import PATH, assistant, serving_plain, streamed, user, whole
from tests.support.models.pictures import png
from tests.support.server.held_loop import may_hold

pytestmark = pytest.mark.anyio

CALL: list[Line] = [Call(0, "look_up", {"q": "x"}, "native"), Finished("tool_calls")]


async def test_a_bare_model_name_is_relayed_in_one_round_and_nothing_is_added(tmp_path: Path) -> None:
    model = Scripted([CALL])
    async with serving_plain(tmp_path, model) as served:
        answer = await whole(served, user("Hello"), model="scripted", tools=["look_up"])
        assert (await served.client.get("/sessions")).json()["sessions"] == []  # unlisted
    assert (answer["reason"], [call["name"] for call in answer["calls"]]) == ("client_tools", ["look_up"])
    [asked] = model.requests
    assert [(one.role, one.text) for one in asked.messages] == [("user", "Hello")]
    assert [tool.name for tool in asked.tools] == ["look_up"]


@pytest.mark.parametrize("name", [None, "dragoman/agent", "dragoman/scripted"])
async def test_the_agent_has_its_own_tools_and_the_clients_instructions(tmp_path: Path, name: str | None) -> None:
    model = Scripted(["```bash\necho hi there\n```", "Done."])
    async with serving_plain(tmp_path, model) as served:
        system = {"role": "system", "content": "Answer briefly."}
        answer = await whole(served, system, user("Run it"), model=name)
        session = (await served.client.get(f"/sessions/{answer['session']}")).json()
    assert answer["reason"] == "answered" and answer["text"].endswith("Done.")
    assert answer["model"] == (name or "dragoman/agent")
    assert "Answer briefly." in model.requests[0].whole()[0].text
    assert [one["role"] for one in session["messages"]] == ["user", "assistant", "tool", "assistant"]


async def test_the_agent_passes_on_what_is_about_each_answer(tmp_path: Path) -> None:
    model = Scripted(["Hi."])
    given = {"max_tokens": 5, "temperature": 0.5, "tool_choice": "required", "stop": ["x"], "unknown": 1}
    async with serving_plain(tmp_path, model) as served:
        answer = await whole(served, user("Hello"), model="dragoman/agent", parameters=given)
        [row] = await served.services.store.runs(answer["session"])
        again, _ = await UnattendedRuns(served.services.factory).restored_agent(row)
    assert model.requests[0].parameters == {"max_tokens": 5, "temperature": 0.5}
    assert isinstance(again.view, View) and again.view.parameters == model.requests[0].parameters


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"temperature": 3}, "temperature: Input should be less than or equal to 2"),
        ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens: Input should be greater"),
        ({"max_tokens": "5"}, "max_tokens: Input should be a valid integer"),
        ({"reasoning_effort": "huge"}, "reasoning_effort: Input should be 'none', "),
    ],
)
async def test_a_parameter_that_no_model_takes_is_refused(tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    async with serving_plain(tmp_path, Scripted([])) as served:
        body = {"messages": [user("Hi")], "model": "dragoman/agent", "parameters": given}
        response = await served.client.post(PATH, json=body)
    error = response.json()["plain"]
    assert (response.status_code, error["code"]) == (400, "invalid_request") and problem in error["message"]


async def test_a_stream_has_the_lanes_frames_and_headers(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted([["Hel", "lo"]])) as served:
        body = {"messages": [user("Hi")], "model": "scripted", "stream": True}
        response = await served.client.post(PATH, json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-lane"] == "plain"
    assert response.headers["x-run-id"].startswith("run_") and response.headers["x-session-id"].startswith("ses_")
    events = [json.loads(block.removeprefix("data: ")) for block in response.text.split("\n\n") if block]
    assert events[0]["type"] == "run.started" and events[-1]["type"] == "run.finished"
    assert "".join(event["text"] for event in events if event["type"] == "text.delta") == "Hello"
    assert "id:" not in response.text and "retry:" not in response.text


async def test_an_unknown_model_is_refused_in_the_lanes_shape(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted([])) as served:
        response = await served.client.post(PATH, json={"messages": [user("Hi")], "model": "nothing"})
    assert response.json()["plain"]["code"] == "unknown_model"


WRONG: list[tuple[bytes, int, str]] = [
    (b"", 400, "invalid_json"),
    (b"{", 400, "invalid_json"),
    (b"[]", 400, "invalid_json"),
    (b'{"model": 5}', 400, "invalid_request"),
    (b'{"messages": [5]}', 400, "invalid_request"),
    (b'{"messages": "' + b" " * (33 << 20) + b'"}', 413, "too_long"),
    (b'{"messages": [' + b"[]," * 1_000_000 + b"[]]}", 413, "too_long"),
]


@pytest.mark.parametrize(("body", "status", "code"), WRONG, ids=[str(at) for at in range(len(WRONG))])
async def test_bad_bodies_are_refused_in_the_lanes_shape(tmp_path: Path, body: bytes, status: int, code: str) -> None:
    async with serving_plain(tmp_path, Scripted([])) as served:
        response = await served.client.post(PATH, content=body)
    assert (response.status_code, response.json()["plain"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "shape"),
    [
        ("GET", PATH, "plain"),
        ("GET", f"{PATH}/none", "plain"),
        ("GET", "/v1/none", "error"),
        ("DELETE", "/chat", "error"),
    ],
)
async def test_what_no_route_takes_has_the_shape_of_its_path(
    tmp_path: Path, method: str, path: str, shape: str
) -> None:
    async with serving_plain(tmp_path, Scripted([])) as served:
        response = await served.client.request(method, path)
    assert response.status_code in (404, 405)
    assert list(response.json()) == [shape]


async def test_a_failure_of_the_model_is_an_error_of_a_whole_answer(tmp_path: Path) -> None:
    failure = Raise(ProviderFailed("model_rejected", "No.", retryable=False))
    async with serving_plain(tmp_path, Scripted([[failure]])) as served:
        response = await served.client.post(PATH, json={"messages": [user("Hi")], "model": "scripted"})
    assert response.status_code == 400
    assert response.json()["plain"] == {"code": "model_rejected", "message": "No."}


def picture(data: bytes) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
async def test_pictures_reach_the_model(tmp_path: Path, model: str) -> None:
    provider = Scripted(["Nice."])
    data = png(8, 8, b"x" * 9000)
    async with serving_plain(tmp_path, provider) as served:
        await whole(served, picture(data), model=model)
        [asked] = provider.requests
        [seen] = [one for message in asked.messages for one in message.attachments]
        assert asked.read is not None
        assert await asked.read(seen.sha256) == data


async def test_too_many_pictures_of_one_message_are_refused(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted([]), max_attachments="1") as served:
        two = picture(png(8, 8))
        two["content"] *= 2
        response = await served.client.post(PATH, json={"messages": [two], "model": "scripted"})
    assert (response.status_code, response.json()["plain"]["code"]) == (400, "too_many_files")


@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
async def test_a_conversation_of_too_many_messages_and_calls_is_refused(tmp_path: Path, model: str) -> None:
    calls = [{"id": f"c{at}", "name": "look_up"} for at in range(MOST_MESSAGES - 2)]
    with may_hold("10,000 calls are settled and trimmed in one go"):
        async with serving_plain(tmp_path, Scripted(["Hi."])) as served:
            long = {"model": model, "messages": [assistant("", calls=calls), user("a")]}
            assert (await served.client.post(PATH, json=long)).status_code == 200
            long["messages"].append(user("b"))  # type: ignore[attr-defined]
            response = await served.client.post(PATH, json=long)
    assert (response.status_code, response.json()["plain"]["code"]) == (413, "too_long")
    assert "10,001 messages and calls" in response.json()["plain"]["message"]


async def test_secrets_are_hidden_from_the_model_and_odd_characters_do_no_harm(tmp_path: Path) -> None:
    model = Scripted(["Hi.", "Hi."])
    token = "dgm_" + "aB3_" * 11
    async with serving_plain(tmp_path, model) as served:
        await served.client.post(
            PATH, content=json.dumps({"model": "scripted", "messages": [user(f"{token[:47]} \ud83d \0 \U0001f409")]})
        )
    [message] = model.requests[0].messages
    assert message.text == "[redacted] \ufffd \ufffd \U0001f409"


async def test_a_text_that_looks_like_a_data_url_stays_text(tmp_path: Path) -> None:
    model = Scripted(["Hi."])
    text = "data: " + "x" * 5000
    async with serving_plain(tmp_path, model) as served:
        await whole(served, user(text), model="scripted")
    assert model.requests[0].messages[0].text == text


async def test_a_request_in_the_background_is_answered_at_once(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted(["Done."])) as served:
        answer = await whole(served, user("Hi"), model="dragoman/agent", background=True, store=True)
        assert answer["reason"] == ""
        await served.services.runs.ended(answer["run"])
        assert (await served.client.get(f"/runs/{answer['run']}")).json()["state"] == "answered"


async def test_streams_are_counted_and_given_back(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted(["Hi."] * 4)) as served:
        for stream in (True, False, True, False):
            if stream:
                await streamed(served, user("Hi"), model="scripted")
            else:
                await whole(served, assistant("Hm"), user("Hi"), model="scripted")
        assert served.services.presence.streams("local") == 0


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
async def test_a_number_that_json_does_not_have_is_refused(tmp_path: Path, number: str) -> None:
    model = Scripted([])
    async with serving_plain(tmp_path, model) as served:
        body = f'{{"parameters": {{"temperature": {number}}}, "messages": []}}'
        response = await served.client.post(PATH, content=body)
    error = response.json()["plain"]
    assert (response.status_code, error["code"], number in error["message"]) == (400, "invalid_json", True)

"""Chat Completions and the list of models at a whole server, as relay and as agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import Finished, ProviderFailed
from app.models.scripted import Line, Raise, Scripted
from parsing import Call
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio

PATH = "/v1/chat/completions"
CALL: list[Line] = [Call(0, "look_up", {"q": "x"}, "native"), Finished("tool_calls")]
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]


def body(text: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": text}]} | more


async def whole(served: Served, **more: Any) -> dict[str, Any]:
    response = await served.client.post(PATH, json=body(**more))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_a_relayed_answer_is_a_completion(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served:
        answer = await whole(served)
    assert (answer["object"], answer["model"]) == ("chat.completion", "scripted")
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello."}
    assert answer["usage"]["total_tokens"] > 0


async def test_a_call_is_handed_over_and_its_result_comes_back(tmp_path: Path) -> None:
    model = Scripted([CALL, "Found."])
    async with serving(tmp_path, model) as served:
        first = await whole(served, tools=TOOLS)
        message = first["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "y"}
        second = await whole(served, tools=TOOLS, messages=[*body()["messages"], message, result])
    assert (message["content"], first["choices"][0]["finish_reason"]) == (None, "tool_calls")
    assert (second["choices"][0]["message"]["content"], second["choices"][0]["finish_reason"]) == ("Found.", "stop")
    assert [(one.role, one.text, one.name) for one in model.requests[1].messages] == [
        *(("user", "Hello", None), ("assistant", "", None)),
        ("tool", "y", "look_up"),
    ]


async def test_the_agent_runs_its_own_tools_unseen(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["```bash\necho hi\n```", "Done."])) as served:
        response = await served.client.post(PATH, json=body(model="dragoman/agent", stream=True))
    assert "tool_calls" not in response.text
    assert response.text.endswith('"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')


async def test_a_failure_in_the_stream_is_its_last_block(tmp_path: Path) -> None:
    broken: list[Line] = ["Hel", Raise(ProviderFailed("model_cut", "The answer broke off.", retryable=False))]
    async with serving(tmp_path, Scripted([broken])) as served:
        response = await served.client.post(PATH, json=body(stream=True))
        *_, last, rest = response.text.split("\n\n")
    assert (rest, json.loads(last.removeprefix("data: "))["error"]["code"]) == ("", "server_error")


async def test_a_failure_is_the_answer_that_is_not_streamed(tmp_path: Path) -> None:
    broken: list[Line] = [Raise(ProviderFailed("model_context", "It is too long.", retryable=False))]
    async with serving(tmp_path, Scripted([broken])) as served:
        response = await served.client.post(PATH, json=body())
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    "fields, status, code, param",
    [
        ({"model": "nothing"}, 404, "model_not_found", "model"),
        ({"messages": []}, 400, "invalid_request", "messages"),
        ({"n": 3}, 400, "invalid_request", "n"),
    ],
)
async def test_a_refused_request_has_openais_error(
    tmp_path: Path, fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await served.client.post(PATH, json=body() | fields)
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)


async def test_the_models_are_listed_for_clients_of_openai(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([]), aliases={"quick": "scripted"}) as served:
        listed = (await served.client.get("/v1/models")).json()
        each = [(await served.client.get(f"/v1/models/{one['id']}")).json() for one in listed["data"]]
    assert listed["object"] == "list" and each == listed["data"]
    ids = [one["id"] for one in listed["data"]]
    assert ids[:2] == ["quick", "scripted"] and len(ids) == len(set(ids))
    assert ids[-3:] == ["dragoman/agent", "dragoman/quick", "dragoman/scripted"]
    assert all(one["object"] == "model" and one["owned_by"] and one["created"] > 0 for one in listed["data"])


async def test_the_models_are_listed_for_clients_of_anthropic(tmp_path: Path) -> None:
    headers = {"anthropic-version": "2023-06-01"}
    async with serving(tmp_path, Scripted([])) as served:
        listed = (await served.client.get("/v1/models?limit=1000", headers=headers)).json()
        first = (await served.client.get(f"/v1/models/{listed['first_id']}", headers=headers)).json()
        missing = await served.client.get("/v1/models/nothing", headers=headers)
    assert set(listed) == {"data", "has_more", "first_id", "last_id"} and listed["has_more"] is False
    assert (listed["data"][0], listed["data"][-1]["id"]) == (first, listed["last_id"])
    assert set(first) == {"type", "id", "display_name", "created_at"} and first["created_at"].endswith("Z")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize("name", ["nothing", "dragoman/nothing", "elsewhere/scripted"])
async def test_an_unknown_model_is_not_found(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await served.client.get(f"/v1/models/{name}")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "scripted" in error["message"]

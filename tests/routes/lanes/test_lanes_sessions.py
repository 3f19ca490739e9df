"""The session of a request to the agent: found by run, by call, by thread or by the messages, or begun."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import Message
from app.core.provider import Finished
from app.models.scripted import Line, Scripted
from parsing import Call
from tests.support.access.people import bearer
from tests.support.lanes.small_lane import PATH, assistant, serving_plain, user, whole
from tests.support.models.pictures import png

pytestmark = pytest.mark.anyio

CALL: list[Line] = [Call(0, "look_up", {"q": "x"}, "native"), Finished("tool_calls")]
AGENT = {"model": "dragoman/agent"}
TOOLS = AGENT | {"tools": ["look_up"]}


def seen(model: Scripted, at: int = -1) -> list[tuple[str, str]]:
    """Role and text of the conversation in a request to the model, without what the server puts in front."""
    return [(one.role, bare(one)) for one in model.requests[at].messages if one.role != "system"]


def bare(message: Message) -> str:
    return message.text.split("\n")[0] if message.role == "tool" else message.text


async def test_the_messages_before_the_last_answer_find_the_session(tmp_path: Path) -> None:
    model = Scripted(["```bash\necho one\n```", "Done.", "Two."])
    async with serving_plain(tmp_path, model) as served:
        first = await whole(served, {"role": "system", "content": "A."}, user("One"), **AGENT)
        system = {"role": "system", "content": "Another text each time."}
        then = await whole(served, system, user("One"), assistant(f" {first['text']}\n"), user("Two"), **AGENT)
    assert then["session"] == first["session"]
    assert [role for role, _ in seen(model)] == ["user", "assistant", "tool", "assistant", "user"]  # with its own calls


async def test_another_answer_than_the_runs_own_begins_a_session(tmp_path: Path) -> None:
    model = Scripted(["One.", "Two."])
    async with serving_plain(tmp_path, model) as served:
        first = await whole(served, user("One"), **AGENT)
        then = await whole(served, user("One"), assistant("Other."), user("Two"), **AGENT)
        stored = (await served.client.get(f"/sessions/{then['session']}")).json()
    assert then["session"] != first["session"]
    assert seen(model) == [("user", "One"), ("assistant", "Other."), ("user", "Two")]
    assert [one["text"] for one in stored["messages"]] == ["One", "Other.", "Two", "Two."]


async def test_a_turn_that_is_sent_again_goes_on_from_there_in_a_session_of_its_own(tmp_path: Path) -> None:
    model = Scripted(["One.", "Two.", "Two again.", "Three."])
    async with serving_plain(tmp_path, model) as served:
        history = [user("One"), assistant("One.")]
        first = await whole(served, history[0], **AGENT)
        second = await whole(served, *history, user("Two"), **AGENT)
        again = await whole(served, *history, user("Two"), **AGENT)
        third = await whole(served, *history, user("Two"), assistant("Two again."), user("Three"), **AGENT)
    assert first["session"] == second["session"] != again["session"] == third["session"]
    assert seen(model, 2) == [("user", "One"), ("assistant", "One."), ("user", "Two")]
    assert seen(model)[-3:] == [("user", "Two"), ("assistant", "Two again."), ("user", "Three")]


async def test_each_principal_has_sessions_of_its_own(tmp_path: Path) -> None:
    model = Scripted(["One."] * 4)
    async with serving_plain(tmp_path, model) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob")
        answers = list[dict[str, Any]]()
        for headers in (ann, bob):
            served.client.headers.update(headers)
            answers.append(await whole(served, user("One"), thread="t", **AGENT))
        body = {"messages": [user("Two")], "previous": answers[0]["run"]} | AGENT
        refused = await served.client.post(PATH, json=body)
    assert answers[0]["session"] != answers[1]["session"]
    assert (refused.status_code, refused.json()["plain"]["code"]) == (400, "previous_response_not_found")


async def test_a_result_finds_the_session_of_its_call(tmp_path: Path) -> None:
    model = Scripted([CALL, "It is 5."])
    async with serving_plain(tmp_path, model) as served:
        first = await whole(served, user("How much?"), **TOOLS)
        [call] = first["calls"]
        result = {"role": "tool", "call": call["id"], "content": "5"}
        then = await whole(served, user("Quite another text"), assistant("", calls=[call]), result, **TOOLS)
    assert (first["reason"], then["reason"], then["text"]) == ("client_tools", "answered", "It is 5.")
    assert then["session"] == first["session"]
    assert [role for role, _ in seen(model)] == ["user", "assistant", "tool"]
    assert model.requests[-1].messages[-1].call == call["id"]
    assert "5" in model.requests[-1].messages[-1].text


async def test_a_result_with_a_message_behind_it(tmp_path: Path) -> None:
    model = Scripted([CALL, "So be it."])
    async with serving_plain(tmp_path, model) as served:
        [call] = (await whole(served, user("How much?"), **TOOLS))["calls"]
        result = {"role": "tool", "call": call["id"], "content": "5"}
        system = {"role": "system", "content": "Remember the rules."}
        asked = [user("How much?"), assistant("", calls=[call]), result, system, user("And now?")]
        await whole(served, *asked, **TOOLS)
    assert seen(model)[-1] == ("user", "Remember the rules.\n\nAnd now?")


async def test_a_run_is_gone_on_from_by_its_id_and_branches_fork(tmp_path: Path) -> None:
    model = Scripted(["One.", "Two.", "Other two.", "Three."])
    async with serving_plain(tmp_path, model) as served:
        first = await whole(served, user("One"), **AGENT)
        second = await whole(served, user("Two"), previous=first["run"], **AGENT)
        branch = await whole(served, user("Other"), previous=first["run"], **AGENT)
        third = await whole(served, user("Three"), previous=branch["run"], **AGENT)
    assert first["session"] == second["session"] != branch["session"] == third["session"]
    assert seen(model, 2) == [("user", "One"), ("assistant", "One."), ("user", "Other")]
    assert seen(model)[-3:] == [("user", "Other"), ("assistant", "Other two."), ("user", "Three")]


async def test_a_stored_relay_is_gone_on_from_by_its_id(tmp_path: Path) -> None:
    model = Scripted(["One.", "Two."])
    relay: dict[str, Any] = {"model": "scripted", "store": True}
    async with serving_plain(tmp_path, model) as served:
        first = await whole(served, user("One"), **relay)
        await whole(served, user("Two"), previous=first["run"], **relay)
        unknown = await served.client.post(PATH, json={"messages": [user("Two")], "previous": "run_none"} | relay)
    assert seen(model) == [("user", "One"), ("assistant", "One."), ("user", "Two")]
    assert (unknown.status_code, unknown.json()["plain"]["code"]) == (400, "previous_response_not_found")


async def test_a_thread_finds_its_session(tmp_path: Path) -> None:
    model = Scripted(["One.", "Two.", "Three."])
    async with serving_plain(tmp_path, model) as served:
        first = await whole(served, user("One"), thread="mine", **AGENT)
        second = await whole(served, user("One"), assistant("As I like."), user("Two"), thread="mine", **AGENT)
        other = await whole(served, user("Three"), thread="other", **AGENT)
    assert first["session"] == second["session"] != other["session"]
    assert seen(model, 1) == [("user", "One"), ("assistant", "One."), ("user", "Two")]


async def test_a_fork_has_the_pictures_of_its_history(tmp_path: Path) -> None:
    model = Scripted(["Nice.", "Two.", "Other."])
    data = png(8, 8, b"x" * 6000)
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}
    async with serving_plain(tmp_path, model) as served:
        first = await whole(served, {"role": "user", "content": [part]}, **AGENT)
        await whole(served, user("Two"), previous=first["run"], **AGENT)
        fork = await whole(served, user("Other"), previous=first["run"], **AGENT)
        [attachment] = model.requests[-1].messages[-3].attachments
        path = f"/sessions/{fork['session']}/files/{attachment.sha256}"
        assert (await served.client.get(path)).content == data


async def test_a_session_is_found_as_long_as_it_is_kept(tmp_path: Path) -> None:
    model = Scripted(["One.", "Two.", "Three."])
    async with serving_plain(tmp_path, model) as served:
        store, history = served.services.store, [user("One"), assistant("One."), user("Two")]
        first = await whole(served, history[0], **AGENT)
        await store.forget_before(0.0, 9e9)  # Idempotency-Keys only
        assert (await whole(served, *history, **AGENT))["session"] == first["session"]
        assert (await served.client.delete(f"/sessions/{first['session']}")).status_code == 204
        assert (await store.sizes())["idempotency"] == 0
        assert (await whole(served, *history, **AGENT))["session"] != first["session"]


async def test_an_answer_with_a_thought_that_was_told_late_continues_its_session(tmp_path: Path) -> None:
    """A client that streamed it has both: what was sent cannot be taken back in every format."""
    async with serving_plain(tmp_path, Scripted(["A thought.</think>One.", "Two.", "Three."])) as served:
        first = await whole(served, user("One"), **AGENT)
        then = await whole(served, user("One"), assistant("A thought.One."), user("Two"), **AGENT)
        other = await whole(served, user("One"), assistant("A thought.Two."), user("Two"), **AGENT)
    assert first["text"] == "One."
    assert then["session"] == first["session"] != other["session"]

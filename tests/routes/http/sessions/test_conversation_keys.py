"""A conversation by a key of the client's: begun once, gone on with, forgotten with its session."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.profile_spec import modes_in
from app.models.scripted import Pause, Scripted
from app.runs.run_options import RunOptions
from app.storage.principals import LOCAL_USER
from app.transcript.run_request import ConversationMoved, RunRequest
from tests.support.access.people import bearer
from tests.support.server.serving import Served, serving, until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]
KEY = "telegram:42"
HEADER = "X-Dragoman-Conversation"


async def say(served: Served, message: str = "Hello", **sent: Any) -> httpx2.Response:
    headers = sent.pop("headers", {})
    return await served.client.post("/chat", json={"message": message, **sent}, headers=headers)


def session_of(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.headers["x-session-id"]


async def test_a_key_is_one_conversation_of_its_principal(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob")
        first = session_of(await say(served, conversation=KEY, headers=ann))
        assert session_of(await say(served, conversation=KEY, headers=ann)) == first
        assert session_of(await say(served, headers=ann | {HEADER: KEY})) == first
        assert session_of(await say(served, conversation=KEY, session=first, headers=ann)) == first
        odd = session_of(await say(served, conversation="Grüße 🦊", headers=ann))
        spelled = "Grüße 🦊".encode()
        assert session_of(await say(served, headers=ann | {HEADER: spelled})) == odd != first
        assert session_of(await say(served, conversation=KEY, headers=bob)) not in (first, odd)
        listed = (await served.client.get("/sessions", headers=ann)).json()["sessions"]
        assert {row["id"]: row["conversation"] for row in listed} == {first: KEY, odd: "Grüße 🦊"}
        eve = await bearer(served, "eve")
        for asker, key, found in ((ann, KEY, [first]), (ann, "nothing", []), (eve, KEY, [])):
            answer = await served.client.get("/sessions", params={"conversation": key}, headers=asker)
            assert [row["id"] for row in answer.json()["sessions"]] == found
        shown = (await served.client.get(f"/sessions/{first}", headers=ann)).json()
        assert shown["conversation"] == KEY and len(shown["messages"]) == 8
        await served.client.delete(f"/sessions/{first}", headers=ann)
        assert session_of(await say(served, conversation=KEY, headers=ann)) != first


@pytest.mark.parametrize(
    ("sent", "headers", "problem"),
    [
        ({"conversation": ""}, {}, "send 1 to 200 printable characters"),
        ({"conversation": " "}, {}, "send 1 to 200 printable characters"),
        ({"conversation": "a\nb"}, {}, "send 1 to 200 printable characters"),
        ({"conversation": "zero\u200bwidth"}, {}, "send 1 to 200 printable characters"),
        ({"conversation": "x" * 201}, {}, "send 1 to 200 printable characters"),
        ({"conversation": 42}, {}, "conversation"),
        ({}, {HEADER: "x" * 201}, "X-Dragoman-Conversation: send 1 to 200 printable characters"),
        ({}, {HEADER: b"\xff"}, "X-Dragoman-Conversation: send 1 to 200 printable characters"),
        ({"conversation": "a"}, {HEADER: "b"}, "conversation is another one than X-Dragoman-Conversation names"),
        ({"conversation": "a", "session": "ses_1"}, {}, "conversation has no session yet, not of 'ses_1'"),
    ],
)
async def test_what_is_no_key_is_refused_in_words(
    tmp_path: Path, sent: dict[str, Any], headers: dict[str, Any], problem: str
) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted([])) as served:
        answer = await say(served, headers=headers, **sent)
        assert answer.status_code == 422 and problem in answer.json()["error"]["message"], answer.text


async def test_two_first_messages_begin_one_session(tmp_path: Path) -> None:
    """One runs, the others get what a busy session gives."""
    go_on = asyncio.Event()
    async with asyncio.timeout(60), serving(tmp_path, Scripted([["Hi.", Pause(go_on)]] * 9)) as served:
        async with aclosing(served.turn(message="One", conversation=KEY)) as turn:
            session = (await until(turn, "run.started"))["session"]
            refused = await say(served, conversation=KEY)
            assert refused.status_code == 409 and refused.json()["error"]["code"] == "session_busy"
            queued = [asyncio.create_task(say(served, conversation=KEY, when_busy="queue")) for _ in range(2)]
            go_on.set()
            assert {session_of(await one) for one in queued} == {session}
        many = await asyncio.gather(*(say(served, conversation="new", when_busy="queue") for _ in range(5)))
        assert len({session_of(one) for one in many}) == 1


async def test_a_run_is_not_begun_in_another_session_than_it_was_composed_for(tmp_path: Path) -> None:
    """Its modes and rights would be those of no session, where another first message has made one meanwhile."""
    async with asyncio.timeout(60), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        services = served.services
        modes: dict[str, Any] = {"read_only": True, "temporary": True}
        composed = await services.factory.agent(LOCAL_USER, RunOptions(), None)
        await say(served, conversation=KEY, **modes)
        with pytest.raises(ConversationMoved):
            await services.runs.start(composed, LOCAL_USER, RunRequest("Hello", conversation=KEY))
        answers = await asyncio.gather(*(say(served, conversation="new", when_busy="queue", **modes) for _ in range(3)))
        assert len({session_of(one) for one in answers}) == 1
        for answer in answers:
            row = await services.store.run(answer.headers["x-run-id"])
            assert row and modes_in(row.policy) == modes
        asked = {"model": "dragoman/agent", "messages": [{"role": "user", "content": "Hello"}]}
        headers = {HEADER: "lane"}
        several = (served.client.post("/v1/chat/completions", json=asked, headers=headers) for _ in range(3))
        assert len({session_of(one) for one in await asyncio.gather(*several)}) == 1


async def test_a_key_whose_session_is_deleted_begins_another(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        first = session_of(await say(served, conversation=KEY))
        deletion = served.client.delete(f"/sessions/{first}")
        deleted, answer = await asyncio.gather(deletion, say(served, conversation=KEY))
        assert (deleted.status_code, answer.status_code) == (204, 200)
        assert session_of(await say(served, conversation=KEY)) != first


async def test_a_key_holds_in_all_lanes(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        session = session_of(await say(served, conversation=KEY))
        history = [{"role": "user", "content": "Other"}, {"role": "assistant", "content": "No."}]
        new = {"role": "user", "content": "Go on"}
        bodies: dict[str, dict[str, Any]] = {
            "/v1/chat/completions": {"messages": [*history, new]},
            "/v1/messages": {"messages": [*history, new], "max_tokens": 99},
            "/v1/responses": {"input": "Go on"},
            "/ag-ui": {"threadId": "t1", "runId": "r1", "messages": [{"id": "1", **new}]},
            "/ui-message-stream": {
                "id": "c1",
                "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "x"}]}],
            },
        }
        for path, body in bodies.items():
            sent = {"model": "dragoman/agent", **body}
            for _ in range(2):
                answer = await served.client.post(path, json=sent, headers={HEADER: KEY})
                assert session_of(answer) == session, path
        responses = {"model": "dragoman/agent", "input": "x"}
        for name in (KEY, {"id": KEY}):
            assert (
                session_of(await served.client.post("/v1/responses", json=responses | {"conversation": name}))
                == session
            )
        wrong = await served.client.post("/v1/responses", json=responses | {"conversation": "a\nb"})
        assert wrong.status_code == 400 and "printable" in wrong.text
        both = await served.client.post("/v1/responses", json=responses | {"conversation": "a"}, headers={HEADER: "b"})
        assert both.status_code == 400 and "another one" in both.text
        nothing = {"model": "dragoman/agent", "messages": history}
        answer = await served.client.post("/v1/chat/completions", json=nothing, headers={HEADER: KEY})
        assert answer.status_code == 400 and "nothing new" in answer.text

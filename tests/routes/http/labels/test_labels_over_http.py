"""Sensitivity labels: they follow the data of a conversation, and keep it from endpoints that may not have it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.labelled import LABELS, READ, SECRET, added, labelled
from tests.support.access.people import bearer
from tests.support.mcp.served import READS, helper, serving_mcp
from tests.support.server.events import of_kind
from tests.support.server.serving import answer_in, until

pytestmark = pytest.mark.anyio


async def test_labelled_data_goes_to_an_allowed_fallback_only(tmp_path: Path) -> None:
    async with labelled(tmp_path, [READ, "Never."], ["ACME is fine.", "Still fine."]) as one:
        events = await one.served.chat("What of ACME?")
        assert added(events) == [(["customer"], "path")]
        assert answer_in(events[-1]["text"]) == "ACME is fine."
        assert one.holds() == ["local"]  # in no request, texts to count included
        session = events[0]["session"]
        again = await one.served.chat("And now?", session=session)  # the next run
        assert answer_in(again[-1]["text"]) == "Still fine." and added(again) == []
        assert one.holds("And now?") == ["local"] and one.replies["hosted"] == ["Never."]
        shown = (await one.served.client.get(f"/sessions/{session}")).json()
        assert [message.get("labels") for message in shown["messages"]][:3] == [None, None, ["customer"]]
        assert [(row["label"], row["source"], row["detail"]) for row in shown["label_sources"]] == [
            ("customer", "path", "read_file")
        ]
        assert (await one.served.client.get("/sessions")).json()["sessions"][0]["labels"] == ["customer"]
        hosted, local = (await one.served.client.get("/endpoints")).json()["endpoints"]
        assert (hosted["labels"], local["labels"]) == (["secret"], ["customer", "secret"])


async def test_a_run_is_refused_with_words_where_no_endpoint_is_left(tmp_path: Path) -> None:
    async with labelled(tmp_path, [READ], fallback=()) as one:
        events = await one.served.chat("What of ACME?")
        assert events[-1]["type"] == "run.failed" and events[-1]["code"] == "label_forbidden"
        message = "Nothing was sent: hosted/m may not have customer. The label customer may go to: local."
        assert events[-1]["message"].startswith(message)
        assert one.holds() == []
        rows = (await one.served.client.get("/audit")).json()["audit"]
        assert ("model request", "refuse") in [(row["action"], row["decision"]) for row in rows]


async def test_a_person_may_be_asked_for_this_run_or_for_the_session(tmp_path: Path) -> None:
    toml = LABELS.replace('endpoints = ["local"]', 'endpoints = ["local"]\notherwise = "ask"')
    replies = [READ, "Told once.", "Told again.", "Told for good."]
    async with labelled(tmp_path, replies, fallback=(), toml=toml) as one:
        client, session, asked = one.served.client, None, 0
        for scope in ("once", "session", None):
            events = []
            async with aclosing(one.served.turn(message="What of ACME?", session=session)) as turn:
                async for event in turn:
                    events.append(event)
                    if event["type"] == "approval.required":
                        asked += 1
                        assert event["name"] == "send_labelled_data"
                        assert event["arguments"] == {"endpoint": "hosted", "labels": ["customer"]}
                        path = f"/runs/{events[0]['run']}/approvals/{event['call']}"
                        wrong = await client.post(path, json={"decision": "approve", "arguments": {"endpoint": "x"}})
                        assert wrong.status_code == 422
                        given = {"decision": "approve", "scope": scope}
                        assert (await client.post(path, json=given)).status_code == 200
            assert events[-1]["type"] == "run.finished", events[-1]
            session = events[0]["session"]
        assert asked == 2  # the third run stands under the grant of the session
        grants = (await client.get(f"/sessions/{session}/grants")).json()["grants"]
        assert [grant["tool"] for grant in grants] == ["send_labelled_data"]


async def test_a_run_without_approvals_is_refused(tmp_path: Path) -> None:
    toml = LABELS.replace('endpoints = ["local"]', 'endpoints = ["local"]\notherwise = "ask"')
    async with labelled(tmp_path, [READ], fallback=(), toml=toml) as one:
        events = await one.served.chat("What of ACME?", when_absent="deny")
        assert events[-1]["code"] == "label_forbidden" and one.holds() == []


async def test_a_person_marks_a_message_a_session_and_its_files(tmp_path: Path) -> None:
    async with labelled(tmp_path, ["Hi.", "Hi."], ["Hello."]) as one:
        client = one.served.client
        events = await one.served.chat("It is ours.", labels=["customer"])
        assert added(events) == [(["customer"], "mark")] and one.holds("It is ours.") == ["local"]
        other = (await one.served.chat("Nothing."))[0]["session"]
        patched = await client.patch(f"/sessions/{other}", json={"labels": ["secret", "customer"]})
        assert patched.json()["labels"] == ["customer", "secret"]
        less = await client.patch(f"/sessions/{other}", json={"labels": []})
        assert less.json()["labels"] == ["customer", "secret"]  # none is taken away
        for body in ({"labels": ["nope"]}, {"labels": ["Customer"]}, {"labels": "customer"}):
            refused = await client.patch(f"/sessions/{other}", json=body)
            assert refused.status_code == 422 and "labels" in refused.json()["error"]["message"]
        refused = await client.post("/chat", json={"message": "x", "labels": ["nope"]})
        assert "there are customer, secret" in refused.json()["error"]["message"]


@pytest.mark.usefixtures("servers")
async def test_a_mark_reaches_the_run_under_way(tmp_path: Path) -> None:
    ask = "```ask_user\nWhich?\n```"
    async with labelled(tmp_path, [ask, "Never."], ["Told."]) as one:
        async with aclosing(one.served.turn(message="Hello")) as turn:
            started = await until(turn, "run.started")
            question = await until(turn, "approval.required")
            await one.served.client.patch(f"/sessions/{started['session']}", json={"labels": ["customer"]})
            path = f"/runs/{started['run']}/approvals/{question['call']}"
            given = {"decision": "approve", "arguments": {"answer": "That one."}}
            assert (await one.served.client.post(path, json=given)).status_code == 200
            end = await until(turn, "run.finished")
        assert answer_in(end["text"]) == "Told." and one.holds("That one.") == ["local"]


async def test_without_labels_nothing_is_said_of_them(tmp_path: Path) -> None:
    async with labelled(tmp_path, [READ, "Told."], toml="") as one:
        events = await one.served.chat("What of ACME?")
        assert one.holds() == ["hosted"] and not of_kind(events, "labels.added")
        assert "labels" not in (await one.served.client.get(f"/sessions/{events[0]['session']}")).json()
        refused = await one.served.client.patch(f"/sessions/{events[0]['session']}", json={"labels": ["x"]})
        assert "the settings define none" in refused.json()["error"]["message"]
        assert SECRET  # which was no label's


async def test_results_of_a_labelled_mcp_server_have_its_label(tmp_path: Path) -> None:
    labels = '[{"label": "customer", "servers": ["crm"]}]'
    calls = ['```mcp__crm__echo\n{"text": "ACME"}\n```', "Fine.", '```mcp__other__echo\n{"text": "x"}\n```', "Fine."]
    servers: dict[str, object] = {"crm": helper(), "other": helper()}
    async with serving_mcp(tmp_path, Scripted(calls), servers, tools=READS, labels=labels) as served:
        events = await served.chat("Look.")
        assert added(events) == [(["customer"], "server")]
        assert added(await served.chat("Look.")) == []


async def test_a_client_that_sends_its_history_takes_over_the_labels(tmp_path: Path) -> None:
    async with labelled(tmp_path, [READ], ["ACME is fine.", "Again.", "Once more."]) as one:

        async def complete(*messages: dict[str, str]) -> str:
            body = {"model": "dragoman/agent", "messages": messages}
            answer = await one.served.client.post("/v1/chat/completions", json=body)
            text: str = answer.json()["choices"][0]["message"]["content"]
            return text

        first = {"role": "user", "content": "What of ACME?"}
        said = {"role": "assistant", "content": await complete(first)}
        follow = {"role": "user", "content": "And so?"}
        edited = {"role": "assistant", "content": "ACME owes 4711."}
        await complete(first, said, follow)  # the same session
        await complete(first, edited, follow)  # a new one, with words of the old one in its history
        assert one.holds("And so?") == ["local"] and one.replies["local"] == []


@pytest.mark.parametrize("fallback", [("local",), ()], ids=["with a fallback", "alone"])
async def test_a_history_that_a_client_sends_past_the_agent_has_its_labels(
    tmp_path: Path, fallback: Sequence[str]
) -> None:
    async with labelled(tmp_path, [READ, "Never."], ["ACME is fine."] * 2, fallback=["local"]) as one:
        client, question = one.served.client, {"role": "user", "content": "What of ACME?"}
        body = {"model": "dragoman/agent", "messages": [question], "max_tokens": 99}
        said = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]["content"]
        history = [question, {"role": "assistant", "content": said}, {"role": "user", "content": "And so?"}]
        one.served.services.models.fallback = fallback
        body |= {"model": "hosted/m", "messages": history}
        counted = await client.post("/v1/messages/count_tokens", json=body)
        relayed = await client.post("/v1/chat/completions", json=body)
        assert "hosted" not in one.holds("And so?")
        if fallback:
            assert counted.status_code == relayed.status_code == 200
        else:
            assert counted.status_code == 403 and "may not have customer" in counted.text
            assert "may not have customer" in relayed.text


async def test_a_rule_that_names_no_endpoint_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    toml = LABELS.replace('endpoints = ["local"]', 'endpoints = ["local", "locall", "loc*"]')
    async with labelled(tmp_path, toml=toml) as one:
        (problem,) = (await one.served.client.get("/endpoints")).json()["label_problems"]
        assert problem.startswith("The rule for the label customer names locall, and there is no such endpoint now; ")
        assert "there are hosted, local." in problem and problem in caplog.messages
        ada = await bearer(one.served, "ada")
        assert "label_problems" not in (await one.served.client.get("/endpoints", headers=ada)).json()
    async with labelled(tmp_path) as one:
        assert "label_problems" not in (await one.served.client.get("/endpoints")).json()

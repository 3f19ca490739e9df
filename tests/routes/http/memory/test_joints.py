"""Parts that meet in one run: profiles and the memory, labels and the memory."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from routes.cli.main import main
from tests.support.access.labelled import READ, SECRET, Labelled, added, labelled
from tests.support.access.people import LIMIT_S
from tests.support.models.replies import tool_call
from tests.support.server.events import of_kind
from tests.support.server.memories import BRUNO, until_extracted
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
PROFILE = "[profiles.plain]\nmemory = false\n[profiles.keen]\nmemory = true\n"
MEMORY_TOOLS = {"remember", "recall_memory", "forget"}


async def test_a_profile_without_memory_is_without_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(PROFILE)
    helper = tool_call("delegate", task="Who is Bruno?")
    model = Scripted(
        [tool_call("recall_memory", query="Bruno"), helper, tool_call("remember", text="x"), "No.", "Done."]
    )
    flags: dict[str, Any] = {"memory": True, "memory_extraction": True, "helpers": True}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, **flags) as served:
        await served.client.post("/memory", json={"text": BRUNO})
        events = await served.chat("Who is Bruno?", profile="plain")
        assert not MEMORY_TOOLS & {*events[0]["tools"]}
        assert "this run has no memory" in of_kind(events, "tool.rejected")[0]["reason"]
        assert of_kind(events, "tool.finished")[0]["name"] == "delegate"
        assert not any(BRUNO in one.text for request in model.requests for one in request.messages)
        assert not MEMORY_TOOLS & {*of_kind(events, "helper.started")[0]["tools"]}
        assert await served.services.store.memory_job_count() == 0
        assert (await served.client.get("/memory")).json()["total"] == 1


async def test_a_message_to_a_session_without_memory_has_none_either(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"memory": True, "session_tools": True}
    sends = tool_call("send_to_session", session="SESSION", message="Who is Bruno?")
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hello."]), **flags) as served:
        first = (await served.chat("Hello.", memory=False))[0]["session"]
    model = Scripted([sends.replace("SESSION", first), "Sent.", "Answered."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, **flags) as served:
        await served.chat("Send it.", approval="auto")
        while run := await served.services.runs.under_way(first):
            await served.services.runs.ended(run)
        sent = (await served.client.get(f"/sessions/{first}")).json()["runs"]
        assert len(sent) == 2
        begun = (await served.events(sent[1]["id"]))[0]
        assert "read_file" in begun["tools"] and not MEMORY_TOOLS & {*begun["tools"]}


async def test_a_profile_does_not_switch_a_memory_on(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(PROFILE)
    model = Scripted([tool_call("remember", text="x"), "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        await served.client.post("/memory", json={"text": BRUNO})
        events = await served.chat("Who is Bruno?", profile="keen", memory=True)
        assert not MEMORY_TOOLS & {*events[0]["tools"]} and not of_kind(events, "tool.finished")
        assert BRUNO not in model.requests[0].messages[-1].text
        assert (await served.client.get("/memory")).json()["total"] == 1


FOUND = json.dumps([{"kind": "fact", "text": f"{SECRET}."}])


async def test_a_labelled_turn_is_read_for_memories_where_its_label_may_go(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"memory": True, "memory_extraction": True}
    async with labelled(tmp_path, [READ], ["Fine.", FOUND], **flags) as one:
        await one.served.chat("Read it.", approval="auto")
        await until_extracted(one.served)
        [row] = (await one.served.client.get("/memory")).json()["memories"]
        assert (row["labels"], row["author"], one.holds()) == (["customer"], "extraction", ["local"])
        one.replies["hosted"][:] = ["Fine.", "[]"]
        await one.served.chat("Of ACME I know nothing.", model="hosted/m")
        await until_extracted(one.served)
        assert one.holds() == ["local"], "what is known already has labels of its own"


async def test_what_management_shows_has_its_labels_and_no_others(tmp_path: Path) -> None:
    keep = tool_call("remember", text=f"{SECRET}.")
    async with labelled(tmp_path, [READ], [keep, "Fine."], memory=True, management_tools=True) as one:
        session = (await one.served.chat("Read it.", approval="auto"))[0]["session"]
        customer = [(["customer"], "call")]
        settings = {"action": "change_settings", "changes": {"max_rounds": 9}}
        await shown(one, "server", [], **settings)
        for area in ("jobs", "schedules", "webhooks", "tokens", "endpoints", "mcp"):
            await shown(one, area, [], action="list")
        await shown(one, "memory", customer, action="list")
        await shown(one, "server", [(["customer", "secret"], "call")], action="audit")
        body = {"name": "x", "message": "x", "cron": "@daily", "session": "new"}
        await one.served.client.post("/schedules", json=body)
        await shown(one, "schedules", [], action="list")
        await one.served.client.post("/schedules", json=body | {"session": session})
        await shown(one, "schedules", customer, action="list")
        assert one.holds() == ["local"]


async def shown(one: Labelled, area: str, expected: list[Any], **arguments: object) -> None:
    """A new conversation gets these labels by a call of a management tool, which is approved if it asks."""
    one.replies["hosted"][:] = [tool_call(f"manage_{area}", **arguments), "Fine."]
    one.replies["local"][:] = ["Fine."]
    events = list[dict[str, Any]]()
    async with aclosing(one.served.turn(message="Manage.", approval="auto")) as turn:
        async for event in turn:
            events.append(event)
            if event["type"] == "approval.required":
                path = f"/runs/{events[0]['run']}/approvals/{event['call']}"
                await one.served.client.post(path, json={"decision": "approve"})
    assert added(events) == expected, (area, arguments)


async def test_labels_go_through_the_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = tool_call("remember", text=f"{SECRET}, said Lisa.")
    async with labelled(tmp_path, [READ], [keep, "Noted."], memory=True) as one:
        first = await one.served.chat("Read it.", approval="auto")
        listed = (await one.served.client.get("/memory")).json()["memories"]
        assert listed[0]["labels"] == ["customer"]
        environ = {"HOME": str(tmp_path), "DRAGOMAN_URL": str(one.served.client.base_url)}
        environ |= {"DRAGOMAN_DATA_DIR": str(tmp_path / "data"), "DRAGOMAN_WORKSPACE": str(tmp_path / "work")}
        assert await asyncio.to_thread(main, ["memory", "list"], environ) == 0
        assert f"(customer) {SECRET}" in capsys.readouterr().out
        assert (await one.served.client.delete(f"/sessions/{first[0]['session']}")).status_code == 204

        one.replies["hosted"][:] = ["I do not know.", tool_call("recall_memory", query="Lisa")]
        one.replies["local"][:] = ["ACME."]
        beside = await one.served.chat("Of which customer has Lisa said it?")
        assert not of_kind(beside, "notice") and not added(beside), "the model may not have it: it is left out"
        events = await one.served.chat("Ask your memory.", session=beside[0]["session"])
        assert added(events) == [(["customer"], "memory")] and events[-1]["text"] == "ACME."
        call = of_kind(events, "labels.added")[0]["call"]
        assert call == of_kind(events, "tool.finished")[0]["call"]
        assert one.holds() == ["local"]

        one.replies["local"][:] = ["By Lisa."]
        events = await one.served.chat("Who has said it, Lisa?", model="local/m")
        assert added(events) == [(["customer"], "memory")], "beside the message"
        assert of_kind(events, "notice")[0]["code"] == "memory"
        one.replies["hosted"][:] = [tool_call("forget", id=listed[0]["id"], text=listed[0]["text"])]

"""Models that stand in for others, keys, retries and the line in front of a server, as a client sees them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from app.models.endpoints.retry_policy import Backoff
from app.models.tokens.estimates import estimated
from app.runs.agent import STANDS_IN
from app.runs.discipline.reminders import GO_ON
from tests.support.access.people import bearer
from tests.support.models.chatting import DONE, WHOLE, chunk, says
from tests.support.models.upstream import Act, Upstream, announced, answer, hang, hang_up, stream, upstream
from tests.support.server.events import Event, notices, of_kind, text_of
from tests.support.server.histories import messages_of
from tests.support.server.serving import Served, answer_in, events_of, serving, until

pytestmark = pytest.mark.anyio
LIMIT_S = 30
GONE = answer('{"error": {"message": "There is no such model."}}', 404)
BUSY = answer('{"error": {"message": "Slow down."}}', 429, retry_after_ms="1500")
UNUSED = {"prompt_tokens": 0, "completion_tokens": 0, "measured": True}
LEFT_OUT = "it is not used for ten minutes, as long as there is another."
KEYS = ("sk-first-key-of-three", "sk-second-key-of-three", "sk-third-key-of-three")


def whole(text: str) -> Act:
    return stream(says(text), chunk(finish="stop"), DONE)


@asynccontextmanager
async def models(folder: Path, endpoints: dict[str, dict[str, object]], *fallback: str) -> AsyncGenerator[Served, None]:
    """A server with these endpoints, the first of which is the default one."""
    lines = [f"fallback = {json.dumps(fallback)}", "summarise_at = 1"]  # no requests but those of the runs
    for name, fields in endpoints.items():
        fields = {"model": "m", "tool_calls": "fenced", "window": 8192} | fields
        lines += [f"[endpoints.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items())]
    (folder / "dragoman.toml").write_text("\n".join(lines))
    async with asyncio.timeout(LIMIT_S), serving(folder, None) as served:
        yield served


def at(server: Upstream, **more: object) -> dict[str, object]:
    return {"url": server.base_url} | more


async def run_forever(_: float) -> None:
    await asyncio.Event().wait()


def free_port() -> int:
    """Nobody listens there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_switch_is_told_before_the_first_word_and_kept_with_the_message(tmp_path: Path) -> None:
    async with (
        upstream(GONE, chats=True) as wanted,
        upstream(WHOLE, WHOLE, chats=True) as other,
        models(
            tmp_path, {"hosted": at(wanted, model="big"), "local": at(other, model="small")}, "local/small"
        ) as served,
    ):
        events = await served.chat()
        kinds = [event["type"] for event in events]
        [switched] = [event for event in of_kind(events, "notice") if event["code"] == "fallback"]
        named = await served.chat(model="local/small", session=events[0]["session"])
        messages = await messages_of(served, events)
    about = {"wanted": "hosted/big", "answered_by": "local/small", "reason": "model_not_found"}
    assert {name: switched[name] for name in about} == about
    assert events.index(switched) < kinds.index("text.delta")
    assert (events[-1]["reason"], text_of(events)) == ("answered", "Hi")
    assert [message.get("switched") for message in messages] == [None, about, None, None]
    assert "fallback" not in dict(notices(named)), "what was wanted has answered"
    assert other.asked[0].json["model"] == "small"


async def test_a_server_that_is_not_there_is_passed_over_from_then_on(tmp_path: Path) -> None:
    nobody: dict[str, object] = {"url": f"http://127.0.0.1:{free_port()}/v1"}
    async with (
        upstream(WHOLE, repeat=True) as other,
        models(tmp_path, {"hosted": nobody, "local": at(other)}, "local/m") as served,
    ):
        runs = [await served.chat() for _ in range(2)]
        told = {row["name"]: row for row in (await served.client.get("/endpoints")).json()["endpoints"]}
    assert [text_of(events) for events in runs] == ["Hi", "Hi"]
    codes = [[code for code, _ in notices(events)] for events in runs]
    assert codes == [["retry", "fallback"], ["fallback"]]
    assert (told["hosted"]["state"], told["local"]["state"]) == ("dead", "ok")
    assert told["hosted"]["last_error"]["code"] == "model_down"


async def test_a_busy_server_is_given_its_time(tmp_path: Path) -> None:
    async with (
        upstream(BUSY, answer("{}", 503), WHOLE, chats=True) as server,
        models(tmp_path, {"hosted": at(server)}) as served,
    ):
        events = await served.chat()
    assert (text_of(events), len(server.asked)) == ("Hi", 3)
    first, second = [message for code, message in notices(events) if code == "retry"]
    assert first == "m is rate limited. Retrying in 2 s (attempt 2 of 5)."
    assert second.startswith("m failed: status 503. Retrying in ")


async def test_a_key_is_never_told(tmp_path: Path) -> None:
    files = [tmp_path / f"key{number}" for number in range(3)]
    for file, key in zip(files, KEYS, strict=True):
        file.write_text(key)
    refusal = answer(json.dumps({"error": {"message": f"{KEYS[0]} is no key of ours"}}), 401)
    async with (
        upstream(refusal, refusal, WHOLE, chats=True) as server,
        models(tmp_path, {"hosted": at(server, key_file=[str(file) for file in files])}) as served,
    ):
        events = await served.chat()
        endpoints = (await served.client.get("/endpoints")).text
        log = (await served.client.get(f"/runs/{events[0]['run']}/events")).text
    assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {key}" for key in KEYS]
    assert [message for code, message in notices(events) if code == "key_disabled"] == [
        f"Key {place} of 3 of the endpoint hosted was refused (401): {LEFT_OUT}" for place in (1, 2)
    ]
    assert json.loads(endpoints)["endpoints"][0]["keys"] == {"count": 3, "disabled": 2, "cooling": 0}
    kept = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file())
    assert not any(key in endpoints + log + json.dumps(events) or key.encode() in kept for key in KEYS)


async def test_an_answer_that_broke_off_is_ended_by_another_model(tmp_path: Path) -> None:
    async with (
        upstream(stream(says("Half an "), then=hang_up), GONE, chats=True) as wanted,
        upstream(whole("answer."), chats=True) as other,
        models(tmp_path, {"hosted": at(wanted), "local": at(other)}, "local/m") as served,
    ):
        events = await served.chat()
        messages = await messages_of(served, events)
    assert (events[-1]["reason"], text_of(events), events[-1]["text"]) == ("answered", *["Half an answer."] * 2)
    [notice] = of_kind(events, "notice")
    switch = {"wanted": "hosted/m", "answered_by": "local/m", "reason": "model_cut"}
    assert notice["code"] == "continued" and notice.items() >= switch.items()
    assert [(one["type"], one["round"]) for one in of_kind(events, "round.started")] == [("round.started", 1)] * 2
    assert [(one.get("cut"), bool(one.get("switched"))) for one in messages[1:]] == [(True, False), (None, True)]
    assert other.asked[0].json["messages"][-1]["content"].startswith(GO_ON)


async def test_what_a_stand_in_is_taught_is_what_it_needs(tmp_path: Path) -> None:
    call = whole("```bash\necho $((20 + 3))\n```\n")
    async with (
        upstream(GONE, chats=True) as wanted,
        upstream(call, whole("23"), chats=True) as other,
        models(
            tmp_path, {"hosted": at(wanted, tool_calls="native"), "local": at(other, tool_calls="fenced")}, "local/m"
        ) as served,
    ):
        events = await served.chat()
    assert "tools" in wanted.asked[0].json and "tools" not in other.asked[0].json
    assert "```" not in wanted.asked[0].json["messages"][0]["content"]
    assert "```" in json.dumps(other.asked[0].json["messages"])
    [ran] = of_kind(events, "tool.finished")
    assert (ran["ok"], answer_in(events[-1]["text"])) == (True, "23")


async def test_a_stand_in_with_less_room_gets_a_prompt_that_fits(tmp_path: Path) -> None:
    async with (
        upstream(*[WHOLE] * 6, GONE, chats=True) as wanted,
        upstream(WHOLE, chats=True) as other,
        models(tmp_path, {"hosted": at(wanted, window=32768), "local": at(other, window=2048)}, "local/m") as served,
    ):
        session = None
        for _ in range(7):
            events = await served.chat("word " * 500, session=session, tools=[], max_rounds=1)
            session = events[0]["session"]
    assert text_of(events) == "Hi"
    assert ("context", STANDS_IN) in notices(events) and of_kind(events, "context.trimmed")
    assert "fallback" in dict(notices(events))
    assert len(other.asked) == 1, "what was too long was never sent"
    sizes = [sum(estimated(one["content"]) for one in server.asked[-1].json["messages"]) for server in (wanted, other)]
    assert sizes[0] > 3000 > 2048 > sizes[1]


async def test_who_waits_is_told_so_and_a_crowd_lets_another_pass(tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    slow = announced(begun, WHOLE, go_on)
    async with (
        upstream(slow, *[WHOLE] * 9, chats=True) as server,
        models(tmp_path, {"local": at(server, max_requests=1)}) as served,
    ):
        ann, bob = [await bearer(served, name, "admin") for name in ("ann", "bob")]
        lines: list[list[Event]] = []

        async def ask(name: str, headers: dict[str, str], in_line: asyncio.Event) -> None:
            body = {"message": name, "tools": []}
            events: list[Event] = []
            lines.append(events)
            async with served.client.stream("POST", "/chat", json=body, headers=headers) as response:
                async with aclosing(events_of(response)) as heard:
                    async for event in heard:
                        events.append(event)
                        if event["type"] == "notice":
                            in_line.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(ask("ann0", ann, asyncio.Event()))
            await begun.wait()
            for name, headers in [(f"ann{number}", ann) for number in (1, 2, 3)] + [("bob", bob)]:
                in_line = asyncio.Event()
                group.create_task(ask(name, headers, in_line))
                await in_line.wait()
            go_on.set()
    assert [asked.json["messages"][-1]["content"].split()[0] for asked in server.asked] == [
        *("ann0", "bob", "ann1", "ann2", "ann3")
    ], "the other's first, then as they came"
    places = [
        [message.split("number ")[1] for code, message in notices(events) if code == "waiting"] for events in lines
    ]
    assert places[0] == [] and places[4] == ["1 in the queue."]
    assert [told[0] for told in places[1:4]] == [f"{place} in the queue." for place in (1, 2, 3)]


async def test_a_run_that_is_cancelled_while_it_waits_leaves_the_line(tmp_path: Path) -> None:
    async with (
        upstream(stream(says("Hm"), then=hang), WHOLE, chats=True) as server,
        models(tmp_path, {"local": at(server, max_requests=1)}) as served,
    ):
        async with aclosing(served.turn(message="x")) as busy, aclosing(served.turn(message="y")) as waits:
            first = (await until(busy, "run.started"))["run"]
            await until(busy, "text.delta")
            second = (await until(waits, "run.started"))["run"]
            assert (await until(waits, "notice"))["code"] == "waiting"
            await served.client.post(f"/runs/{second}/cancel")
            *_, last = [event async for event in waits]
            last["usage"].pop("timing", None)  # there, if the run's preparation took a millisecond
            assert (last["reason"], last["usage"]) == ("cancelled", UNUSED)
            [row] = (await served.client.get("/endpoints")).json()["endpoints"]
            assert (row["waiting"], row["under_way"]) == (0, 1)
            await served.client.post(f"/runs/{first}/cancel")
        [row] = (await served.client.get("/endpoints")).json()["endpoints"]
        assert (row["waiting"], row["under_way"]) == (0, 0)
        assert text_of(await served.chat()) == "Hi"


async def test_who_waited_while_the_server_was_paused_is_not_asked(tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    slow = announced(begun, WHOLE, go_on)
    async with (
        upstream(slow, chats=True) as server,
        models(tmp_path, {"local": at(server, max_requests=1)}) as served,
    ):
        async with aclosing(served.turn(message="x")) as busy, aclosing(served.turn(message="y")) as waits:
            await until(busy, "round.started")
            await begun.wait()
            await until(waits, "notice")
            await served.client.post("/pause")
            go_on.set()
            *_, last = [event async for event in waits]
    assert (last["type"], last["reason"], len(server.asked)) == ("run.finished", "paused", 1)
    assert UNUSED.items() <= last["usage"].items()


@pytest.mark.parametrize(("status", "spends"), [(503, False), (500, True)])
async def test_who_is_cancelled_while_it_waits_to_ask_again_pays_for_what_may_have_been_read(
    tmp_path: Path, status: int, spends: bool
) -> None:
    async with (
        upstream(answer("{}", status), chats=True) as server,
        models(tmp_path, {"local": at(server)}) as served,
    ):
        served.services.models.backoff = Backoff(sleep=run_forever)
        async with aclosing(served.turn(message="x")) as turn:
            run = (await until(turn, "run.started"))["run"]
            await until(turn, "notice")
            await served.client.post(f"/runs/{run}/cancel")
            *_, last = [event async for event in turn]
    assert (last["reason"], UNUSED.items() <= last["usage"].items()) == ("cancelled", not spends)

"""A run whose server is killed goes on in the next one: each event once, one end, no effect twice."""

from __future__ import annotations

import asyncio
import random
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.runs.discipline.limit_enforcer import BROKEN_OFF
from app.runs.recovery.takeover import MOST_CRASHES
from app.transcript.conversation import INTERRUPTED
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, Upstream, announced, hang, hang_up, stream, upstream
from tests.support.nightly import at_night
from tests.support.server.dragoman_process import server
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio

LIMIT_S = 60
KILLS = at_night(200, 5)
CALLS = 3  # of a run that is killed at random
READS = '[{"match": "bash", "risk": "read"}]'
ENDS = ("run.finished", "run.failed")
Event = dict[str, Any]


def whole(*texts: str) -> Act:
    return stream(*map(says, texts), chunk(finish="stop"), DONE)


def half(*texts: str) -> Act:
    return stream(*map(says, texts), then=hang)


class Run:
    """A run as its client sees it, which returns with the number of the last event."""

    def __init__(self, folder: Path, model: Upstream, *flags: str) -> None:
        self.folder = folder
        self.seen: list[Event] = []
        self.id = self.session = ""
        self._url = model.base_url
        self._flags = flags
        (folder / "work").mkdir(exist_ok=True)

    async def until_killed(
        self, kills: Callable[[Event], bool], first: asyncio.Event | None = None, **body: object
    ) -> None:
        """Begin the run, or return to it, and kill the server at an event, or once something has come `first`."""
        async with server(self.folder, self._url, *self._flags) as (client, process):
            with suppress(httpx2.TransportError):
                async with self._following(client, {"message": "Go"} | body) as events:
                    async for event in events:
                        self.seen.append(event)
                        if kills(event):
                            if first:
                                await first.wait()
                            process.kill()
                            break
            process.kill()
            await process.wait()

    async def to_its_end(self) -> Event:
        """Return to the run in another server; its last event, and the session in `messages`."""
        async with server(self.folder, self._url, *self._flags) as (client, _):
            async with self._following(client, {}) as events:
                self.seen += [event async for event in events]
            self.messages = (await client.get(f"/sessions/{self.session}")).json()["messages"]
        assert [event["seq"] for event in self.seen] == list(range(1, len(self.seen) + 1)), "each once"
        assert [event["type"] in ENDS for event in self.seen] == [False] * (len(self.seen) - 1) + [True]
        called = [call["id"] for message in self.messages for call in message.get("calls", [])]
        assert [message["call"] for message in self.messages if message["role"] == "tool"] == called
        return self.seen[-1]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.seen if event["type"] == kind]

    @asynccontextmanager
    async def _following(
        self, client: httpx2.AsyncClient, body: Event
    ) -> AsyncGenerator[AsyncGenerator[Event, None], None]:
        after = {"Last-Event-ID": str(self.seen[-1]["seq"])} if self.seen else {}
        path = f"/runs/{self.id}/events"
        begins = client.stream("GET", path, headers=after) if self.id else client.stream("POST", "/chat", json=body)
        async with begins as response:
            if not self.id:
                self.id, self.session = response.headers["x-run-id"], response.headers["x-session-id"]
            async with aclosing(events_of(response)) as events:
                yield events


def at(kind: str, number: int = 1) -> Callable[[Event], bool]:
    """At the event of this type that is the `number`th."""
    left = [number]

    def kills(event: Event) -> bool:
        left[0] -= event["type"] == kind
        return not left[0]

    return kills


async def test_half_a_reply_is_kept_and_goes_on(tmp_path: Path) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"comm'}}
    begins = stream(says("The sky "), says("is "), chunk({"tool_calls": [call]}), then=hang)
    async with asyncio.timeout(LIMIT_S), upstream(begins, whole("blue."), chats=True) as model:
        run = Run(tmp_path, model, "--tool-calls", "native")
        await run.until_killed(at("tool.delta"))
        end = await run.to_its_end()
        asked = model.asked[-1].json["messages"]
    assert (end["type"], end["text"], end["rounds"]) == ("run.finished", "The sky is blue.", 1)
    assert [event["code"] for event in run.of("notice")] == ["resumed", "continued"]
    [rejected] = run.of("tool.rejected")
    assert rejected["reason"] == BROKEN_OFF and rejected["call"] == run.of("tool.delta")[0]["call"]
    assert [event["round"] for event in run.of("round.started")] == [1, 1], "one round, and two requests"
    first, _ = run.of("usage")
    assert not first["measured"] and first["prompt_tokens"] > 0 and first["completion_tokens"] > 0
    assert [(one["role"], one.get("cut", False)) for one in run.messages[1:]] == [
        ("assistant", True),
        ("assistant", False),
    ]
    assert any("The sky is" in str(one["content"]) for one in asked if one["role"] == "assistant")


async def test_an_answer_that_has_changed_its_model_survives_its_server(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    async with (
        asyncio.timeout(LIMIT_S),
        upstream(stream(says("The sky "), then=hang_up), whole("blue."), chats=True) as model,
        upstream(half("is "), chats=True) as other,
    ):
        file.write_text(f'[endpoints.other]\nurl = "{other.base_url}"\nmodel = "m"\nwindow = 8192\n')
        run = Run(tmp_path, model, "--config", str(file), "--fallback", "other/m")
        await run.until_killed(at("text.delta", 2))
        end = await run.to_its_end()
    assert (end["type"], end["text"], end["rounds"]) == ("run.finished", "The sky is blue.", 1)
    told = [(event["code"], event.get("answered_by")) for event in run.of("notice")]
    assert told == [("continued", "other/m"), ("resumed", None), ("continued", None)]
    assert [(one["text"], one.get("cut", False)) for one in run.messages[1:]] == [
        ("The sky ", True),
        ("is ", True),
        ("blue.", False),
    ]


async def test_a_request_without_a_word_yet_is_made_again(tmp_path: Path) -> None:
    begun = asyncio.Event()
    async with asyncio.timeout(LIMIT_S), upstream(announced(begun, half()), whole("Hi."), chats=True) as model:
        run = Run(tmp_path, model)
        await run.until_killed(at("round.started"), begun)
        end = await run.to_its_end()
    assert (end["text"], end["rounds"], len(run.of("round.started"))) == ("Hi.", 1, 1)
    assert [message["role"] for message in run.messages] == ["user", "assistant"]


async def test_a_call_that_may_have_had_an_effect_is_never_made_again(tmp_path: Path) -> None:
    acts = whole("```bash\necho x >> ran.txt; echo up; sleep 1000\n```\n"), whole("I look.")
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model:
        run = Run(tmp_path, model)
        await run.until_killed(lambda event: "up" in event.get("tail", ()))
        end = await run.to_its_end()
    assert end["rounds"] == 2 and (tmp_path / "work" / "ran.txt").read_text() == "x\n"
    [finished] = run.of("tool.finished")
    assert (finished["ok"], finished["text"]) == (False, INTERRUPTED)
    assert len(run.of("tool.started")) == 1


async def test_a_call_that_only_reads_is_made_again(tmp_path: Path) -> None:
    acts = whole("```bash\necho x >> ran.txt; echo up; test -e go || sleep 1000\n```\n"), whole("Seen.")
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model:
        run = Run(tmp_path, model, "--tools", READS)
        await run.until_killed(lambda event: "up" in event.get("tail", ()))
        (tmp_path / "work" / "go").touch()
        end = await run.to_its_end()
    assert end["rounds"] == 2 and (tmp_path / "work" / "ran.txt").read_text() == "x\n" * 2
    assert [event["ok"] for event in run.of("tool.finished")] == [True]
    assert len(run.of("tool.started")) == 1, "its client has seen it start"


async def test_a_run_goes_on_between_its_rounds(tmp_path: Path) -> None:
    begun = asyncio.Event()
    acts = whole("```bash\necho x >> ran.txt\n```\n"), announced(begun, half()), whole("Done.")
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model:
        run = Run(tmp_path, model)
        await run.until_killed(at("round.started", 2), begun)
        end = await run.to_its_end()
    assert (end["rounds"], end["calls"]) == (2, 1) and (tmp_path / "work" / "ran.txt").read_text() == "x\n"


async def test_a_queued_run_keeps_its_place_and_a_run_its_messages(tmp_path: Path) -> None:
    acts = half("One"), whole("."), whole("Two.")
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model:
        run = Run(tmp_path, model)
        async with server(tmp_path, model.base_url) as (client, process):
            with suppress(httpx2.TransportError):
                async with run._following(client, {"message": "1"}) as events:
                    async for event in events:
                        run.seen.append(event)
                        if event["type"] == "text.delta":
                            body = {"message": "2", "session": run.session, "when_busy": "queue"}
                            answer = await client.post("/chat", json=body, headers={"Prefer": "respond-async"})
                            behind: str = answer.json()["run"]
                            steered = await client.post(f"/runs/{run.id}/messages", json={"message": "more"})
                            assert steered.status_code == 202
                            process.kill()
            await process.wait()
        async with server(tmp_path, model.base_url) as (client, _):
            log = (await client.get(f"/runs/{behind}/events")).text
            assert log.count("event: run.finished") == 1 and "resumed" not in log
            messages = (await client.get(f"/sessions/{run.session}")).json()["messages"]
    said = [message["text"] for message in messages]
    assert said[0] == "1" and said[-2:] == ["2", "Two."] and said.index("more") < said.index("2")


async def test_a_run_that_kills_its_server_each_time_ends(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), upstream(half("x"), repeat=True, chats=True) as model:
        run = Run(tmp_path, model)
        for _ in range(MOST_CRASHES + 1):
            await run.until_killed(at("text.delta"))
        end = await run.to_its_end()
    assert (end["type"], end["code"]) == ("run.failed", "interrupted")
    assert sum(event.get("code") == "resumed" for event in run.seen) == MOST_CRASHES


async def test_a_run_that_ends_with_its_client_is_not_continued(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), upstream(half("x"), whole("y"), chats=True) as model:
        run = Run(tmp_path, model)
        await run.until_killed(at("text.delta"), on_disconnect="cancel")
        assert (await run.to_its_end())["code"] == "interrupted"
        assert len(model.asked) == 1


def appending(model: list[Upstream]) -> Act:
    """Call bash until there are results of all calls, then answer; slowly, so that a kill comes in the middle."""

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        asked = model[0].asked[-1].json["messages"]
        results = sum(str(one["content"]).count("RAN") > 0 for one in asked if one["role"] != "assistant")
        words = "I am done now." if results >= CALLS else f"Now.\n```bash\necho {results} >> ran.txt; echo RA''N\n```\n"
        await stream(*(says(word + " ") for word in words.split(" ")), chunk(finish="stop"), DONE)(reader, writer)

    return act


@pytest.mark.timeout(60 + 10 * KILLS)
async def test_killed_at_random_no_event_is_lost_and_no_effect_doubled(tmp_path: Path) -> None:
    chance, kills = random.Random(22), 0
    while kills < KILLS:
        folder = tmp_path / str(kills)
        folder.mkdir()
        holder: list[Upstream] = []
        async with (
            asyncio.timeout(LIMIT_S),
            upstream(appending(holder), repeat=True, chats=True) as model,
        ):
            holder.append(model)
            run = Run(folder, model)
            for _ in range(min(chance.randint(1, MOST_CRASHES), KILLS - kills)):
                kills += 1
                left = [chance.randint(1, 12)]

                def kills_now(_: Event, left: list[int] = left) -> bool:
                    left[0] -= 1
                    return not left[0]

                if not ended(run.seen):
                    await run.until_killed(kills_now)
            if not ended(run.seen):
                assert (await run.to_its_end())["type"] == "run.finished"
        ran = folder / "work" / "ran.txt"
        lines = ran.read_text().splitlines() if ran.exists() else []
        assert len(lines) <= len(run.of("tool.started")), "an effect without a call"
        calls = [event["call"] for event in run.of("tool.started")]
        assert len(set(calls)) == len(calls)


def ended(seen: Sequence[Event]) -> bool:
    return bool(seen) and seen[-1]["type"] in ENDS

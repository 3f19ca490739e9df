"""Forks inside a run: at any event, with the files of that moment, with edits, and taken over into the workspace."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import unanswered
from app.core.provider import CallForm, ModelRequest, Piece, ProviderFailed
from app.log.log_compaction import joined_rows
from app.models.scripted import Line, Pause, Raise, Reply, Scripted, ended
from parsing import Call
from tests.support.access.people import bearer
from tests.support.checkpoints import tree
from tests.support.server.delegating import delegates, helpers_in
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, events_of, serving

pytestmark = pytest.mark.anyio

ROUNDS = 40
FORKS = 100
ENDS = frozenset({"approval.required", "run.finished", "run.failed"})


def bash(script: str) -> str:
    return f"```bash\n{script}\n```\n"


class InTurn(Scripted):
    """Answers by the number of replies that there are in the history, and looks at the workspace at each request."""

    def __init__(self, replies: Sequence[Reply], work: Path) -> None:
        super().__init__(replies)
        self.work = work
        self.trees: dict[int, Any] = {}
        self.third = asyncio.Event()  # has been asked for

    def _next(self, request: ModelRequest) -> list[Piece | Pause | Raise]:
        self.requests.append(request)
        if len(self.requests) == 3:
            self.third.set()
        number = sum(message.role == "assistant" for message in request.messages)
        self.trees.setdefault(number, tree(self.work))
        return list(ended(self._replies[min(number, len(self._replies) - 1)]))


def script(number: int) -> str:
    """A call that creates, changes, moves or removes something."""
    kinds = (
        f"echo {number} > file{number % 5}.txt",
        f"mkdir -p deep/{number % 3} && head -c 3000 /dev/urandom > deep/{number % 3}/random{number}",
        f"rm -f file{number % 4}.txt; ln -sfn target{number} link",
        f"chmod 7{number % 6}5 file4.txt; mv deep/{number % 3} moved{number} 2>/dev/null || rm -rf moved*",
    )
    return f"Step {number}.\n\n{bash(kinds[number % 4])}"


async def fork(served: Served, run: str, status: int = 200, **body: Any) -> list[dict[str, Any]]:
    """The events of a fork, up to a question or the end."""
    async with served.client.stream("POST", f"/runs/{run}/fork", json=body) as response:
        assert response.status_code == status, await response.aread()
        events, begun = list[dict[str, Any]](), False
        async with aclosing(events_of(response)) as stream:
            async for event in stream:
                events.append(event)
                begun = begun or (event.get("code") == "fork" and f"of run {run}," in event["message"])
                if begun and event["type"] in ENDS:
                    break
        return events


async def refused(served: Served, run: str, status: int, **body: Any) -> str:
    answer = await served.client.post(f"/runs/{run}/fork", json=body)
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"]["message"])


def place(events: list[dict[str, Any]]) -> tuple[str, str]:
    """The session and the run of these events."""
    first = of_kind(events, "run.started")[0]
    return first["session"], first["run"]


async def decide(served: Served, run: str, call: str, decision: str = "approve") -> None:
    answer = await served.client.post(f"/runs/{run}/approvals/{call}", json={"decision": decision})
    assert answer.status_code == 200, answer.text


async def to_the_end(served: Served, run: str, after: int = 0, *, decision: str = "approve") -> list[dict[str, Any]]:
    """All events of a run, whose questions are decided on."""
    events = list[dict[str, Any]]()
    async with served.client.stream("GET", f"/runs/{run}/events", params={"after": after}) as response:
        async with aclosing(events_of(response)) as stream:
            async for event in stream:
                events.append(event)
                if event["type"] == "approval.required" and event["seq"] > after:
                    await decide(served, run, event["call"], decision)
    return events


async def check_log(served: Served, session: str, run: str) -> None:
    """The log is well-formed, and each call has one result."""
    events = await served.events(run)
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers))  # of joined events only the last has one
    assert [event["type"] for event in events].count("run.started") == 1
    assert sum(event["type"] in ("run.finished", "run.failed") for event in events) == 1
    assert events[-1]["type"] in ("run.finished", "run.failed")
    messages = await served.services.store.messages(session)
    results = [message.call for message in messages if message.role == "tool"]
    assert not list(unanswered(messages)) and len(results) == len(set(results))


def scratch(folder: Path, session: str) -> Path:
    return folder / "data/forks" / session


async def test_a_run_is_forked_at_any_event_with_the_files_of_that_moment(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "kept").mkdir()
    (work / "kept/from before").write_text("before")
    model = InTurn([*map(script, range(ROUNDS)), "Done."], work)
    chance = random.Random(7)
    async with asyncio.timeout(110), serving(tmp_path, model, max_rounds=60) as served:
        events = await served.chat("Go.")
        run = events[0]["run"]
        assert events[-1]["reason"] == "answered" and len(of_kind(events, "tool.finished")) == ROUNDS
        log = await served.events(run)
        for at in chance.sample(range(1, len(log) + 1), FORKS):
            done = sum(event["type"] == "tool.finished" for event in log[:at])
            forked = await fork(served, run, at=at)
            session, branch = place(forked)
            assert tree(scratch(tmp_path, session)) == model.trees[done], at
            await served.client.post(f"/runs/{branch}/cancel")
            await check_log(served, session, branch)
            assert (await served.client.delete(f"/sessions/{session}")).status_code == 204
            assert not scratch(tmp_path, session).exists()
        assert await served.events(run) == log


async def test_a_branch_goes_on_to_its_end_and_its_calls_ask(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    model = InTurn([bash("echo 1 >> a"), bash("echo 2 >> a"), bash("echo 3 >> a"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run, session = (await served.chat("Go."))[0]["run"], None
        log = await served.events(run)
        at = of_kind(log, "tool.finished")[0]["seq"]
        forked = await fork(served, run, at=at, message="Carefully.", model="scripted")
        session, branch = place(forked)
        [notice] = [event for event in forked if event["type"] == "notice"]
        assert notice["code"] == "fork" and f"event {at} of run {run}" in notice["message"]
        assert forked[-1]["type"] == "approval.required"
        preview = await served.client.get(f"/sessions/{session}/files")
        assert preview.json()["files"][0]["size"] == 2
        rest = await to_the_end(served, branch, forked[-1]["seq"] - 1)
        assert rest[-1]["type"] == "run.finished" and len(of_kind(rest, "tool.finished")) == 2
        assert (scratch(tmp_path, session) / "a").read_text() == "1\n2\n3\n" == (work / "a").read_text()
        await check_log(served, session, branch)
        assert "Carefully." in [message.text for message in await served.services.store.messages(session)]
        read = await served.client.get(f"/sessions/{session}/workspace/a")
        assert read.text == "1\n2\n3\n"
        last = of_kind(rest, "tool.finished")[0]["seq"]
        deeper = place(await fork(served, branch, at=last))[0]
        refused = await served.client.post(f"/runs/{branch}/replay")
        assert refused.status_code == 409 and "another run" in refused.json()["error"]["message"]
        changes = (await served.client.get(f"/sessions/{deeper}/changes")).json()  # compared with the workspace
        assert [one["diff"].splitlines()[-1] for one in changes["files"]] == ["+2"]
        undone = await served.client.post(f"/runs/{branch}/undo")
        assert undone.status_code == 200 and (scratch(tmp_path, session) / "a").read_text() == "1\n"
        (work / "a").write_text("a person's")
        more = await served.chat("And?", session=session)  # works in the same folder
        assert more[-1]["type"] == "run.finished"
        shown = (await served.client.get(f"/sessions/{session}")).json()
        assert [one["id"] for one in shown["runs"]] == [branch, place(more)[1]]
        again = await fork(served, branch, at=at)
        assert (scratch(tmp_path, place(again)[0]) / "a").read_text() == "1\n"


async def test_a_fork_may_change_any_call_that_is_open(tmp_path: Path) -> None:
    reads: list[Line] = ["I read.", *(Call(at, "read_file", {"path": f"{at}.txt"}, "native") for at in range(2))]
    async with asyncio.timeout(60), serving(tmp_path, Scripted([reads, "Done.", "Done again."])) as served:
        for name in "012":
            (tmp_path / "work" / f"{name}.txt").write_text(f"This is {name}.")
        run = (await served.chat("Read both."))[0]["run"]
        _, second = of_kind(await served.events(run), "tool.started")  # the first has no result yet
        edit = {"arguments": {"path": "2.txt"}, "call": second["call"]}
        forked = await fork(served, run, at=second["seq"], edit=edit)
        assert [one["arguments"]["path"] for one in of_kind(forked, "tool.started")] == ["0.txt", "2.txt"]


async def test_a_fork_may_change_what_stands_there(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    model = InTurn([bash("echo one > a"), bash("echo two > b"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        log = await served.events(run)
        finished = of_kind(log, "tool.finished")[0]["seq"]
        usage = [event["seq"] for event in log if event["type"] == "usage"]

        first = await fork(served, run, at=1, edit={"message": "Go carefully."})
        messages = await served.services.store.messages(place(first)[0])
        assert [message.text for message in messages][:1] == ["Go carefully."] and not tree(
            scratch(tmp_path, place(first)[0])
        )

        other = await fork(served, run, at=usage[0], edit={"arguments": {"command": "echo other > c"}})
        assert other[-1]["arguments"] == {"command": "echo other > c"}
        await to_the_end(served, place(other)[1], other[-1]["seq"] - 1)
        assert (scratch(tmp_path, place(other)[0]) / "c").read_text() == "other\n"
        said = [message.text for message in model.requests[-1].messages if message.role == "assistant"]
        assert "echo other > c" in said[0] and "echo one > a" not in said[0]

        third = await fork(served, run, at=finished, edit={"result": "It printed 42."})
        assert of_kind(third, "tool.finished")[-1]["text"] == "It printed 42."
        assert any(message.text == "It printed 42." for message in model.requests[-1].messages)

        for body, words in (
            ({"at": usage[0], "edit": {"message": "No."}}, "the model has replied before this event"),
            ({"at": 1, "edit": {"arguments": {}}}, "no call comes next"),
            ({"at": 1, "edit": {"arguments": {}, "call": "c0"}}, "no call 'c0' is open"),
            ({"at": 1, "edit": {"result": "x", "call": "c0"}}, "call names the call of arguments"),
            ({"at": 1, "edit": {"result": "x"}}, "no call has finished"),
            ({"at": 1, "edit": {"result": "x", "message": "y"}}, "send one of message, arguments and result"),
            ({"at": 0}, "at"),
            ({"at": -1}, "at"),
            ({"at": len(log) + 1}, f"the run has the events 1 to {len(log)}"),
            ({"at": "1"}, "at"),
            ({"at": True}, "at"),
            ({"at": 1, "model": "nothing"}, "model"),
        ):
            assert words in await refused(served, run, 422, **body)
        await refused(served, "run_none", 404, at=1)
        answer = await served.client.post(f"/runs/{run}/fork", json={"at": 1}, headers={"Prefer": "respond-async"})
        assert answer.status_code == 202 and answer.json()["run"] == answer.headers["X-Run-Id"]
        key = {"Idempotency-Key": "one", "Prefer": "respond-async"}
        same = [await served.client.post(f"/runs/{run}/fork", json={"at": 1}, headers=key) for _ in range(2)]
        assert len({one.json()["run"] for one in same}) == 1


async def test_of_several_calls_those_behind_the_event_are_made_again(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    model = InTurn([bash("echo 1 > a") + bash("echo 2 > b") + bash("echo 3 > c"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        log = await served.events(run)
        started = [event["seq"] for event in of_kind(log, "tool.started")]
        finished = [event["seq"] for event in of_kind(log, "tool.finished")]
        for at, there in ((started[0], ""), (finished[0], "a"), (started[1], "a"), (finished[1], "ab")):
            forked = await fork(served, run, at=at)
            session, branch = place(forked)
            assert "".join(sorted(path.name for path in scratch(tmp_path, session).iterdir())) == there
            assert forked[-1]["arguments"]["command"] == f"echo {len(there) + 1} > {'abc'[len(there)]}"
            rest = await to_the_end(served, branch, forked[-1]["seq"] - 1)
            assert len(of_kind(rest, "tool.finished")) == 3 - len(there)
            await check_log(served, session, branch)


async def test_a_run_under_way_is_forked_and_goes_on_by_itself(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    go_on = asyncio.Event()
    model = InTurn([bash("echo 1 > a"), ["One.\n\n", Pause(go_on), bash("echo 2 > a")], "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        answer = await served.client.post("/chat", json={"message": "Go."}, headers={"Prefer": "respond-async"})
        run = answer.json()["run"]
        async with served.client.stream("GET", f"/runs/{run}/events") as response:
            async with aclosing(events_of(response)) as stream:
                async for event in stream:
                    if event["type"] == "text.delta" and event["text"].startswith("One"):
                        break
        forking = asyncio.create_task(fork(served, run, at=event["seq"]))
        await model.third.wait()
        go_on.set()
        forked = await forking
        assert forked[-1]["arguments"] == {"command": "echo 2 > a"}
        log = await to_the_end(served, run)
        assert log[-1]["type"] == "run.finished" and (work / "a").read_text() == "2\n"
        assert (scratch(tmp_path, place(forked)[0]) / "a").read_text() == "1\n"


async def test_a_branch_goes_on_in_its_folder_after_a_restart(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    model = InTurn([bash("echo 1 >> a"), bash("echo 2 >> a"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        log = await served.events(run)
        forked = await fork(served, run, at=of_kind(log, "tool.finished")[0]["seq"])
        session, branch = place(forked)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        rest = await to_the_end(served, branch, forked[-1]["seq"] - 1)
        assert rest[-1]["type"] == "run.finished"
        await check_log(served, session, branch)
        assert (scratch(tmp_path, session) / "a").read_text() == "1\n2\n" == (work / "a").read_text()
        assert await served.events(run) == log


async def test_what_a_branch_has_changed_is_taken_over_and_undone(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in "abc":
        (work / name).write_text(name)
    other = "echo other > a; rm b; mkdir new; echo new > new/file; mkdir people; echo x > people/x"
    model = InTurn([bash("true"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        usage = next(event["seq"] for event in await served.events(run) if event["type"] == "usage")
        forked = await fork(served, run, at=usage, edit={"arguments": {"command": other}})
        session, branch = place(forked)
        assert (
            await served.client.post(f"/sessions/{session}/take-over", json={"fingerprint": "x"})
        ).status_code == 409
        await to_the_end(served, branch, forked[-1]["seq"] - 1)
        before = tree(work)

        async def take_over(status: int = 200, **body: Any) -> dict[str, Any]:
            answer = await served.client.post(f"/sessions/{session}/take-over", json=body)
            assert answer.status_code == status, answer.text
            return dict(answer.json())

        changes = (await served.client.get(f"/sessions/{session}/changes")).json()
        assert {one["path"]: one["change"] for one in changes["files"]} == {
            "a": "changed",
            "b": "removed",
            "new": "created",
            "new/file": "created",
        }
        assert {one["path"] for one in changes["left_out"]} == {"people", "people/x"}
        assert "+other" in changes["files"][0]["diff"]
        wrong = await take_over(409, fingerprint="wrong")
        assert "Look at the changes again" in wrong["error"]["message"]
        (work / "b").write_text("by a person")
        conflict = await take_over(409, fingerprint=changes["fingerprint"])
        assert conflict["error"]["files"] == [{"path": "b", "reason": "it has changed since"}]
        (work / "b").write_text("b")
        assert tree(work) == before
        await take_over(409, fingerprint=changes["fingerprint"], paths=["nowhere"])
        some = await take_over(fingerprint=changes["fingerprint"], paths=["a"])
        assert (work / "a").read_text() == "other\n" and (work / "b").exists()
        assert [one["path"] for one in some["files"]] == ["b", "new", "new/file"]
        done = await take_over(fingerprint=some["fingerprint"])
        assert not done["files"] and (work / "new/file").read_text() == "new\n" and not (work / "b").exists()
        for change in (done["change"], some["change"]):
            undone = await served.client.post(f"/workspace/changes/{change}/undo")
            assert undone.status_code == 200, undone.text
        assert tree(work) == before
        audit = (await served.client.get("/audit")).json()["audit"]
        assert [one["decision"] for one in audit if one["action"].startswith("take over")] == [
            *("allow", "allow", "refuse", "allow", "refuse", "allow", "refuse", "allow")
        ]
        plain = (await served.chat("Hello"))[0]["session"]
        assert (await served.client.get(f"/sessions/{plain}/changes")).status_code == 409


async def test_a_branch_of_a_branch_never_works_in_the_workspace(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    model = InTurn([bash("touch a"), "Done.", bash("touch b"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        session, branch = place(await fork(served, run, at=(await served.events(run))[-1]["seq"]))
        (scratch(tmp_path, session) / "own").touch()
        made = await served.client.post(f"/sessions/{session}/fork", json={"after": branch})
        assert made.status_code == 201, made.text
        other = made.json()["id"]
        await served.chat("Go on.", session=other, approval="auto")
        assert {one.name for one in scratch(tmp_path, other).iterdir()} == {"a", "b", "own"}
        assert {one.name for one in work.iterdir()} == {"a"}
        shutil.rmtree(tmp_path / "data/forks")  # as after a backup without it
        answer = await served.client.post("/chat", json={"message": "More.", "session": other})
        assert answer.status_code == 503 and "folder of this conversation is gone" in answer.text
        refusal = await served.client.post(f"/sessions/{session}/fork", json={"after": branch})
        assert refusal.status_code == 409 and "folder of this conversation is gone" in refusal.text
        for one in (session, other):
            assert (await served.client.delete(f"/sessions/{one}")).status_code == 204
        assert served.services.checkpoints and not served.services.checkpoints.store.scratch_sessions()


async def test_files_that_are_not_kept_are_a_clear_refusal(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    model = InTurn([bash("echo 1 > a"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        assert served.services.checkpoints
        served.services.checkpoints.store.forget_looks(str(work), {run})
        assert "from before the files of single calls were kept" in await refused(served, run, 409, at=1)
    async with asyncio.timeout(60), serving(tmp_path, model, checkpoints=False) as served:
        assert "Checkpoints are off" in await refused(served, run, 409, at=1)


async def test_only_its_owner_forks_a_run_and_only_one_of_the_page_or_chat(tmp_path: Path) -> None:
    replies = {
        "Go.": [delegates("Help me."), "Done.", "Done."],
        "Help me.": [bash("pwd > here"), "Helped."] * 2,
        "Relay.": ["A", "B"],
    }
    async with asyncio.timeout(60), helpers_in(tmp_path, replies) as served:
        run = (await served.chat("Go.", approval="auto"))[0]["run"]
        row = await served.services.store.run(run)
        assert row
        [helper] = await served.services.store.helpers(row.session)
        assert "A helper's run" in await refused(served, helper.run, 409, at=1)
        said = [{"role": "user", "content": "Relay."}]
        for path, body in (
            ("chat/completions", {"model": "dragoman/agent", "messages": said}),
            ("responses", {"model": "scripted", "input": said}),
        ):
            sent = await served.client.post(f"/v1/{path}", json=body)
            assert sent.status_code == 200, sent.text
        sessions = [one.id for one in await served.services.store.sessions("local", 100)]
        runs = [one for session in sessions for one in await served.services.store.runs(session)]
        lanes = [one.id for one in runs if "lane" in one.policy or "known" in one.policy]
        assert len(lanes) == 2
        for one in lanes:
            assert "a client of another API" in await refused(served, one, 409, at=1)

        forked = await fork(served, run, at=of_kind(await served.events(run), "usage")[0]["seq"], approval="auto")
        assert forked[-1]["type"] == "run.finished"
        folder = scratch(tmp_path, place(forked)[0])
        assert (folder / "here").read_text() == f"{folder}\n"  # its helpers work there, too
        for other in (await bearer(served, "ann"), await bearer(served, "bob", "admin")):
            assert (await served.client.post(f"/runs/{run}/fork", json={"at": 1}, headers=other)).status_code == 404


async def test_a_user_forks_in_a_folder_that_others_do_not_have(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    model = InTurn([bash("echo 1 > a"), bash("echo 2 > a"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        served.client.headers.update(await bearer(served, "ann"))
        run = (await served.chat("Go."))[0]["run"]
        at = of_kind(await served.events(run), "tool.finished")[0]["seq"]
        assert (await served.client.post(f"/runs/{run}/fork", json={"at": at, "approval": "auto"})).status_code == 403
        assert not list((tmp_path / "data/forks").iterdir())  # nothing is left of it
        forked = await fork(served, run, at=at)
        session, branch = place(forked)
        await to_the_end(served, branch, forked[-1]["seq"] - 1)
        changes = (await served.client.get(f"/sessions/{session}/changes")).json()
        taken = await served.client.post(f"/sessions/{session}/take-over", json={"fingerprint": changes["fingerprint"]})
        assert taken.status_code == 409  # the run itself has changed it, too
        assert taken.json()["error"]["files"] == [{"path": "a", "reason": "it has changed since"}]
        served.client.headers.update(await bearer(served, "bob"))
        for path in ("changes", "take-over"):
            method = "GET" if path == "changes" else "POST"
            answer = await served.client.request(method, f"/sessions/{session}/{path}", json={"fingerprint": "x"})
            assert answer.status_code == 404


async def test_replies_that_broke_off_and_messages_of_a_person_are_counted(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    broken: Reply = ["Half of it", Raise(ProviderFailed("gone", "It has gone.", retryable=True))]
    model = InTurn([bash("echo 1 > a"), broken, bash("echo 2 > b"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        log = await served.events(run)
        trees = {"": {}, "a": {"a"}, "ab": {"a", "b"}}
        for event in log:
            done = sum(one["type"] == "tool.finished" for one in log[: event["seq"]])
            forked = await fork(served, run, at=event["seq"], message="Also this.")
            session, branch = place(forked)
            assert {path.name for path in scratch(tmp_path, session).iterdir()} == set(trees["ab"[:done]])
            await to_the_end(served, branch, forked[-1]["seq"] - 1, decision="deny")
            messages = await served.services.store.messages(session)
            assert [one.text for one in messages].count("Also this.") == 1
            assert sum("Half of it" in one.text for one in messages) == 1, event
            await check_log(served, session, branch)
            again = await served.events(branch)
            added = next(one for one in again if one["type"] == "message.added")
            for at in (added["seq"], added["seq"] - 1):
                deeper = place(await fork(served, branch, at=at))[0]
                texts = [one.text for one in await served.services.store.messages(deeper)]
                assert texts.count("Also this.") == (at == added["seq"]), (event, at)
                await served.client.delete(f"/sessions/{deeper}")
            await served.client.delete(f"/sessions/{session}")


async def test_a_joined_log_of_native_calls_is_forked(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    call = Call(0, "write_file", {"path": "a", "content": "one"}, "native")
    model = InTurn([["I ", "write ", "it.", call], ["Now ", "it ", "is ", "done."]], work)
    model.call_form = CallForm.NATIVE
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        log = await served.events(run)
        store = served.services.store
        await store.replace_events(run, joined_rows(await store.events(run, 0, 10_000)))
        assert len(await store.events(run, 0, 10_000)) < len(log)
        for event in log:
            forked = await fork(served, run, at=event["seq"])
            session, branch = place(forked)
            await to_the_end(served, branch, forked[-1]["seq"] - 1)
            assert (scratch(tmp_path, session) / "a").read_text() == "one"
            await check_log(served, session, branch)
            await served.client.delete(f"/sessions/{session}")
        usage = of_kind(log, "usage")[0]["seq"]
        edited = {"path": "a", "content": "two"}
        forked = await fork(served, run, at=usage, edit={"arguments": edited})
        await to_the_end(served, place(forked)[1], forked[-1]["seq"] - 1)
        assert (scratch(tmp_path, place(forked)[0]) / "a").read_text() == "two"
        replies = [one for one in model.requests[-1].messages if one.role == "assistant"]
        assert replies[0].calls[0].arguments == edited


async def test_a_reply_of_nothing_but_a_native_call_is_not_asked_for_again(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in "ab":
        (work / name).write_text(f"It is {name}.")
    model = Scripted([[Call(0, "read_file", {"path": "a"}, "native")], *(f"Answer {number}." for number in range(5))])
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        events = await served.chat("Go.")
        run, requests = events[0]["run"], len(model.requests)
        for kind, edit, answers in (
            ("usage", None, ["It is a."]),
            ("tool.started", None, ["It is a."]),
            ("tool.started", {"arguments": {"path": "b"}}, ["It is b."]),
            ("tool.finished", None, ["It is a."]),
        ):
            forked = await fork(served, run, at=of_kind(await served.events(run), kind)[0]["seq"], edit=edit)
            session, branch = place(forked)
            await to_the_end(served, branch, forked[-1]["seq"] - 1)
            await check_log(served, session, branch)
            messages = await served.services.store.messages(session)
            assert [one.text for one in messages if one.role == "tool"] == answers
            requests += 1
            assert len(model.requests) == requests  # that which follows the result


async def test_a_branch_has_the_documents_and_the_long_results_of_its_run(tmp_path: Path) -> None:
    def native(name: str, **arguments: Any) -> Reply:
        return [Call(0, name, arguments, "native")]

    work = tmp_path / "work"
    work.mkdir()
    change = native("update_document", document="Trip", old="train", new="boat")
    made = native("create_document", title="Trip", content="We go by train.\n")
    model = InTurn([made, native("bash", command="seq 1 60000"), change, "Done."], work)
    model.call_form = CallForm.NATIVE
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        log = await served.events(run)
        finished = of_kind(log, "tool.finished")
        for at, same in ((finished[1]["seq"], 2), (log[-1]["seq"], 3)):
            session, branch = place(await fork(served, run, at=at))
            ended = of_kind(await served.events(branch), "tool.finished")
            assert [one["call"] for one in ended[:same]] == [one["call"] for one in finished[:same]]
            assert len(ended) == 3 and all(one["ok"] for one in ended)  # none is made again
            [document] = (await served.client.get(f"/sessions/{session}/documents")).json()["documents"]
            found = await served.services.store.document_version(document["id"], document["version"])
            assert found and (found.version, found.text) == (2, "We go by boat.\n")
            whole = await served.services.store.result(session, finished[1]["call"], 200_000, 6)
            assert whole and whole.characters > 200_000
        session, _ = place(await fork(served, run, at=finished[1]["seq"], edit={"result": "Nothing."}))
        assert await served.services.store.result(session, finished[1]["call"], 0, 6) is None


async def test_requests_at_a_time_take_over_each_its_paths_and_make_no_more_folders_than_there_may_be(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    model = InTurn([bash("true"), "Done."], work)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        run = (await served.chat("Go."))[0]["run"]
        usage = of_kind(await served.events(run), "usage")[0]["seq"]
        forked = await fork(served, run, at=usage, edit={"arguments": {"command": "touch a b c"}})
        session, branch = place(forked)
        await to_the_end(served, branch, forked[-1]["seq"] - 1)
        seen = (await served.client.get(f"/sessions/{session}/changes")).json()
        bodies = [{"fingerprint": seen["fingerprint"], "paths": [path]} for path in "abc"]
        path = f"/sessions/{session}/take-over"
        answers = await asyncio.gather(*(served.client.post(path, json=body) for body in bodies))
        left = (await served.client.get(f"/sessions/{session}/changes")).json()["files"]
        taken = {name for name, answer in zip("abc", answers, strict=True) if answer.status_code == 200}
        assert taken == {one.name for one in work.iterdir()} == {*"abc"} - {one["path"] for one in left} != set()
        quietly = {"Prefer": "respond-async"}
        many = [served.client.post(f"/runs/{run}/fork", json={"at": 1}, headers=quietly) for _ in range(20)]
        assert [answer.status_code for answer in await asyncio.gather(*many)].count(202) == 15


@pytest.mark.usefixtures("database")
async def test_a_fork_needs_a_database_of_the_servers_own(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["Hi.", "Hi again."])) as served:
        run = (await served.chat("Go."))[0]["run"]
        if served.services.runs.peers.is_alone:
            forked = await fork(served, run, at=1)
            assert forked[-1]["text"] == "Hi again."
            await check_log(served, *place(forked))
        else:
            assert "this one has PostgreSQL" in await refused(served, run, 409, at=1)
        await served.client.post("/pause", json={})
        assert (await served.client.post(f"/runs/{run}/fork", json={"at": 1})).status_code in (409, 503)


async def test_labelled_files_are_not_copied(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text('[[labels]]\nlabel = "customer"\npaths = ["customers/**"]\n')
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["Hi."])) as served:
        run = (await served.chat("Go."))[0]["run"]
        assert "Files have labels here" in await refused(served, run, 409, at=1)

"""Whoever's token is revoked or expires is shown out at once: runs, jobs, streams, and requests on their way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from app.models.scripted import Line, Pause, Scripted
from app.storage.tokens import TokenRevoked, TokenRow
from routes.access.token_text import fingerprint
from tests.support.access.people import LIMIT_S, bearer, connected, parsed, port_of
from tests.support.models.replies import in_background, says
from tests.support.server.approvals import rest_of
from tests.support.server.background_jobs import job_of, watched_job
from tests.support.server.dragoman_process import dragoman_at_home
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio
HOUR_S = 3600


def endless() -> list[Line]:
    return ["Sure! ", Pause(asyncio.Event()), "Never."]


@asynccontextmanager
async def signed_in(
    folder: Path, provider: Scripted, max_streams: int = 9
) -> AsyncGenerator[tuple[Served, dict[str, str]]]:
    """A server whose client is ann, and the header of its admin."""
    async with asyncio.timeout(2 * LIMIT_S), serving(folder, provider, max_streams=max_streams) as served:
        root = await bearer(served, "root", "admin")
        served.client.headers |= await bearer(served, "ann")
        yield served, root


async def test_a_revoked_person_s_runs_and_streams_end_and_no_other_s(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with signed_in(tmp_path, Scripted([endless(), ["Well. ", Pause(go_on), "Bye."]])) as (served, root):
        async with aclosing(served.turn(message="x")) as turn:
            run = (await until(turn, "run.started"))["run"]
            await until(turn, "text.delta")
            watching = asyncio.create_task(served.events(run))
            body, headers = {"message": "y"}, await bearer(served, "bob")
            async with served.client.stream("POST", "/chat", json=body, headers=headers) as bobs:
                assert (await served.client.delete("/tokens/ann", headers=root)).status_code == 204
                row = await served.services.store.run(run)
                assert row is not None and row.state == "revoked", "gone when the answer comes"
                assert [event["reason"] for event in await rest_of(turn) if event["type"] != "usage"] == ["revoked"]
                assert (await watching)[-1]["reason"] == "revoked"
                assert (await served.client.get(f"/runs/{run}")).status_code == 401
                go_on.set()
                assert b'"reason": "answered"' in await bobs.aread()


async def revoke(served: Served, folder: Path, how: str) -> None:
    """In one of the ways in which somebody loses the right to be here."""
    [row] = [row for row in await served.services.store.tokens() if row.name == "ann"]
    match how:
        case "the command line":
            ended = await asyncio.to_thread(dragoman_at_home, folder, "token", "revoke", "ann")
            assert ended.returncode == 0, ended.stderr
        case "revoked and made again":
            again = TokenRow(fingerprint("again"), "ann", "guest", time.time())
            await served.services.store.write([TokenRevoked(row.sha256, time.time()), again])


@pytest.mark.parametrize("how", ["the command line", "revoked and made again", "expiry"])
async def test_a_run_ends_however_its_token_does(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with signed_in(tmp_path, Scripted([endless()])) as (served, _):
        if how == "expiry":
            served.client.headers |= await bearer(served, "eve", expires=time.time() + HOUR_S)
        async with aclosing(served.turn(message="x")) as turn:
            await until(turn, "text.delta")
            await served.services.presence.look()  # that the token was in use has been seen
            if how == "expiry":
                later = time.time() + HOUR_S
                monkeypatch.setattr("time.time", lambda: later)
            await revoke(served, tmp_path, how)
            assert [event["reason"] for event in await rest_of(turn) if event["type"] != "usage"] == ["revoked"]
        assert (await served.client.get("/sessions")).status_code == 401


async def test_a_replay_that_stalls_is_cut(tmp_path: Path) -> None:
    """The reader stops reading; what the kernel has not taken yet never leaves the server."""
    provider = Scripted([["x" * 9_000 for _ in range(2_500)]])
    async with signed_in(tmp_path, provider) as (served, root), connected(port_of(served)) as (reader, writer):
        run = (await served.chat())[0]["run"]
        authorization = served.client.headers["authorization"]
        head = f"host: localhost\r\nconnection: close\r\nauthorization: {authorization}\r\n\r\n"
        writer.write(f"GET /runs/{run}/events HTTP/1.1\r\n{head}".encode())
        await reader.readuntil(b"run.started")
        assert (await served.client.delete("/tokens/ann", headers=root)).status_code == 204
        size = 0
        while piece := await reader.read(1 << 20):
            size += len(piece)
        assert size < 2_500 * 9_000


async def test_a_job_ends_and_its_streams_do(tmp_path: Path) -> None:
    provider = Scripted([in_background("echo up; sleep 600"), says("It runs.")])
    async with signed_in(tmp_path, provider) as (served, root):
        _, job = await job_of(served)
        watching = asyncio.create_task(watched_job(served, job))
        while not served.services.presence.streams("ann"):
            await served.client.get("/livez")
        assert (await served.client.delete("/tokens/ann", headers=root)).status_code == 204
        assert served.services.jobs.get(job, "ann").state == "cancelled"
        assert {event["type"] for event in await watching} <= {"job.progress", "job.finished"}, "and it has ended"
        assert len(provider.requests) == 2, "nobody is told of its end"


async def test_a_job_ends_when_a_server_starts_whose_person_was_revoked_before(tmp_path: Path) -> None:
    provider = Scripted([in_background("sleep 600"), says("It runs.")])
    async with signed_in(tmp_path, provider) as (served, _):
        _, job = await job_of(served)
    assert dragoman_at_home(tmp_path, "token", "revoke", "ann").returncode == 0
    async with asyncio.timeout(3 * LIMIT_S), serving(tmp_path, provider) as served:
        while served.services.jobs.get(job, "ann").under_way:
            await served.client.get("/livez")
        assert served.services.jobs.get(job, "ann").state == "cancelled"


async def test_a_run_that_waits_for_its_person_ends(tmp_path: Path) -> None:
    async with signed_in(tmp_path, Scripted(["```write_file\nnote.txt\nfirst\n```", "Done."])) as (served, root):
        async with aclosing(served.turn(message="x", approval="ask")) as turn:
            await until(turn, "approval.required")
            await served.client.delete("/tokens/ann", headers=root)
            resolved, finished = await rest_of(turn)
        assert (resolved["decision"], finished["reason"]) == ("withdrawn", "revoked")


async def test_a_request_on_its_way_begins_nothing_any_more(tmp_path: Path) -> None:
    provider = Scripted(["Never."])
    async with signed_in(tmp_path, provider) as (served, root), connected(port_of(served)) as (reader, writer):
        body = b'{"message": "x"}'
        head = f"POST /chat HTTP/1.1\r\nhost: localhost\r\nauthorization: {served.client.headers['authorization']}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n".encode())
        await reader.readuntil(b"100 Continue\r\n\r\n")  # it has been admitted, and its body is awaited
        await served.client.delete("/tokens/ann", headers=root)
        writer.write(body)
        status, _, _ = parsed(await reader.readuntil(b"\r\n\r\n"))
        assert status == 401
        assert await served.services.store.sessions("ann", 9) == [] and not provider.requests


async def test_a_body_that_takes_its_time_makes_no_token_for_a_revoked_admin(tmp_path: Path) -> None:
    async with signed_in(tmp_path, Scripted([])) as (served, root), connected(port_of(served)) as (reader, writer):
        eve = (await bearer(served, "eve", "admin"))["authorization"]
        body = b'{"name": "again", "role": "admin"}'
        head = f"POST /tokens HTTP/1.1\r\nhost: localhost\r\nauthorization: {eve}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n".encode())
        await reader.readuntil(b"100 Continue\r\n\r\n")
        await served.client.delete("/tokens/eve", headers=root)
        writer.write(body)
        status, _, _ = parsed(await reader.readuntil(b"\r\n\r\n"))
        assert status == 401
        assert {row.name for row in await served.services.store.tokens()} == {"root", "ann", "eve"}


async def test_the_first_token_ends_nothing_of_the_local_user(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Well. ", Pause(go_on), "Bye."]])) as served:
        async with aclosing(served.turn(message="x")) as turn:
            await until(turn, "text.delta")
            await bearer(served, "root", "admin")
            await served.services.presence.look()
            go_on.set()
            assert (await rest_of(turn))[-1]["reason"] == "answered"


async def test_streams_are_bounded_for_each(tmp_path: Path) -> None:
    provider = Scripted([endless(), "Hi.", "Here."])
    async with signed_in(tmp_path, provider, max_streams=2) as (served, root):
        async with aclosing(served.turn(message="x")) as first:
            run = (await until(first, "run.started"))["run"]
            async with served.client.stream("GET", f"/runs/{run}/events"):
                for answer in (
                    await served.client.get(f"/runs/{run}/events"),
                    await served.client.post("/chat", json={"message": "y"}),
                ):
                    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_streams")
                    assert answer.headers["retry-after"] == "5" and answer.json()["error"]["reset"] > time.time() - 60
                assert len((await served.client.get("/sessions")).json()["sessions"]) == 1, "no run was begun"
                others = await served.client.post("/chat", json={"message": "y"}, headers=root)
                assert others.status_code == 200
        while (answer := await served.client.post("/chat", json={"message": "y"})).status_code == 429:
            pass  # until the server has seen that they have left; the test is bounded
        assert answer.status_code == 200
        lost = await served.client.post("/chat", json={"message": "y", "session": "ses_lost"})
        assert lost.status_code == 404
        while served.services.presence.streams("ann"):  # also what never became a stream gives its place back
            await served.client.get("/livez")

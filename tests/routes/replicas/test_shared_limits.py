"""Three servers on one database, asked side by side: one run for a key, one rate, one budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import TokenUsage
from app.models.scripted import Scripted
from app.replicas.peers import Alone
from app.storage.runs import KeyRow
from app.storage.tokens import SharedRateStore
from routes.access.request_rates import DELIVERIES, MemoryRates, SharedRates, rates_of
from tests.support.databases.postgres import DATABASES, opened
from tests.support.sandbox.jobs import UNBOXED
from tests.support.server.serving import Served, serving
from tools.jobs.records import Job, JobsFailed

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]
SERVERS = 3
MONTH = "tokens_per_month"
KEY = {"Idempotency-Key": "k1"}
HELLO = {"message": "Hello"}


@asynccontextmanager
async def servers(folder: Path, **flags: object) -> AsyncGenerator[list[Served], None]:
    """Three servers on one database of PostgreSQL, or the one that SQLite may have."""
    async with asyncio.timeout(90), AsyncExitStack() as stack:
        url = DATABASES.url_of(folder)
        made = []
        for number in range(SERVERS if url else 1):
            (place := folder / f"node{number}").mkdir()
            shared = {"database_url": url, "node": place.name} if url else {}
            provider = Scripted([[TokenUsage(600, 100), "Hi."]] * 20)
            made.append(await stack.enter_async_context(serving(place, provider, None, **shared, **flags)))
        yield made


async def all_at_once(members: list[Served], times: int, headers: dict[str, str] | None = None) -> list[Any]:
    """The answers to a message that each server gets so many times at once."""
    posts = (one.client.post("/chat", json=HELLO, headers=headers) for one in members for _ in range(times))
    return await asyncio.gather(*posts)


async def test_one_key_begins_one_run_wherever_it_is_sent(tmp_path: Path) -> None:
    async with servers(tmp_path) as members:
        answers = await all_at_once(members, 4, KEY)
        [run] = {answer.headers["x-run-id"] for answer in answers}
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1  # the events of that run
        other = await members[-1].client.post("/chat", json={"message": "Other"}, headers=KEY)
        assert other.status_code == 422 and other.json()["error"]["code"] == "key_reused"
        sessions = (await members[0].client.get("/sessions")).json()["sessions"]
        assert len(sessions) == 1
        await second_line_of_defence(members[-1], run)


async def test_a_key_of_a_conversation_begins_one_session_wherever_it_is_sent(tmp_path: Path) -> None:
    said = HELLO | {"conversation": "telegram:42", "when_busy": "queue"}
    async with servers(tmp_path) as members:
        answers = await asyncio.gather(*(one.client.post("/chat", json=said) for one in members for _ in range(3)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.headers["x-session-id"] for answer in answers}) == 1
        assert len({answer.headers["x-run-id"] for answer in answers}) == len(answers)


async def second_line_of_defence(served: Served, run: str) -> None:
    """A run that was begun although the key was another's, because its lock was lost, loses the key to the first."""
    store = served.services.store
    known = await store.key("local", "k1")
    assert known and known.run == run
    await store.write([KeyRow(known.principal, known.key, known.body, "run_late", known.created + 1)])
    assert await store.key("local", "k1") == known
    await store.write([KeyRow("local", "thread", "", "run_1", 1.0)])
    await store.write([KeyRow("local", "thread", "", "run_2", 2.0)])
    latest = await store.key("local", "thread")
    assert latest and latest.run == "run_2", "other names are the last run's"


async def test_servers_whose_locks_are_lost_agree_on_the_first_run_of_a_key(tmp_path: Path) -> None:
    async with servers(tmp_path) as members:
        for one in members[1:]:
            one.services.runs.peers = Alone()
        answers = await all_at_once(members, 1, KEY)
        [run] = {answer.headers["x-run-id"] for answer in answers}
        rows = await members[0].services.store.unfinished_runs()
        known = await members[0].services.store.key("local", "k1")
    assert known and known.run == run and not rows
    assert all("run.finished" in answer.text for answer in answers)


async def test_a_principal_s_requests_a_minute_are_those_of_all_servers(tmp_path: Path) -> None:
    async with servers(tmp_path, requests_per_minute="6") as members:
        asked = (one.client.get("/usage") for one in members * 4 for _ in range(1 if len(members) > 1 else 3))
        answers = await asyncio.gather(*asked)
    codes = [answer.status_code for answer in answers]
    assert sorted(codes) == [200] * 6 + [429] * 6
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "too_many_requests"


async def test_runs_of_all_servers_share_one_budget(tmp_path: Path) -> None:
    limit = 1000
    async with servers(tmp_path, tokens_per_month=str(limit)) as members:
        await all_at_once(members, 12 // len(members))
        usages = [(await one.client.get("/usage")).json()["usage"][MONTH] for one in members]
        spent = await members[0].services.store.spent(principal="local")
    assert all(usage == usages[0] for usage in usages) and usages[0]["reserved"] == 0
    assert usages[0]["used"] == sum(row.prompt_tokens + row.completion_tokens for row in spent) <= limit
    assert usages[0]["used"] == 700  # a second one does not fit in, wherever it is begun


async def test_background_jobs_of_all_servers_share_one_limit(tmp_path: Path) -> None:
    limit = 2
    async with servers(tmp_path, job_limit=str(limit)) as members:
        starts = (start_job(one) for one in members * 3 for _ in range(2))
        done = await asyncio.gather(*starts, return_exceptions=True)
        begun = [one for one in done if isinstance(one, Job)]
        refused = [str(one) for one in done if isinstance(one, JobsFailed)]
        assert (len(begun), len(refused)) == (limit, len(done) - limit)
        assert all("2 jobs are running, which is the limit" in one for one in refused)
        for one in members:
            for job in one.services.jobs.running("local"):
                await one.services.jobs.cancel(job, "local")
        await start_job(members[-1])
        for job in members[-1].services.jobs.running("local"):
            await members[-1].services.jobs.cancel(job, "local")


async def start_job(served: Served) -> Job:
    services = served.services
    return await services.jobs.start(
        "sleep 60", session="ses_1", principal="local", sandbox=UNBOXED, workspace=services.settings.workspace
    )


async def test_each_server_has_its_part_of_an_endpoint_s_limit(tmp_path: Path) -> None:
    async with servers(tmp_path) as members:
        spec = {"url": "http://127.0.0.1:9/v1", "max_requests": 7}
        made = await members[0].client.post("/endpoints", json={"name": "shared", **spec})
        assert made.status_code in (200, 201), made.text
        for one in members:
            await one.services.endpoints.reload()
            await counted(one, len(members))
            assert one.services.endpoints["shared"].server.queue.limit == 7 // len(members)


async def counted(served: Served, servers: int) -> None:
    """Wait until a server knows how many there are."""
    known = asyncio.Event()
    runs = served.services.runs
    runs.peers.on_count(lambda count: known.set() if count == servers else None)
    if replicas := served.services.replication.replicas:
        await replicas.release([])  # all look around now, not with their next beat
    await known.wait()


async def test_a_window_begins_with_its_first_request_and_ends_after_a_minute(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        rates = rates_of(store)
        shared = isinstance(store, SharedRateStore)
        assert isinstance(rates, SharedRates if shared else MemoryRates)
        counted = await asyncio.gather(*(rates.count(DELIVERIES, "a", 100.0) for _ in range(20)))
        assert sorted(one.requests for one in counted) == list(range(1, 21))
        assert 159 < max(one.reset for one in counted) <= 160  # the first one's; a busy machine takes a while for all
        assert all(one.reset > 100 for one in counted)
        assert (await rates.count(DELIVERIES, "b", 100.0)).requests == 1
        shift_windows(tmp_path, -60)
        assert (await rates.count(DELIVERIES, "a", 160.0)).requests == 1
        shift_windows(tmp_path, 3600)
        assert (await rates.count(DELIVERIES, "a", 60.0)).requests == 1, "a clock that was set back shuts nobody out"


def shift_windows(folder: Path, seconds: float) -> None:
    """Let the database's clock have been another one; in memory the clock is the test's."""
    if url := DATABASES.url_of(folder):
        assert DATABASES.cluster
        DATABASES.cluster.sql(f"UPDATE windows SET begins = begins + {seconds}", url.rpartition("/")[2])

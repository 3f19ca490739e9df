"""Served models, for real: two models in one budget, a crash, an idle stop, and what happens where memory is short."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.embedded.supervisor import SMOLLM2, package_folder
from app.models.serving.catalogue import ServingOptions, checked_row, estimate_of, header_of, served_spec
from app.models.serving.connection import ServedConnection
from app.models.serving.memory import MIB
from app.models.serving.pool import ModelPool
from app.storage.served_models import ServedModelRow
from app.storage.sqlite.store import SQLiteStore
from tests.support.models.gguf_files import written
from tests.support.models.real_models import GEMMA, LIMIT_S, need_embedded, need_gemma, pieces_of
from tests.support.nightly import only_at_night
from tests.support.server.receivers import until

pytestmark = pytest.mark.anyio
QUESTION = "What is the capital of France? Answer in one word."
SHORT = ModelRequest([Message("user", QUESTION)], max_tokens=8, temperature=0.0)
LONG = ModelRequest([Message("user", "Count from one to a hundred.")], max_tokens=60)
IDLE_S = 100.0


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need_embedded()
    need_gemma()


class Machine:
    """A machine with as much memory and as late as the test says."""

    def __init__(self) -> None:
        self.free: int | None = None
        self.time = 0.0

    def available(self) -> int | None:
        return self.free

    def now(self) -> float:
        return self.time


@asynccontextmanager
async def pool_of(
    folder: Path, machine: Machine, *rows: ServedModelRow, memory_mb: int = 0
) -> AsyncGenerator[ModelPool, None]:
    store = await SQLiteStore.open(folder / "test.db")
    try:
        await store.write(rows)
        async with asyncio.timeout(LIMIT_S):
            yield ModelPool(store, memory_mb, IDLE_S, available=machine.available, now=machine.now)
    finally:
        await store.close()


def connected(pool: ModelPool, row: ServedModelRow) -> ServedConnection:
    return ServedConnection(pool, served_spec(row), None, "lean")


def small(folder: Path, name: str = "small", **wanted: object) -> ServedModelRow:
    path = package_folder(SMOLLM2.package) / SMOLLM2.file
    return checked_row(path, ServingOptions(name=name, context=1024, **wanted), "test", folder / "work")  # type: ignore[arg-type]


def text_of(pieces: list[Piece]) -> str:
    assert isinstance(pieces[-1], Finished)
    return "".join(piece.text for piece in pieces if isinstance(piece, TextChunk))


def pid_of(connection: ServedConnection) -> int:
    process = connection.member.process
    assert process
    assert process.pid
    return process.pid


async def test_two_models_take_turns_in_a_budget(tmp_path: Path) -> None:
    first = small(tmp_path)
    second = checked_row(GEMMA, ServingOptions(name="gemma", context=1024), "test", tmp_path / "work")
    budget = max(estimate_of(first).bytes, estimate_of(second).bytes) // MIB + 10
    async with pool_of(tmp_path, machine := Machine(), first, second, memory_mb=budget) as pool:
        one, other = connected(pool, first), connected(pool, second)
        try:
            assert (one.member.state, one.awake) == ("asleep", False)
            assert "Paris" in text_of(await pieces_of(one.provider(None), SHORT))
            assert await one.provider(None).window() == 1024
            assert await one.provider(None).count_tokens(["Hello there"])  # the server counts
            pid = pid_of(one)
            connections = [each for each in psutil.Process(pid).net_connections() if each.status == psutil.CONN_LISTEN]
            assert {each.laddr.ip for each in connections} == {"127.0.0.1"}

            machine.time = 1
            assert text_of(await pieces_of(other.provider(None), SHORT))
            assert (one.member.state, other.member.state) == ("asleep", "ready")
            assert not psutil.pid_exists(pid)
            assert await one.provider(None).count_tokens(["x"]) is None  # which wakes no model

            # One that is answering is not stopped: the other waits for its end.
            async with aclosing(other.provider(None).stream(LONG)) as answer:
                await anext(answer)
                asked = asyncio.create_task(pieces_of(one.provider(None), SHORT))
                async for _ in answer:
                    assert (other.member.users, one.member.process) == (1, None)
            assert "Paris" in text_of(await asked)
            assert other.member.state == "asleep"

            machine.time += IDLE_S + 1
            await pool.stop_idle()
            assert one.member.state == "asleep"
        finally:
            await one.close()
            await other.close()


async def test_a_killed_process_is_replaced_and_none_outlives_its_endpoint(tmp_path: Path) -> None:
    row = small(tmp_path, at_start=True)
    async with pool_of(tmp_path, machine := Machine(), row) as pool:
        connection = connected(pool, row)
        try:
            await connection.start()  # as the row says: with the server
            first = pid_of(connection)
            os.kill(first, signal.SIGKILL)
            assert "Paris" in text_of(await pieces_of(connection.provider(None), SHORT))
            second = pid_of(connection)
            assert second != first
            process = connection.member.process
            assert process
            assert process.deaths == 1
            machine.time = IDLE_S * 2
            await pool.stop_idle()
            assert connection.member.state == "ready"  # it was to start with the server
        finally:
            await connection.close()
        assert not psutil.pid_exists(second)
        assert pool.find(row.name) is None


async def test_a_process_that_hangs_is_replaced(tmp_path: Path) -> None:
    row = small(tmp_path)
    async with pool_of(tmp_path, Machine(), row) as pool:
        spec = served_spec(row).model_copy(update={"inactivity_s": 1.0})
        connection = ServedConnection(pool, spec, None, "lean")
        try:
            async with connection.member.use() as first:
                os.kill(hung := pid_of(connection), signal.SIGSTOP)
            with pytest.raises(ProviderFailed) as failure:
                await pieces_of(connection.provider(None), SHORT)
            assert failure.value.code == "model_silent"
            async with connection.member.use() as second:
                assert second != first
            assert not psutil.pid_exists(hung)
        finally:
            await connection.close()


async def test_a_file_that_changed_is_not_started_again_after_a_crash(tmp_path: Path) -> None:
    weights = tmp_path / "small.gguf"
    weights.symlink_to(package_folder(SMOLLM2.package) / SMOLLM2.file)
    row = replace(small(tmp_path), path=str(weights))
    async with pool_of(tmp_path, Machine(), row) as pool:
        connection = connected(pool, row)
        try:
            async with connection.member.use():
                weights.unlink()
                written(weights, b"another")
                os.kill(pid_of(connection), signal.SIGKILL)
                with pytest.raises(ProviderFailed, match="has changed"):
                    await pieces_of(connection.provider(None), SHORT)
        finally:
            await connection.close()


async def test_a_model_that_gets_a_request_while_another_stops_is_waited_for(tmp_path: Path) -> None:
    first, second = small(tmp_path), small(tmp_path, "second")
    large = small(tmp_path, "large", slots=8)
    budget = max(estimate_of(large).bytes, estimate_of(first).bytes * 2) // MIB + 10
    async with pool_of(tmp_path, machine := Machine(), first, second, large, memory_mb=budget) as pool:
        one, other, third = (connected(pool, row) for row in (first, second, large))
        try:
            for each in (one, other):
                machine.time += 1
                async with each.member.use():
                    pass
            starting = asyncio.create_task(pool.launch(third.member))
            await until(lambda: one.member.process is None)
            async with other.member.use():
                pid = pid_of(other)
                assert "Paris" in text_of(await pieces_of(other.provider(None), SHORT))
                assert (pid_of(other), starting.done()) == (pid, False)
            await starting
            assert other.member.process is None
        finally:
            for each in (one, other, third):
                await each.close()


async def test_without_memory_nothing_starts_unless_it_is_forced(tmp_path: Path) -> None:
    row, forced = small(tmp_path), small(tmp_path, "forced", forced=True)
    async with pool_of(tmp_path, machine := Machine(), row, forced) as pool:
        machine.free = 100 * MIB
        refused, allowed = connected(pool, row), connected(pool, forced)
        try:
            with pytest.raises(ProviderFailed, match="100 MiB are available") as failure:
                await pieces_of(refused.provider(None), SHORT)
            assert (failure.value.code, refused.member.state) == ("model_memory", "failed")
            assert refused.member.process is None
            assert "Paris" in text_of(await pieces_of(allowed.provider(None), SHORT))
        finally:
            await refused.close()
            await allowed.close()


@only_at_night
async def test_a_file_that_llama_cannot_load_fails_with_its_log(tmp_path: Path) -> None:
    row = checked_row(written(tmp_path / "tiny.gguf"), ServingOptions(), "test", tmp_path / "work")
    assert header_of(row).name == "Tiny"
    async with pool_of(tmp_path, Machine(), row) as pool:
        connection = connected(pool, row)
        try:
            with pytest.raises(ProviderFailed, match="does not stay up") as failure:
                await pieces_of(connection.provider(None), SHORT)
            assert failure.value.code == "model_down"
            assert connection.member.state == "failed"
        finally:
            await connection.close()


async def test_a_file_that_was_changed_or_removed_does_not_start(tmp_path: Path) -> None:
    row = checked_row(written(tmp_path / "tiny.gguf"), ServingOptions(), "test", tmp_path / "work")
    async with pool_of(tmp_path, Machine(), row) as pool:
        connection = connected(pool, row)
        unknown = ServedConnection(pool, served_spec(small(tmp_path, "never-added")), None, "lean")
        try:
            written(tmp_path / "tiny.gguf", b"another")
            with pytest.raises(ProviderFailed, match="has changed") as failure:
                await pieces_of(connection.provider(None), SHORT)
            assert failure.value.code == "model_missing"
            with pytest.raises(ProviderFailed, match="No model 'never-added' was added"):
                await pieces_of(unknown.provider(None), SHORT)
        finally:
            await connection.close()
            await unknown.close()

"""The log of a run that keeps none: its readers get every event, whenever they come, and it stays small."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from app.core.events import ReasoningDelta, RunStarted, TextDelta, Usage
from app.log.event_writer import EventWriter, Watcher
from app.log.unlisted_log import LOOSE, UnlistedLog, UnlistedWriter
from app.storage.sqlite.store import SQLiteStore
from tests.support.lanes.logs import STARTED, finished

pytestmark = pytest.mark.anyio

WORDS = [f"{number} " for number in range(5 * LOOSE)]


def failed() -> None:
    raise AssertionError("the store has refused")


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[tuple[UnlistedWriter, UnlistedLog]]:
    store = await SQLiteStore.open(folder / "log.db")
    try:
        async with asyncio.timeout(30), EventWriter(store) as journal:
            writer = UnlistedWriter(journal)
            yield writer, writer.open_log("run_1", failed)
    finally:
        await store.close()


async def text_behind(log: UnlistedLog, after: int) -> tuple[str, list[int]]:
    """The text that a reader gets, and the numbers that it can go on from."""
    text, numbers = "", list[int]()
    async with aclosing(log.pages(Watcher(after))) as pages:
        async for rows in pages:
            numbers += [row.seq for row in rows]
            text += "".join(json.loads(row.data)["text"] for row in rows if row.type == TextDelta.type)
    return text, numbers


async def test_a_reader_gets_the_rest_from_wherever_it_has_been(tmp_path: Path) -> None:
    async with opened(tmp_path) as (writer, log):
        log.add(STARTED)
        await writer.flush()
        for word in WORDS:
            log.add(TextDelta(word))
            log.publish_pending()
        log.add(finished())
        await writer.flush()
        for after in range(1, log.last_seq, 7):
            text, numbers = await text_behind(log, after)
            assert (text, numbers[-1]) == ("".join(WORDS[after - 1 :]), log.last_seq)
            assert sorted(set(numbers)) == numbers and numbers[0] > after


async def test_old_rows_are_joined(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, log):
        for word in WORDS:
            log.add(TextDelta(word))
            log.publish_pending()
        assert len(log._kept) < LOOSE + len(WORDS) / LOOSE * 2 + 1


async def test_readers_who_wait_get_each_event_as_it_comes(tmp_path: Path) -> None:
    async with (
        opened(tmp_path) as (writer, log),
        aclosing(log.pages(Watcher(0))) as first,
        aclosing(log.pages(Watcher(0))) as second,
    ):
        for event in (STARTED, ReasoningDelta("Hm."), TextDelta("\ud83d"), TextDelta('"\\'), finished()):
            waiting = asyncio.gather(anext(first), anext(second))
            await asyncio.sleep(0)
            log.add(event)
            seen = await waiting
            assert seen[0] == seen[1]
            assert [row.type for row in seen[0]] == [event.type]
        await writer.flush()
        assert [rows async for rows in first] == []


async def test_events_that_come_together_leave_together(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, log), aclosing(log.pages(Watcher(0))) as pages:
        for event in (STARTED, TextDelta("a"), TextDelta("b")):
            log.add(event)
        assert [(row.seq, row.type) for row in await anext(pages)] == [(1, RunStarted.type), (2, TextDelta.type)]


async def test_a_log_whose_server_stops_ends_its_readers(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, log), aclosing(log.pages(Watcher(0))) as pages:
        log.add(Usage(1, 1, 1, 1, measured=True))
        assert len(await anext(pages)) == 1
        waiting = asyncio.ensure_future(anext(pages, None))
        await asyncio.sleep(0)
        log.leave()
        assert await waiting is None

"""A follow-up reads the rows behind the history that is known, and never anything stale."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch

from app.core.messages import Message, dump
from app.redaction.redactor import Redactor
from app.storage.runs import RunRow
from app.storage.sessions import MessageRow, SessionRow, SessionState
from app.storage.sql.sessions import MESSAGES
from app.storage.sqlite.store import SQLiteStore
from app.transcript import recent_histories
from app.transcript.recent_histories import RecentHistories

pytestmark = pytest.mark.anyio

FIRST = [Message("user", "Is hunter2-hunter2 safe?"), Message("assistant", "No.")]
MORE = [Message("user", "Why?"), Message("assistant", "It is short.")]


class Stored:
    """A store of sessions that counts the messages it reads."""

    def __init__(self, **sessions: Sequence[Message]) -> None:
        self.sessions = dict(sessions)
        self.read = 0

    async def session_state(self, session: str, begin: int = 0) -> SessionState:
        messages = [*self.sessions.get(session, ())][begin:]
        self.read += len(messages)
        return SessionState(messages, characters=sum(len(one.text) for one in messages[min(begin, 1) :]))


async def read(histories: RecentHistories, store: Any, session: str = "s") -> tuple[list[Message], int]:
    before = store.read
    messages = (await histories.state(session)).messages
    return messages, store.read - before


async def test_only_what_is_new_is_read() -> None:
    store = Stored(s=FIRST)
    histories = RecentHistories(store, Redactor())  # type: ignore[arg-type]
    assert await read(histories, store) == (FIRST, 2)
    store.sessions["s"] = FIRST + MORE  # by this server or by another
    assert await read(histories, store) == (FIRST + MORE, 3)
    assert await read(histories, store) == (FIRST + MORE, 1)


async def test_a_run_appends_to_a_list_of_its_own() -> None:
    store = Stored(s=FIRST)
    histories = RecentHistories(store, Redactor())  # type: ignore[arg-type]
    for _ in range(3):
        messages, _ = await read(histories, store)
        assert messages == FIRST
        messages.append(Message("user", "This is not stored."))


@pytest.mark.parametrize(
    "now", [[], FIRST[:1], [FIRST[0], Message("assistant", "Yes.")]], ids=["deleted", "shorter", "another"]
)
async def test_a_history_that_was_not_continued_is_read_anew(now: list[Message]) -> None:
    store = Stored(s=FIRST)
    histories = RecentHistories(store, Redactor())  # type: ignore[arg-type]
    await read(histories, store)
    store.sessions["s"] = now
    assert (await read(histories, store))[0] == now


async def test_a_secret_that_came_later_is_hidden_in_what_was_known() -> None:
    store, redactor = Stored(s=FIRST), Redactor()
    histories = RecentHistories(store, redactor)  # type: ignore[arg-type]
    await read(histories, store)
    redactor.add("hunter2-hunter2")
    messages, _ = await read(histories, store)
    assert messages[0].text == "Is [redacted] safe?"
    assert (await read(histories, store))[0] == messages


async def test_a_deleted_session_is_forgotten() -> None:
    store = Stored(s=FIRST)
    histories = RecentHistories(store, Redactor())  # type: ignore[arg-type]
    await read(histories, store)
    histories.forget("s")
    histories.forget("other")
    assert not histories._known and not histories._characters


async def test_the_histories_used_last_are_kept_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(len(one.text) for one in FIRST)
    monkeypatch.setattr(recent_histories, "MOST_CHARACTERS", 2 * size)
    store = Stored(a=FIRST, b=FIRST, c=FIRST, d=FIRST * 3)
    histories = RecentHistories(store, Redactor())  # type: ignore[arg-type]
    counts = [(await read(histories, store, name))[1] for name in "abacabdd"]
    assert counts == [2, 2, 1, 2, 1, 2, 6, 6], "b went for c, and c for b; d is too long"


async def test_others_have_turns_while_a_long_history_is_read(tmp_path: Path) -> None:
    """How many is a matter of the machine's speed: one in the 60 ms that the fastest would need."""
    store = await SQLiteStore.open(tmp_path / "test.db")
    redactor, turns = Redactor(), list[int]()
    rows = [MessageRow("s", at, "r", dump(Message("assistant", "word " * 400))) for at in range(8_000)]
    await store.write([SessionRow("s", "local", 1.0, "title"), RunRow("r", "s", "local", "m", "answered", 1.0), *rows])
    read = await store._each((MESSAGES, ("s", 0)))

    async def at_once(*_: object) -> Any:
        return [*read, [], [], [], []]

    async def count() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    with MonkeyPatch.context() as patch:
        patch.setattr(store, "_each", at_once)
        task = asyncio.create_task(count())
        assert len((await RecentHistories(store, redactor).state("s")).messages) == 8_000
        task.cancel()
    assert len(turns) >= 2
    await store.close()


async def test_a_secret_that_comes_while_a_history_is_redacted_is_hidden_in_all_of_it() -> None:
    store, redactor = Stored(s=FIRST * 200), Redactor()
    histories = RecentHistories(store, redactor)  # type: ignore[arg-type]
    redact, left = redactor.redact_value, [100]

    def count(message: Message) -> Message:
        left[0] -= 1
        if left[0] == 0:
            redactor.add("hunter2-hunter2")
        return redact(message)

    redactor.redact_value = count  # type: ignore[method-assign, assignment]
    messages = (await histories.state("s")).messages
    assert {one.text for one in messages} == {"Is [redacted] safe?", "No."}


async def test_a_database_reads_the_rows_from_a_position_on(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "test.db")
    histories = RecentHistories(store, Redactor())
    session = SessionRow("s", "local", 1.0, "title"), RunRow("r", "s", "local", "m", "answered", 1.0)
    rows = [MessageRow("s", at, "r", dump(one)) for at, one in enumerate(FIRST + MORE)]
    await store.write([*session, *rows[:2]])
    assert (await histories.state("s")).messages == FIRST
    await store.write(rows[2:])
    behind = await store.session_state("s", 1)
    assert behind.messages == [FIRST[1], *MORE]
    assert behind.characters == sum(len(row.message) for row in rows[2:])
    assert (await histories.state("s")).messages == FIRST + MORE
    await store.close()

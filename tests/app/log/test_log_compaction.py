"""Growth: an ended run's log in fewer rows says the same to every reader, wherever it left off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import AgentEvent, ReasoningDelta, RunFinished, TextDelta, ToolDelta, ToolProgress, encode
from app.log.log_compaction import joined_rows, rest_after
from app.models.scripted import Scripted
from app.runs.housekeeping import Housekeeping
from app.storage.library.shares import ShareRow
from app.storage.people.sign_ins import SignInRow
from app.storage.runs import EventRow, RunRow
from app.storage.sessions import SessionRow
from tests.support.server.serving import serving

HALVES = "\ud83d\ude00"  # of one character; a model may write them in two deltas
words = st.text(st.one_of(st.characters(), st.sampled_from(HALVES)), max_size=5)
deltas = st.one_of(
    st.builds(TextDelta, words),
    st.builds(ReasoningDelta, words),
    st.builds(ToolDelta, st.sampled_from(["c1", "c2"]), words, st.sampled_from([None, None, None, "bash"])),
    st.builds(ToolProgress, st.just("c1"), st.just(1.0), st.just(["x"]), st.just(1), st.just(1)),
)


def rows_of(events: list[AgentEvent]) -> list[EventRow]:
    return [EventRow("r", seq, event.type, encode(event)) for seq, event in enumerate(events, start=1)]


def told(rows: list[EventRow]) -> list[tuple[str, Any, str]]:
    """What a reader has in the end: the text of each kind of delta, in order."""
    heard: list[tuple[str, Any, str]] = []
    for row in rows:
        fields = json.loads(row.data)
        if row.type == ToolProgress.type:
            continue  # only its last one matters
        key = (row.type, fields.get("call"))
        if heard and heard[-1][:2] == key and row.type != RunFinished.type:
            heard[-1] = (*key, heard[-1][2] + fields["text"])
        elif fields["text"] or row.type == RunFinished.type:
            heard.append((*key, fields["text"]))
    return heard


@given(st.lists(deltas, max_size=40), st.integers(0, 41))
def test_a_reader_with_an_old_cursor_gets_the_rest_of_the_text(events: list[AgentEvent], cursor: int) -> None:
    whole = rows_of([*events, RunFinished("answered", "", 1, 0, {})])
    fewer = joined_rows(whole)
    assert len(fewer) <= len(whole)
    assert [row.seq for row in fewer] == sorted({row.seq for row in fewer})
    assert (fewer[-1].seq, fewer[-1].type) == (whole[-1].seq, whole[-1].type)
    later = [rest_after(row, cursor) for row in fewer if row.seq > cursor]
    assert told(later) == told([row for row in whole if row.seq > cursor])
    assert joined_rows(fewer) == fewer


def test_a_character_in_two_deltas_is_not_counted_as_two() -> None:
    whole = rows_of([TextDelta(HALVES[0]), TextDelta(f"{HALVES[1]}x"), TextDelta("y")])
    later = [rest_after(row, 2) for row in joined_rows(whole) if row.seq > 2]
    assert [json.loads(row.data)["text"] for row in later] == ["y"]


@pytest.mark.usefixtures("database")
@pytest.mark.anyio
async def test_a_log_that_was_deleted_while_it_was_joined_stays_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["One."])) as served:
        store = served.services.store
        events = await served.chat()
        rows = await store.events(events[0]["run"], 0, 100)
        await store.delete_session(events[0]["session"])
        await store.replace_events(events[0]["run"], joined_rows(rows))
        assert (await store.sizes())["events"] == 0
        assert joined_rows(await store.events(events[0]["run"], 0, 100)) == []


@pytest.mark.usefixtures("database")
@pytest.mark.anyio
async def test_the_log_of_an_ended_run_is_joined_and_still_resumes(tmp_path: Path) -> None:
    words = [f"{number} " for number in range(300)]
    rows = rows_of([*map(TextDelta, words), RunFinished("answered", "", 1, 0, {})])
    async with serving(tmp_path, Scripted([])) as served:
        store, run = served.services.store, "r"
        ended = RunRow(run, "ses_1", "local", "scripted", "answered", 1.0, 2.0)
        await store.write([SessionRow("ses_1", "local", 1.0, "t"), ended, *rows])
        before = await served.events(run)
        await Housekeeping(store, join_after_s=0, keep_days=0).tidy(now=9e12)
        after = await served.events(run)
        assert (len(before), len(after)) == (301, 2)
        assert "".join(event.get("text", "") for event in after[:-1]) == "".join(words)
        middle = before[len(before) // 2]["seq"]
        rest = await served.events(run, middle)
        seen = "".join(event.get("text", "") for event in before[: len(before) // 2 + 1])
        assert seen + "".join(event.get("text", "") for event in rest[:-1]) == "".join(words)
        assert (await served.client.get(f"/runs/{run}")).json()["state"] == "answered"


@pytest.mark.usefixtures("database")
@pytest.mark.anyio
async def test_old_sessions_are_forgotten_when_the_settings_say_so(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["One.", "Two."])) as served:
        old = (await served.chat())[0]["session"]
        store, runs = served.services.store, served.services.runs
        row = await store.session(old)
        assert row
        await Housekeeping(store, join_after_s=600, keep_days=0).tidy(now=row.created + 1e9)
        assert await store.session(old)
        await Housekeeping(store, join_after_s=600, keep_days=2).tidy(now=row.created + 86_400)
        assert await store.session(old)
        await Housekeeping(store, join_after_s=600, keep_days=2).tidy(now=row.created + 3 * 86_400)
        assert await store.session(old) is None
        sizes = await store.sizes()
        assert (sizes["runs"], sizes["events"], sizes["messages"]) == (0, 0, 0)
        assert not runs._live


@pytest.mark.usefixtures("database")
@pytest.mark.anyio
async def test_expired_sign_ins_and_links_are_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        store = served.services.store
        await store.write([SessionRow("ses_1", "ann", 1.0, "t")])
        for number, expires in enumerate((99.0, 101.0)):
            link = ShareRow(f"shr_{number}", f"h{number}", "ses_1", "ann", 1.0, 1.0, expires, "t", "{}", "{}")
            await store.write([SignInRow(f"sgn_{number}", "s", "t", "ann", "", 1.0, 1.0, expires), link])
        await Housekeeping(store, join_after_s=0, keep_days=0).tidy(now=100.0)
        assert [row.id for row in await store.sign_ins()] == ["sgn_1"]
        assert [row.id for row in await store.shares(None, 9)] == ["shr_1"]

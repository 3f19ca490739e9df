"""What a model is told of a result, and what it reads of the rest: nothing is lost, nothing secret is in it."""

from __future__ import annotations

import re
import string
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.messages import AskedCall, Message
from app.redaction.redactor import MARK, Redactor
from app.runs.tool_results import MOST_KEPT, Results
from app.storage.changes import Change
from app.storage.sessions import ResultPart, ResultRow
from app.storage.sqlite.store import SQLiteStore
from app.transcript.conversation import Conversation
from tools.base.outcome import Result, ToolFailed
from tools.builtin.read_result import read_result
from tools.tool import Context

pytestmark = pytest.mark.anyio

CALL = AskedCall("c1234abcd", "bash", {}, "native")
SECRET = "sesame-open-4711-please"
GAP = re.compile(r"\n\[\.\.\. ([\d,]+) characters left out \.\.\.\]\n")
TEXTS = st.text(string.ascii_letters + " \n", max_size=4_000)


class Told:
    """A conversation with one long result, and all that was kept of it."""

    def __init__(self, text: str, told: int = 500, *, untrusted: bool = False) -> None:
        self.rows: list[ResultRow] = []
        self.results = Results(told, self._read)
        self.redactor = Redactor()
        self.conversation = Conversation("s", [], lambda *_: None, self._record, self._stored, redactor=self.redactor)
        self.shown, self.advice = self.results.shown(text, CALL, readable=True)
        self.results.keep(text, "r", CALL, self.conversation)
        self.conversation.append(Message("tool", self.shown, call=CALL.id, name="bash", untrusted=untrusted))

    def _record(self, change: Change) -> None:
        assert isinstance(change, ResultRow)
        self.rows.append(change)

    async def _stored(self) -> None: ...

    async def _read(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        found = [row for row in self.rows if (row.session, row.call) == (session, call)]
        return ResultPart("bash", found[0].text[offset : offset + size], len(found[0].text)) if found else None

    async def page(self, **arguments: Any) -> Result:
        context = Context(Path(), result=self.results.of(self.conversation), result_characters=self.results.characters)
        async with aclosing(read_result({"call": CALL.id} | arguments, context)) as news:
            async for seen in news:
                assert isinstance(seen, Result)
                return seen
        raise AssertionError("no result")

    async def whole(self, **arguments: Any) -> str:
        """All pages, as their notes lead from one to the next."""
        offset: int | None = 0
        read = ""
        while offset is not None:
            page = await self.page(offset=offset, **arguments)
            assert len(page.text) <= self.results.characters, "it is never cut itself"
            text, _, note = page.text.rpartition("\n")
            read += text
            following = re.search(r"Next: offset=(\d+)", note)
            assert following or "This is the end" in note
            offset = int(following[1]) if following else None
        return read


@given(st.integers(0, 4_000), st.integers(500, 2_000), st.booleans())
def test_head_and_tail_and_how_much_is_missing(length: int, most: int, readable: bool) -> None:
    text = "".join(chr(0x100 + at) for at in range(length))
    shown, _ = Results(most).shown(text, CALL, readable=readable)
    assert len(shown) <= most
    if length <= most:
        assert shown == text
        return
    gap = GAP.search(shown)
    assert gap
    head, tail = shown[: gap.start()], shown[gap.end() :].partition("\n[")[0]
    assert text.startswith(head) and text.endswith(tail) and len(head) == len(tail)
    assert int(gap[1].replace(",", "")) == length - len(head) - len(tail)
    assert (f'read_result(call="{CALL.id}", offset={len(head)})' in shown) is readable


@pytest.mark.parametrize("size", [{}, {"size": 7}, {"size": 100}, {"size": 10**6}], ids=str)
async def test_the_pages_together_are_the_whole(size: dict[str, int]) -> None:
    text = "".join(f"{number}\n" for number in range(300))
    assert await Told(text).whole(**size) == text


async def test_what_was_told_whole_can_be_read_as_well() -> None:
    """Its message may have been shortened since, to make room."""
    told = Told("short")
    assert not told.rows and await told.whole() == "short"


async def test_what_is_kept_is_bounded() -> None:
    told = Told("a" * MOST_KEPT + "b" * MOST_KEPT)
    [row] = told.rows
    assert len(row.text) < MOST_KEPT + 100
    gap = GAP.search(row.text)
    assert gap and row.text[: gap.start()] == "a" * (MOST_KEPT // 2) and row.text[gap.end() :] == "b" * (MOST_KEPT // 2)


@pytest.mark.parametrize("untrusted", [True, False])
async def test_strangers_words_stay_strangers(untrusted: bool) -> None:
    assert (await Told("x" * 900, untrusted=untrusted).page()).untrusted is untrusted


@pytest.mark.parametrize("at", range(330, 420, 6))
async def test_a_secret_that_is_learned_later_does_not_come_in_two_pages(at: int) -> None:
    told = Told("x" * at + SECRET + "y" * 900)
    told.redactor.add(SECRET)
    assert await told.whole() == "x" * at + MARK + "y" * 900


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"call": "c9"}, "no result of a call 'c9'"),
        ({"call": "x" * 500}, "no result of a call"),
        ({"offset": 900}, "has 900 characters: give an offset below"),
        ({"offset": 10**30}, "has 900 characters"),
    ],
)
async def test_what_cannot_be_read_is_said(arguments: dict[str, Any], says: str) -> None:
    told = Told("x" * 900)
    with pytest.raises(ToolFailed, match=says) as failed:
        await told.page(**arguments)
    assert len(str(failed.value)) < 300


async def test_another_conversation_s_results_are_not_there() -> None:
    told = Told("x" * 900)
    told.conversation.session = "other"
    told.rows.append(replace(told.rows[0], session="other", call="c77"))
    assert "x" * 100 in (await told.page()).text, "its own message is all that is left to read"
    with pytest.raises(ToolFailed):
        await told.page(call="c77")


async def test_a_result_that_no_database_would_take_is_kept_whole(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "test.db")
    try:
        told = Told("a\0b \ud83d\ude00 \ud83d " * 1_000)
        await store.write(told.rows)
        kept = await store.result("s", CALL.id, 0, MOST_KEPT)
    finally:
        await store.close()
    whole = "a\ufffdb \U0001f600 \ufffd " * 1_000
    assert kept == ResultPart("bash", whole, len(whole))

"""Long code blocks become documents: their text exactly once, the same however the stream is sliced, never a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.deltas import MAX_JOINED
from app.core.events import Delta, DocumentUpdated, Encoded, RunFinished, TextDelta, encode
from app.core.provider import Finished, Piece, TextChunk
from app.log.documents import LONG, MAX_FENCE_LINE, MAX_HELD, Documents
from app.log.event_writer import EventWriter, RunLog
from app.log.log_compaction import joined_rows, rest_after
from app.models.scripted import Scripted
from app.redaction.redactor import MARK, Redactor
from app.storage.runs import EventRow
from app.storage.sqlite.store import SQLiteStore
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

FINISHED = Encoded(RunFinished.type, "{}")
KEY = "sk-9f8e7d6c5b4a-secret"
Document = tuple[str, str | None, str]  # id, language, text


def lines_of(number: int, indent: str = "") -> str:
    return "".join(f"{indent}line {at}\n" for at in range(number))


def updates(pieces: Sequence[str]) -> list[DocumentUpdated]:
    ids = count(1)
    documents = Documents(lambda: f"d{next(ids)}")
    told = documents.with_documents([*map(TextDelta, pieces), FINISHED])
    return [event for event in told if isinstance(event, DocumentUpdated)]


def joined(events: Sequence[DocumentUpdated]) -> list[Document]:
    """The documents that a reader has in the end; each must have begun once and ended once."""
    whole: dict[str, tuple[str | None, str, bool]] = {}
    for event in events:
        language, text, done = whole.get(event.document, (event.language, "", False))
        assert not done
        assert event.language is None or not text
        whole[event.document] = language, text + event.text, bool(event.done)
    assert all(done for _, _, done in whole.values())
    return [(name, language, text) for name, (language, text, _) in whole.items()]


def documents(text: str) -> list[Document]:
    return joined(updates([text]))


def sliced(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


BLOCK = lines_of(LONG + 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Look:\n```python\n{BLOCK}```\nDone.", [("d1", "python", BLOCK)]),
        (f"```\n{lines_of(LONG)}```\n", []),
        (f"```\n{lines_of(LONG)}\n```\n", [("d1", None, lines_of(LONG) + "\n")]),
        (f"~~~ rust ignored\n{BLOCK}```\n~~~~\n", [("d1", "rust", BLOCK + "```\n")]),
        (f"````md\n```\n{BLOCK}```\n````\n", [("d1", "md", f"```\n{BLOCK}```\n")]),
        (f"```a\n{BLOCK}```\n```b\nshort\n```\n```c\n{BLOCK}```", [("d1", "a", BLOCK), ("d2", "c", BLOCK)]),
        (f"1. So:\n   ```sh\n{lines_of(31, '   ')}   ```\n", [("d1", "sh", BLOCK)]),
        (f"- ```sh\n{lines_of(31, '  ')}  ```\n", [("d1", "sh", BLOCK)]),
        (f"```js\r\n{BLOCK}```\r\nMore.\n", [("d1", "js", BLOCK)]),
        (f'```py\n"""\n    ```\n    {BLOCK}```\n', [("d1", "py", f'"""\n    ```\n    {BLOCK}')]),
        (f"```py\n{BLOCK}", [("d1", "py", BLOCK)]),
        (f"```py\n{BLOCK}``", [("d1", "py", BLOCK + "``")]),
        (f"```py\n{BLOCK}x = 1", [("d1", "py", BLOCK + "x = 1")]),
        (f"```py {'x' * MAX_FENCE_LINE}\n{BLOCK}", []),
        (f"Not ```py\n{BLOCK}```", []),
        (f"`` `\n{BLOCK}```", []),
        (f"```not`code\n{BLOCK}", []),
        (f"```\n{'x' * (MAX_HELD + 1)}\n{BLOCK}```\n```\n{BLOCK}```", [("d1", None, BLOCK)]),
    ],
)
def test_what_becomes_a_document(text: str, expected: list[Document]) -> None:
    assert documents(text) == expected
    if len(text) < MAX_HELD:
        assert joined(updates(list(text))) == expected


FENCES = ("```", "~~~", "````", "```py", "~~~~ a b", "  ```", "    ```", "\t```", "- ```", "12. ~~~sh", "``", "> ```")
LINES = st.one_of(st.sampled_from(FENCES), st.just("x"), st.text(" \t`~-1.x\r", max_size=6))


def texts() -> st.SearchStrategy[str]:
    some = st.one_of(LINES.map(lambda line: line + "\n"), st.integers(LONG - 2, LONG + 2).map(lines_of))
    return st.builds(lambda rows, last: "".join(rows) + last, st.lists(some, max_size=12), LINES)


@settings(max_examples=300, deadline=None)
@given(texts(), st.lists(st.integers(0, 10_000), max_size=20))
def test_no_slicing_changes_a_document(text: str, cuts: list[int]) -> None:
    expected = documents(text)
    assert joined(updates(sliced(text, cuts))) == expected
    assert joined(updates(list(text))) == expected
    for _, _, body in expected:
        assert body.count("\n") >= LONG


@settings(deadline=None)
@given(texts(), st.lists(st.integers(0, 10_000), max_size=20))
def test_the_text_goes_on_as_it_was(text: str, cuts: list[int]) -> None:
    pieces = [TextDelta(piece) for piece in sliced(text, cuts)]
    told = [
        event for event in Documents().with_documents([*pieces, FINISHED]) if not isinstance(event, DocumentUpdated)
    ]
    assert told == [*pieces, FINISHED]


def test_the_first_lines_come_together_and_then_only_what_is_new() -> None:
    before, after = f"```py\n{lines_of(LONG)}", "one\ntwo\n```\n"
    events = updates([*before, *after])
    assert events[0] == DocumentUpdated("d1", f"{lines_of(LONG)}o", "py")
    assert [event.text for event in events[1:]] == [*"ne\n", *"two\n", ""]
    assert [event.done for event in events] == [None] * (len(events) - 1) + [True]


@pytest.mark.parametrize("size", [1, 7, 4096, 10**9])
def test_documents_cost_their_text_once(size: int) -> None:
    block = "".join(f"{at:060}\n" for at in range(2000))
    text = f"```\n{block}```\n"
    events = updates([text[at : at + size] for at in range(0, len(text), size)])
    assert sum(len(event.text) for event in events) == len(block)
    assert max(len(event.text) for event in events) <= MAX_JOINED


def test_a_reply_that_ends_ends_its_documents() -> None:
    ids = count(1)
    documents = Documents(lambda: f"d{next(ids)}")
    first = list(documents.with_documents([TextDelta(f"```\n{BLOCK}"), Encoded("usage", "{}")]))
    assert first[-2:] == [DocumentUpdated("d1", "", None, True, "line 0"), Encoded("usage", "{}")]
    second = list(documents.with_documents([Encoded("round.started", "{}"), TextDelta("more\n```\n"), FINISHED]))
    assert not any(isinstance(event, DocumentUpdated) for event in second)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2000), max_size=40), st.integers(0, len(BLOCK) - 1))
async def test_no_secret_gets_into_a_document(cuts: list[int], where: int) -> None:
    text = f"```\n{BLOCK[:where]}{KEY}{BLOCK[where:]}```\n"
    journal = EventWriter(SQLiteStore(Path("never-opened")), Redactor([KEY]), documents=True)
    log = RunLog("r", journal, lambda: None)
    rows: list[EventRow] = []
    for piece in sliced(text, cuts):
        log.add(TextDelta(piece))
        rows += taken(log)
    log.add(RunFinished("answered", "", 1, 0, {}))
    rows += taken(log)
    fields = [json.loads(row.data) for row in rows]
    said = "".join(one["text"] for one in fields if one["type"] == "text.delta")
    document = "".join(one["text"] for one in fields if one["type"] == "document.updated")
    assert said == text.replace(KEY, MARK)
    assert document == said.removeprefix("```\n").removesuffix("```\n")


def taken(log: RunLog) -> list[EventRow]:
    """What the journal's writer would write now."""
    rows = log.take_events()
    log.publish(rows)
    return rows


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2000), max_size=40), st.integers(0, 90))
def test_a_log_in_fewer_rows_has_the_same_documents(cuts: list[int], cursor: int) -> None:
    text = f"Look:\n```py\n{BLOCK}```\nDone."
    events: list[Delta | Encoded | DocumentUpdated] = list(
        Documents(lambda: "d1").with_documents([*map(TextDelta, sliced(text, cuts)), FINISHED])
    )
    rows = [
        EventRow("r", seq, event.type, event.data if isinstance(event, Encoded) else encode(event))
        for seq, event in enumerate(events, start=1)
    ]
    later = [rest_after(row, cursor) for row in joined_rows(rows) if row.seq > cursor]
    whole = [row for row in rows if row.seq > cursor]
    assert list(of_kind("document.updated", later)) == list(of_kind("document.updated", whole))
    assert words("text.delta", later) == words("text.delta", whole)


def of_kind(kind: str, rows: Sequence[EventRow]) -> Iterator[dict[str, Any]]:
    return (json.loads(row.data) for row in rows if row.type == kind)


def words(kind: str, rows: Sequence[EventRow]) -> str:
    return "".join(fields["text"] for fields in of_kind(kind, rows))


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_server_tells_documents_if_it_is_asked_to(tmp_path: Path, database: str, *, wanted: bool) -> None:
    text = f"Here:\n```py\n{BLOCK}```\nDone."
    script: list[Piece] = [*(TextChunk(text[at : at + 40]) for at in range(0, len(text), 40)), Finished("stop")]
    async with serving(tmp_path, Scripted([script]), documents=wanted) as served:
        events = await served.chat("Write it.")
        kept = (await served.client.get(f"/sessions/{events[0]['session']}/documents")).json()["documents"]
        stored = (await served.client.get(f"/documents/{kept[0]['id']}")).json() if kept else {}
    assert bool(kept) is wanted
    told = [event for event in events if event["type"] == "document.updated"]
    assert "".join(event["text"] for event in events if event["type"] == "text.delta") == text
    assert "".join(event["text"] for event in told) == (BLOCK if wanted else "")
    if wanted:
        assert told[-1]["title"] == "line 0"
        [(session, document)] = [(one["session"], one["id"]) for one in kept]
        assert (session, document) == (events[0]["session"], told[0]["document"])
        assert (stored["text"], stored["kind"], stored["author"], stored["version"]) == (BLOCK, "py", "model", 1)
        assert {event["document"] for event in told} == {told[0]["document"]}
        assert (told[0]["language"], told[-1]["done"]) == ("py", True)

"""The text of a document while a model writes the call: decoded once, whatever the slicing, and never cumulative."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.deltas import joined
from app.core.document_events import DocumentDelta, DocumentFinished, DocumentStarted
from app.core.events import AgentEvent, Delta, RunFailed, ToolDelta, ToolFinished, ToolRejected, encode
from app.core.provider import TextChunk
from app.log.documents import OpenDrafts
from app.log.log_compaction import joined_rows, rest_after
from app.redaction.events import RedactedEvents
from app.redaction.redactor import Redactor
from app.storage.runs import EventRow
from app.transcript.document_drafts import DocumentDrafts, document_id
from app.transcript.reply import Reply
from parsing import CallDelta, CallOpened
from tests.support.parsing.forms import WRITERS
from tools.catalogue import TOOLS

RUN, CALL, SECRET = "run_1", "c1", "s3cret-w0rd-of-ours"
DOCUMENT = document_id(RUN, CALL)
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}
TEXT = 'He said "hi" \\ é 😀\n\ttab {"content": "x"}\n</x>'
PROSE = '# Head\n\nHe said "hi" & left.\n\n- one\n- two < 3\n'
# Form -> the arguments as a model writes them.
FORMS = {
    "native": json.dumps({"title": "A", "content": TEXT, "kind": "markdown"}),
    "not escaped": json.dumps({"content": TEXT, "title": "A"}, ensure_ascii=False),
    "wrapped": json.dumps({"name": "create_document", "arguments": {"tags": [{"content": "no"}], "content": TEXT}}),
    "tags": f"<parameter=title>\nA\n</parameter>\n<parameter=content>\n{TEXT}\n</parameter>\n",
    "keys": f"<arg_key>title</arg_key><arg_value>A</arg_value><arg_key>content</arg_key><arg_value>{TEXT}</arg_value>",
}


def sliced(text: str, cuts: Iterable[int]) -> Iterator[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return (text[begin:end] for begin, end in pairwise(places))


def streamed(pieces: Iterable[str], drafts: DocumentDrafts) -> list[AgentEvent]:
    drafts.open(CALL, "content")
    return [event for piece in pieces for event in drafts.feed(CALL, piece)]


def text_in(events: Sequence[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, DocumentDelta))


@pytest.mark.parametrize("form", FORMS)
def test_any_slicing_gives_the_same_text_once(form: str) -> None:
    written = FORMS[form]
    slicings = [[cut] for cut in range(len(written))] + [list(range(len(written)))]
    for cuts in slicings:
        drafts = DocumentDrafts(RUN)
        events = streamed(sliced(written, cuts), drafts)
        assert text_in(events) == TEXT, cuts
        assert next(event for event in events if isinstance(event, DocumentStarted)).document == DOCUMENT
        assert not list(drafts.finish(CALL, "A", "markdown", TEXT, str)), "nothing is sent again"
        rest = "".join(event.text for event in events if isinstance(event, ToolDelta))
        assert "He said" not in rest, "nor beside it"


@given(st.text(max_size=60), st.lists(st.integers(0, 400), max_size=8), st.booleans())
def test_any_text_is_stored_as_it_was_streamed(text: str, cuts: list[int], escaped: bool) -> None:
    text = text.encode("utf-8", "replace").decode()
    drafts, log = DocumentDrafts(RUN), RedactedEvents(Redactor([SECRET]))
    written = json.dumps({"title": "A", "content": f"{text} {SECRET}. {text}"}, ensure_ascii=escaped)
    redact = Redactor([SECRET]).redact
    stored = redact(f"{text} {SECRET}. {text}")
    events = streamed(sliced(written, cuts), drafts)
    events += drafts.finish(CALL, "A", "plain", stored, redact)
    shown: list[Delta] = [one for event in events for one in log.add(event) if isinstance(one, Delta)]
    assert text_in(shown) == stored
    assert text_in(joined(shown)) == stored


@pytest.mark.parametrize("form", ["native", "tags", "other call"])
def test_a_text_that_ends_within_a_secret_is_stored_as_it_was_streamed(form: str) -> None:
    redact = Redactor([SECRET]).redact
    for end, cut in product(range(len(SECRET) + 1), range(12)):
        text = f"key {SECRET[:end]}"
        written = json.dumps({"content": text}) if form != "tags" else f"<parameter=content>\n{text}\n</parameter>\n"
        drafts, log = DocumentDrafts(RUN), RedactedEvents(Redactor([SECRET]))
        events = streamed(sliced(written, [-cut, 6]), drafts)
        if form == "other call":
            events += [ToolDelta("c2", SECRET)]
        events += [
            *drafts.finish(CALL, "A", "plain", redact(text), redact),
            ToolFinished(CALL, "x", ok=True, text="", duration_s=0.1),
        ]
        shown = [one for event in events for one in log.add(event)]
        assert text_in(shown) == redact(text), (end, cut)


def test_what_is_repaired_begins_anew() -> None:
    drafts = DocumentDrafts(RUN)
    streamed(['{"title": "A", "content": "one'], drafts)
    assert list(drafts.finish(CALL, "A", "plain", "one and two", str)) == [DocumentDelta(DOCUMENT, " and two")]
    streamed(['{"title": "A", "content": "one'], drafts)
    begun = DocumentStarted(DOCUMENT, CALL, "A", "plain")
    assert list(drafts.finish(CALL, "A", "plain", "two", str)) == [begun, DocumentDelta(DOCUMENT, "two")]
    assert list(drafts.finish("c2", "A", "plain", "", str)) == [
        DocumentStarted(document_id(RUN, "c2"), "c2", "A", "plain")
    ]


@pytest.mark.parametrize(
    "end",
    [
        ToolRejected("No.", CALL),
        ToolFinished(CALL, "create_document", ok=False, text="It broke.", duration_s=0.1),
        RunFailed("internal", "It broke.", retryable=True),
    ],
)
def test_a_document_whose_call_comes_to_nothing_is_discarded(end: AgentEvent) -> None:
    drafts = OpenDrafts()
    begun = DocumentStarted(DOCUMENT, CALL)
    discarded = DocumentFinished(DOCUMENT, CALL, ok=False)
    assert [one for event in (begun, end, end) for one in drafts.completed(event)] == [begun, discarded, end, end]
    kept = DocumentFinished(DOCUMENT, CALL, ok=True, version=1)
    assert [one for event in (begun, kept, end) for one in drafts.completed(event)] == [begun, kept, end]


def test_every_dialect_sends_the_text_once() -> None:
    """Live where its form is JSON or tags, else whole once the call is made; never twice."""
    live, title = set[str](), {"title": "A", "kind": "markdown"}
    for dialect, write in WRITERS.items():
        drafts, ids = DocumentDrafts(RUN), (f"c{number}" for number in count())
        reply = Reply(SCHEMAS, fences=lambda: True, new_id=ids.__next__, drafts=drafts)
        written = write([("create_document", title | {"content": PROSE})])
        events = [event for at in range(0, len(written), 3) for event in reply.add(TextChunk(written[at : at + 3]))]
        reply.stopped = "stop"
        events += reply.end()
        [call] = [one for one in reply.calls if one.id not in reply.refused]
        text = call.arguments["content"]
        if text_in(events):
            live.add(dialect)
        events += drafts.finish(call.id, "A", "markdown", text, str)
        assert text_in(events) == text, dialect
        assert sum(isinstance(event, DocumentStarted) for event in events) == 1, dialect
    assert len(live) >= 70, sorted(WRITERS.keys() - live)


def test_the_rows_of_each_document_are_joined_once_its_run_is_over() -> None:
    texts = [("a", "x"), ("a", "y"), ("b", 'z "'), ("b", "é")]
    events = [DocumentDelta(document, text) for document, text in texts]
    rows = [EventRow(RUN, seq, one.type, encode(one)) for seq, one in enumerate(events, start=1)]
    first, second = joined_rows(rows)
    assert [json.loads(row.data)["text"] for row in (first, second)] == ["xy", 'z "é']
    assert json.loads(rest_after(first, 1).data) == {"type": "document.delta", "document": "a", "text": "y"}


@pytest.mark.parametrize("handed", [False, True])
def test_a_tool_of_the_client_with_this_name_is_not_taken_for_ours(handed: bool) -> None:
    reply = Reply(SCHEMAS, fences=bool, new_id=lambda: CALL, is_handed=lambda _: handed, drafts=DocumentDrafts(RUN))
    events = [*reply.add(CallOpened(0, "create_document")), *reply.add(CallDelta(0, FORMS["native"]))]
    assert text_in(events) == ("" if handed else TEXT)

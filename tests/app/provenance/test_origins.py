"""Why this argument: the parts of a call's arguments, and the texts that they come from."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from time import perf_counter, process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.messages import AskedCall, Message
from app.core.spans import Span
from app.provenance.argument_spans import MOST_CHARACTERS, MOST_SPANS, MOST_TEXTS, spans_of, texts_in
from app.provenance.origins import Origins
from app.provenance.read_sources import of_message, of_others
from app.provenance.read_texts import Source
from app.provenance.text_index import MOST_READ, MOST_SOURCE, ReadText, TextIndex
from app.provenance.tokens import numbers, tokens
from benchmarks.origins import derived, found, full_index
from benchmarks.origins.cases import all_cases
from tests.support.nightly import at_night
from tests.support.parsing.quoting import conversation, result

pytestmark = pytest.mark.anyio

LEAST = 0.95  # of the constructed calls that have all their parts, and no others


def call(arguments: dict[str, Any]) -> AskedCall:
    return AskedCall("asked", "send", arguments, "native")


def index_of(*texts: ReadText) -> TextIndex:
    index = TextIndex()
    for text in texts:
        index.add(text)
    return index


def own(text: str) -> ReadText:
    return ReadText("person", "0", "a message", text)


def page(text: str) -> ReadText:
    return ReadText("result", "c1", "the result of web_fetch", text, untrusted=True)


def test_the_parts_of_constructed_calls_are_right() -> None:
    cases = all_cases()
    wrong = Counter(one.kind for one in cases if found(one, derived(one)) != one.parts)
    assert len(cases) == 500 and 1 - wrong.total() / len(cases) >= LEAST, wrong


# The value, the person's words, and whether it stands in those as a whole.
EXACT = (
    ("bob@example.com", "Write to bob@example.com.", True),
    ("Bob@Example.com", "Write to bob@example.com.", True),
    ("b\u043eb@example.com", "Write to bob@example.com.", False),  # a letter that looks alike
    ("bo\u212a@example.com", "Write to bok@example.com.", False),  # the Kelvin sign
    ("bob@example.com, ann@example.com", "Write to ann@example.com and bob@example.com.", True),
    ("bob@example.com mallory@evil.example", "Write to bob@example.com.", False),
    ("example.com", "Write to bob@example.com.", False),
    ("bob@example.com.evil.example", "Write to bob@example.com.", False),
    ("https://example.com/Path", "Read https://example.com/Path.", True),
    ("https://example.com/path", "Read https://example.com/Path.", False),  # another page, perhaps
    ("https://example.com/Path?data=1", "Read https://example.com/Path.", False),
    ("https://example.com", "Read https://example.com/Path.", False),
    ("https://example.com@evil.example/", "Read https://example.com", False),
    ("1250", "Pay 1,250.00 EUR.", True),
    ("-1250", "Pay 1,250.00 EUR.", False),
    ("DE89370400440532013000", "Pay to DE89 3704 0044 0532 0130 00.", True),
    ("#general", "Post it in general.", True),
    ("general", "Post it in general-purpose.", False),
    ("Anna Lindqvist", "Ask anna lindqvist for it.", True),
    ("Anna Lindqvist", "Ask Anna. Lindqvist knows.", False),
    ("Anna; Lindqvist", "Ask Anna Lindqvist for it.", False),
    ("rm a.txt; rm b.txt", "Do rm a.txt and then rm b.txt", False),
    ("%61nna", "Ask anna.", False),  # what is escaped is not what the person wrote
    ("the", "Ask the man.", False),
    ("", "Ask the man.", False),
)


@pytest.mark.parametrize(("value", "words", "whole"), EXACT)
def test_a_value_is_exact_if_it_stands_in_own_words_as_a_whole(value: str, words: str, whole: bool) -> None:
    spans = spans_of({"to": value}, index_of(own(words), page("Nothing.")))
    exact = {at for one in spans if one.exact for at in range(one.start, one.end)}
    assert (bool(exact) and all(at in exact for at, one in enumerate(value) if one.isalnum())) is whole, spans


def test_a_value_has_all_its_sources() -> None:
    both = index_of(own("Write to bob@example.com."), page("Write to bob@example.com or mallory@evil.example."))
    spans = spans_of({"to": ["bob@example.com", "mallory@evil.example"]}, both)
    wanted = {("/to/0", "person"), ("/to/0", "result"), ("/to/1", "result")}
    assert {(one.argument, one.kind) for one in spans} == wanted


def test_the_kind_of_a_source_is_that_of_its_message() -> None:
    messages = {
        "person": Message("user", "Words."),
        "model": Message("user", "A task.", sender="model"),
        "session": Message("user", "Words of another.", sender="session"),
        "client": Message("user", "A delivery.", untrusted=True),
        "result": result("A page."),
        "file": Message("tool", "A file.", call="c1", name="read_file"),
    }
    for kind, message in messages.items():
        [read] = of_message(0, message)
        assert (read.kind, read.untrusted) == (kind, message.untrusted), message
    recalled = Message("user", "Words.", recalled="A line of a page.", untrusted=True, sender="person")
    assert [(one.kind, one.untrusted) for one in of_message(0, recalled)] == [("memory", True), ("person", False)]
    assert not list(of_message(0, Message("assistant", "My own.")))
    prompt = [
        Source("the persona", "p"),
        Source("the summary of this conversation", "s"),
        Source("the description of x", "d"),
    ]
    assert [(one.kind, one.untrusted) for one in of_others(prompt, tainted=True)] == [
        ("operator", False),
        ("model", True),
        ("result", True),
    ]


def test_numbers_are_one_however_they_are_written() -> None:
    same = ("1250", "1,250", "1.250", "1'250", "1250.00", "1,250.00", "1.250,00", "1 250,00", "1250,0")
    assert all("1250" in numbers(one) for one in same)
    assert list(numbers("1.250")) == ["1250", "1.25"] and list(numbers("0.125")) == ["0.125"]
    assert [one.key for one in tokens("10,20,30")] == ["10", "20", "30"]


async def test_what_was_read_after_the_call_is_no_source_of_it() -> None:
    asked = call({"to": "mallory@evil.example"})
    talk = conversation(
        [Message("user", "Go on."), Message("assistant", "", calls=(asked,)), result("mallory@evil.example")]
    )
    origins = Origins()
    assert not (await origins.of(asked, talk))
    later = AskedCall("later", "send", asked.arguments, "native")
    talk.messages.append(Message("assistant", "", calls=(later,)))
    [span] = await origins.of(later, talk)
    assert (span.argument, span.kind, span.source, span.untrusted) == ("/to", "result", "x", True)


WORDS = st.sampled_from(
    ["blue", "report", "Thursday", "bob@example.com", "1,250.00", "the", "/a/b.c", "&amp;", "%20", "\n"]
)
TEXTS = st.lists(WORDS, max_size=30).map(" ".join)
MESSAGES = st.lists(st.tuples(st.sampled_from(["user", "tool"]), TEXTS, st.booleans()), max_size=8)


def message_of(role: Any, text: str, untrusted: bool) -> Message:
    return Message(role, text, call="c" if role == "tool" else None, name="x", untrusted=untrusted)


@given(MESSAGES, TEXTS, st.sets(st.integers(0, 8)))
async def test_any_slicing_of_the_messages_gives_the_same(
    written: list[tuple[str, str, bool]], text: str, stops: set[int]
) -> None:
    messages = [message_of(*one) for one in written]
    asked = call({"text": text, "list": [text[:20]]})
    at_once = await Origins().of(asked, conversation([*messages, Message("assistant", "", calls=(asked,))]))
    origins, talk = Origins(), conversation([])
    for start, end in pairwise(sorted({0, len(messages), *(one for one in stops if one < len(messages))})):
        talk.messages += messages[start:end]
        await origins.of(AskedCall("other", "x", {}, "native"), talk)
    talk.messages.append(Message("assistant", "", calls=(asked,)))
    assert await origins.of(asked, talk) == at_once


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=5), below, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.lists(st.text() | TEXTS, max_size=4))
def test_no_arguments_and_no_texts_break_it(arguments: dict[str, Any], read: list[str]) -> None:
    index = index_of(own(" ".join(read)), *map(page, read))
    texts: dict[str, list[str]] = {}
    for pointer, text in texts_in(arguments):
        texts.setdefault(pointer, []).append(text)
    for span in spans_of(arguments, index):
        assert any(0 <= span.start < span.end <= len(text) for text in texts[span.argument]), span


HOSTILE = (
    "a.",
    "a ",
    "1,",
    "/a",
    "a@",
    "a-",
    "&amp;",
    "%25",
    "\\u005c",
    "\\",
    "<b>",
    "\u8acb",
    "Aa Bb ",
    "https://",
    "1234 ",
)


@pytest.mark.parametrize("piece", at_night(HOSTILE, HOSTILE[::4]))
def test_the_work_for_hostile_texts_is_bounded(piece: str) -> None:
    text = piece * (MOST_SOURCE // len(piece) + 10)
    begun = process_time()
    index = index_of(page(text))
    spans_of({"text": text}, index)
    assert process_time() - begun < 10


def test_what_is_looked_at_is_bounded() -> None:
    words = "the blue report of Thursday evening"
    read = index_of(page(f"{'word ' * (MOST_SOURCE // 5)}{words}"))
    assert not spans_of({"text": words}, read)
    known = index_of(page(words))
    assert not spans_of({"text": f"{'x ' * (MOST_CHARACTERS // 2)}{words}"}, known)
    assert not spans_of({"list": [*["x"] * MOST_TEXTS, words]}, known)
    assert not spans_of({"text": "Nothing."}, index_of(page(f"%{'25' * 12}41")))
    many = " ".join(f"id-{number}-x" for number in range(MOST_SPANS + 5))
    assert len(spans_of({"text": many.replace(" ", " and ")}, index_of(page(many)))) == MOST_SPANS


def test_the_newest_texts_are_kept_and_own_words_longer() -> None:
    index = TextIndex(most_own=1000, most_read=1000)
    index.add(own("Write to bob@example.com."))
    for number in range(40):
        index.add(page(f"The address is mail{number}@evil.example. {'word ' * 20}"))
    spans = spans_of({"to": ["bob@example.com", "mail0@evil.example", "mail39@evil.example"]}, index)
    assert [one.argument for one in spans] == ["/to/0", "/to/2"]


async def test_a_long_history_does_not_hold_the_event_loop() -> None:
    history = [result(f"{number} " + "the blue report of Thursday evening " * 1500) for number in range(8)]
    asked = call({"body": "the blue report of Thursday evening"})
    talk = conversation([*history, Message("assistant", "", calls=(asked,))])
    waits = list[float]()

    async def tick() -> None:
        while True:
            begun = perf_counter()
            await asyncio.sleep(0)
            waits.append(perf_counter() - begun)

    ticking = asyncio.create_task(tick())
    [span] = await Origins().of(asked, talk)
    ticking.cancel()
    assert span == Span("/body", 0, 35, "result", "x", "the result of web_fetch", True)
    assert len(waits) > 10 and sorted(waits)[len(waits) // 2] < 0.05, "others have their turns meanwhile"


def test_a_call_is_cheap_with_much_text() -> None:
    index = full_index(MOST_READ // 4)  # a call takes as long with all of it
    times = list[float]()
    for one in all_cases():
        begun = process_time()
        spans_of(one.arguments, index)
        times.append(process_time() - begun)
    assert sorted(times)[len(times) // 2] < 0.002

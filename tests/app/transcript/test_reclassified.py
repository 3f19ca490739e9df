"""Thoughts in hindsight: text before a closer without an opener was shown, and is reasoning from then on."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from threading import get_ident
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.events import (
    AgentEvent,
    Delta,
    DocumentUpdated,
    Encoded,
    Notice,
    ReasoningDelta,
    RunFinished,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolRejected,
    encode,
)
from app.core.provider import Finished, Piece, TextChunk
from app.core.time_slice import HEAVY
from app.log.documents import Documents
from app.models.wire.native_calls import NATIVE
from app.policy.canary import Canary
from app.policy.guards import WatchedReply
from app.redaction.events import RedactedEvents
from app.redaction.redactor import MARK, Redactor
from app.transcript.reply import Reply, TextCalls
from app.transcript.reply_calls import THOUGHT, TWICE
from app.transcript.run_totals import RunTotals
from parsing import Call, Thought

TOOLS = {"bash": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "bash", "arguments": [1}\n</tool_call>'
MADE = Call(0, "bash", {"command": "ls"}, NATIVE)
SECRETS = ("abcdabcd", "abcdabcdabdd", "bcdabcdcabc", "dddcbaab", "abcdabcdabcddabcdabxcdabcd")


class Screen:
    """A client that only follows the events: its text and its reasoning."""

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""

    def show(self, events: Iterable[AgentEvent]) -> Screen:
        for event in events:
            match event:
                case TextDelta(text):
                    self.text += text
                case ReasoningDelta(text):
                    self.reasoning += text
                case TextReclassified(characters):
                    assert 0 < characters <= len(self.text)
                    self.text = self.text[:-characters]
        return self


def new_reply(**more: Any) -> Reply:
    ids = count(1)
    return Reply(TOOLS, fences=lambda: True, new_id=lambda: f"c{next(ids)}", **more)


def read(reply: Reply, pieces: Iterable[Piece | str]) -> list[AgentEvent]:
    chunks = [
        TextChunk(piece) if isinstance(piece, str) and not isinstance(piece, Thought) else piece for piece in pieces
    ]
    return [*(event for chunk in chunks for event in reply.add(chunk)), *reply.end()]


# A reply -> its answer, its reasoning
HINDSIGHT: dict[str, tuple[str, str, str]] = {
    "a thought": ("They greet me.</think>Hello.", "Hello.", "They greet me."),
    "nothing": ("</think>Hello.", "Hello.", ""),
    "blanks": ("\n\n</think>\n\nHello.", "Hello.", ""),
    "twice": ("One.</think>Two.</think>Three.", "Two.Three.", "One."),  # the answer has begun
    "twice at once": ("One.</think></think>Three.", "Three.", "One."),
    "nothing but a thought": ("One.</think>", "", "One."),
    "behind a pair": ("<think>One.</think>Two.</think>Three.", "Two.Three.", "One."),
    "in a code span": ("It writes `</think>` there.", "It writes `</think>` there.", ""),
    "in a fence": ("```html\n</think>\n```\nThat.", "```html\n</think>\n```\nThat.", ""),
    "a fence in a thought": ("```py\n1\n```\nSo.</think>One.", "One.", "```py\n1\n```\nSo."),
    "not ASCII": ("Ünï 😀.</think>Ja 😀.", "Ja 😀.", "Ünï 😀."),
}


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("text", "answer", "reasoning"), HINDSIGHT.values(), ids=HINDSIGHT)
def test_history_and_a_client_have_the_same_of_a_thought_in_hindsight(
    text: str, answer: str, reasoning: str, size: int
) -> None:
    reply = new_reply()
    events = read(reply, [text[at : at + size] for at in range(0, len(text), size)])
    message, screen = reply.message(), Screen().show(events)
    assert (screen.text, screen.reasoning) == (message.shown, message.reasoning)
    assert (reply.shown.strip(), message.reasoning.strip()) == (answer, reasoning)
    assert message.text == text, "the model reads its own words again"
    for at, event in enumerate(events):
        if isinstance(event, TextReclassified):
            again = events[at + 1]
            assert isinstance(again, ReasoningDelta) and len(again.text) == event.characters


def test_a_draft_of_a_call_in_a_thought_is_not_made() -> None:
    reply = new_reply()
    events = read(reply, ["I could ", CALL, " or ", BROKEN, "but no.</think>", "Hello.", Finished("stop")])
    told = [(event.reason, event.call) for event in events if isinstance(event, ToolRejected)]
    assert told[1:] == [(THOUGHT, "c1"), (THOUGHT, "c2")] and told[0][1] == "c2"
    assert (reply.calls, reply.refused, reply.shown) == ([], {}, "Hello.")
    assert reply.message().calls == ()
    totals = RunTotals()
    for event in events:
        totals.record(event)
    assert totals.actions == {}, "no call was made of which there is something to tell"


def test_a_call_behind_the_thought_is_made() -> None:
    reply = new_reply()
    events = read(reply, ["First ", CALL, "?</think>", "I look. ", CALL])
    assert [call.id for call in reply.calls] == ["c2"] and "<tool_call>" in reply.calls[0].raw
    assert [event.call for event in events if isinstance(event, ToolRejected)] == ["c1"]


@pytest.mark.parametrize("natively_first", [True, False])
def test_a_native_call_stays_when_its_twin_was_thought(natively_first: bool) -> None:
    draft: list[Piece | str] = ["Hm. ", CALL]
    reply = new_reply()
    events = read(reply, [MADE, *draft, "</think>", CALL] if natively_first else [*draft, MADE, "</think>", CALL])
    assert [call.dialect for call in reply.calls] == [NATIVE]
    reasons = [event.reason for event in events if isinstance(event, ToolRejected)]
    assert reasons == [TWICE, TWICE], "the call behind the thought is the native one, too"


@pytest.mark.parametrize("text", ["They greet me.</think>Hello.", "<think>They greet me.</think>Hello."])
def test_a_hint_makes_it_right_from_the_first_character(text: str) -> None:
    reply = new_reply(prompt_suffix=lambda: "<|im_start|>assistant\n<think>\n")
    events = read(reply, text)
    assert not any(isinstance(event, TextReclassified) for event in events)
    assert (reply.shown, reply.message().reasoning) == ("Hello.", "They greet me.")


def test_a_long_thought_takes_time_and_memory_in_proportion() -> None:
    reply = new_reply()
    pieces, piece = 1 << 17, "a thought "[:8]
    tracemalloc.start()
    for _ in range(pieces):
        for _ in reply.add(TextChunk(piece)):
            pass
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    events = [*reply.add(TextChunk("</think>")), *reply.add(TextChunk("Yes.")), *reply.end()]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = pieces * len(piece)
    assert events[0] == TextReclassified(size) and reply.shown == "Yes."
    assert peak - before < 12 * size, "a few copies, none for each token"


# --- secrets ---


def hidden(events: Iterable[AgentEvent], *secrets: str) -> list[AgentEvent]:
    redacted = RedactedEvents(Redactor(secrets))
    return [*(told for event in events for told in redacted.add(event)), *redacted.end()]


END = RunFinished("answered", "", 1, 0, {})
KEY = "sk-canary-4711-Zeisig"


def test_a_secret_in_a_thought_is_counted_and_repeated_as_its_mark() -> None:
    thought = f"It is {KEY}, yes"
    events = hidden([*map(TextDelta, thought), TextReclassified(len(thought)), ReasoningDelta(thought), END], KEY)
    screen = Screen().show(events)
    assert (screen.text, screen.reasoning) == ("", f"It is {MARK}, yes")


def test_a_secret_across_the_border_goes_whole_to_the_thought() -> None:
    shown, thought = f"So: {KEY[:9]}", f"{KEY[9:]} it is"
    pieces: list[AgentEvent] = [
        TextDelta(shown + thought),
        TextReclassified(len(thought)),
        ReasoningDelta(thought),
        TextDelta("Yes."),
    ]
    screen = Screen().show(hidden([*pieces, END], KEY))
    assert (screen.text, screen.reasoning) == ("So: Yes.", f"{MARK} it is")


def test_a_secret_that_a_call_has_cut_is_repeated_as_it_was_emitted() -> None:
    thought = f"a {KEY} b"
    cut: list[AgentEvent] = [TextDelta(f"a {KEY[:9]}"), ToolDelta("c1", "", "bash"), TextDelta(f"{KEY[9:]} b")]
    events = hidden([*cut, TextReclassified(len(thought)), ReasoningDelta(thought), END], KEY)
    screen = Screen().show(events)
    assert (screen.text, screen.reasoning) == ("", f"a {KEY[:9]}{MARK} b")


def test_a_secret_across_the_closer_is_never_whole() -> None:
    events = hidden(
        [*map(TextDelta, KEY[:9]), TextReclassified(9), ReasoningDelta(KEY[:9]), *map(TextDelta, KEY[9:]), END], KEY
    )
    screen = Screen().show(events)
    assert (screen.text, screen.reasoning) == (MARK, KEY[:9])


words = st.sampled_from([*SECRETS, "a", "b", "c", "d", "ab", "cd", "abcd", "x"])
steps = st.lists(st.one_of(words, st.just(None), st.floats(0, 1)), max_size=30)


@given(steps)
@example(["abcdabcd", 1.0, "abcd", 1.0])
def test_what_is_taken_back_is_repeated_and_holds_no_secret(script: Sequence[str | float | None]) -> None:
    """A word is shown, a number reclassifies that part of the text, None is another event."""
    redacted, shown = RedactedEvents(Redactor(SECRETS)), ""
    screen, text, reasoning = Screen(), "", ""
    for step in script:
        match step:
            case str():
                shown += step
                text += words_in(screen, redacted, TextDelta(step), TextDelta)
            case None:
                text += words_in(screen, redacted, END, TextDelta)
            case float() if count := round(step * len(shown)):
                shown, thought = shown[:-count], shown[-count:]
                text += words_in(screen, redacted, END, TextDelta)
                before = screen.text
                words_in(screen, redacted, TextReclassified(count), TextDelta)
                taken = before.removeprefix(screen.text)
                again = words_in(screen, redacted, ReasoningDelta(thought), ReasoningDelta)
                again += words_in(screen, redacted, END, ReasoningDelta)
                assert again == taken or MARK in again, "a secret that the earlier thoughts began"
                reasoning += again
    screen.show(redacted.end())
    assert not [one for one in SECRETS if one in text or one in reasoning]


def words_in(screen: Screen, redacted: RedactedEvents, event: AgentEvent, kind: type[Any]) -> str:
    told = [*redacted.add(event)]
    screen.show(told)
    return "".join(one.text for one in told if isinstance(one, kind))


def test_the_code_of_the_prompt_stays_hidden_in_hindsight() -> None:
    canary, ids = Canary(), count(1)
    reply = WatchedReply(
        canary,
        lambda: iter(()),
        TOOLS,
        fences=lambda: True,
        new_id=lambda: f"c{next(ids)}",
        prompt_suffix=str,
        text_calls=lambda _: TextCalls.READ,
    )
    events = read(reply, [*f"My code is {canary.code}, I think.", "</think>", *f"It is {canary.code}."])
    screen, message = Screen().show(events), reply.message()
    assert (screen.text, screen.reasoning) == (message.shown, message.reasoning)
    assert (screen.text, screen.reasoning) == ("It is [blocked].", "My code is [blocked], I think.")
    assert reply.prose == reply.shown == screen.text
    assert canary.leaked


@pytest.mark.anyio
async def test_a_code_that_leaks_in_a_long_reply_is_reported_in_the_thread_of_the_loop() -> None:
    canary, threads = Canary(), set[int]()

    def news() -> Iterator[Notice]:
        threads.update({get_ident()} if canary.leaked else ())
        return iter(())

    reply = WatchedReply(
        canary,
        news,
        TOOLS,
        fences=lambda: True,
        new_id=lambda: "c1",
        prompt_suffix=str,
        text_calls=lambda _: TextCalls.READ,
    )
    events = [*await reply.added(TextChunk("x" * (HEAVY + 1)))]
    events += await reply.added(TextChunk(f" {canary.code[:20]}"))
    assert not threads, "it may go on"
    events += await reply.ended()
    assert Screen().show(events).text == f"{'x' * (HEAVY + 1)} [blocked]"
    assert threads == {get_ident()}


def test_a_document_of_a_thought_ends_with_it() -> None:
    block = "".join(f"line {number}\n" for number in range(40))
    thought = Encoded(TextReclassified.type, encode(TextReclassified(9)))
    events: list[Delta | Encoded] = [TextDelta(f"```py\n{block}"), thought, TextDelta(f"```py\n{block}```\n")]
    documents = [one for one in Documents().with_documents(events) if isinstance(one, DocumentUpdated)]
    assert [one.done for one in documents].count(True) == 2
    assert len({one.document for one in documents}) == 2


def test_the_halves_of_a_character_count_as_a_client_counts_them() -> None:
    reply = new_reply()
    events = read(reply, ["Hm \ud83d", "\ude00\ud83d\ude00", "</think>", "So \ud83d"])
    assert [event.characters for event in events if isinstance(event, TextReclassified)] == [5]
    message = reply.message()
    assert (message.text, message.reasoning, message.shown) == ("Hm 😀😀</think>So \ufffd", "Hm 😀😀", "So \ufffd")


def test_a_reply_holds_its_text_and_not_each_piece_of_it() -> None:
    reply = Reply({}, fences=lambda: False, new_id=lambda: "c1")
    pieces = 20_000
    tracemalloc.start()
    for number in range(pieces):
        list(reply.add(TextChunk(f"{number:09} ")))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < pieces * 220, "a string of its own for each, as it was written and as it was shown: 270"

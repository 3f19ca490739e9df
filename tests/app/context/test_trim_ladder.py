"""The ladder, rung by rung, what it costs, and how it ends where nothing more may go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from app.context.compaction.trim import trim
from app.context.overflow import ContextOverflow
from app.core.messages import AskedCall, Message
from tests.support.trimming import History, characters, needed, total


def chat(turns: int, results: int = 0, characters: int = 400) -> History:
    """Turns of a request, `results` rounds of one call, and an answer, the last turn without it."""
    history = History(opening=1)
    history.add(Message("system", "You are dragoman."))
    for turn in range(turns):
        history.add(Message("user", f"Request {turn}."))
        for _ in range(results):
            history.round(["r" * characters], native=True)
        if turn < turns - 1:
            history.add(Message("assistant", f"Answer {turn}."))
    return history


@dataclass(slots=True)
class Counted:
    """A measure that counts how often it is asked."""

    times: int = 0

    def __call__(self, message: Message) -> int:
        self.times += 1
        return characters(message)


MANY = 4_000
LONG = {
    "turns": chat(MANY // 2),
    "turns of rounds": chat(MANY // 8, results=3, characters=5_000),
    "one turn": chat(1, results=MANY // 2, characters=5_000),
}


@pytest.mark.parametrize("percent", [0, 1, 10, 50, 99])
@pytest.mark.parametrize("name", LONG)
def test_each_message_is_measured_once_and_once_more_if_it_is_shortened(name: str, percent: int) -> None:
    history, measure = LONG[name], Counted()
    budget = needed(history, characters) + total(history.messages, characters) * percent // 100
    trimmed = trim(history.messages, budget, measure, opening=1)
    assert trimmed.dropped or trimmed.shortened
    results = sum(message.role == "tool" for message in history.messages)
    assert measure.times <= len(history.messages) + results + 40  # the last texts are shortened by halves


PARTS = {
    "s": Message("system", "p" * 5_000),
    "n": Message("system", "n" * 500),
    "u": Message("user", "u" * 100),
    "U": Message("user", "u" * 9_000),
    "a": Message("assistant", "a" * 100),
}
RESULTS = {"r": [100], "R": [3_000], "M": [3_000] * 4}  # characters of the results of a round
LADDER = [
    # what there was, the characters that are too much, what is left: ~ is shortened
    ("s u R a n u r r r r r r", 1, "s u R~ a n u r r r r r r"),
    ("s u R a R u r r r r r r", 1, "s u R~ a R u r r r r r r"),
    ("s u R a R u r r r r r r", 2_001, "s u R~ a R~ u r r r r r r"),
    ("s u r a R a u a u a u a u a u", 1, "s u r a R~ a u a u a u a u a u"),
    ("s u r a R u a u a u a u a u", 1, "s u a R u a u a u a u a u"),
    ("s u r M a u a u a u a u", 1, "s u R R R R a u a u a u a u"),
    ("s u r R u u u u u u u u u u", 1, "s u R u u u u u u u u u u"),
    ("s u r a n u r r r r r", 504, "s u u r r r r r"),
    ("s u r a n u r r r r r n", 1, "s u r a u r r r r r n"),
    ("s u r a u r a u r r r r r", 1, "s u u r a u r r r r r"),
    ("s u r a u r a u r r r r r", 500, "s u u r r r r r"),
    ("s u r r a r r u r r r r", 1, "s u r a r r u r r r r"),
    ("s u r r a u r r a r r r", 1, "s u u r r a r r r"),
    ("s u r r r r r r r", 1, "s u r r r r r r"),
    ("s u r r u r r r r r", 1, "s u r u r r r r r"),
    ("s u a u R R u R", 1, "s u a u R~ R u R"),
    ("s u a n u r", 1, "s u a u r"),
    ("s u a u a u", 1, "s u u a u"),
    ("s u r r r r", 200, "s u r r"),
    ("s u r R", 1, "s u r R~"),
    ("s u r R", 2_050, "s u R~"),
    ("s u r u r u r", 250, "s~ u u u r"),
    ("s u R", 3_000, "s~ u R~"),
    ("s u u u u", 3_100, "s~ u u u"),
    ("s u r u r u r", 3_300, "s~ u u r"),
    ("s U r", 5_000, "s~ U~ r"),
    ("s u a U r u r", 6_000, "s~ u U~ u r"),
    ("s U a u r u a u", 1, "s U~ a u r u a u"),
    ("s U a u R", 1, "s U~ a u R"),
    ("s U a u R", 5_100, "s U~ a u R~"),
    ("s U r a U", 12_000, "s~ U~ U~"),
    ("s u M u", 12_200, "s~ u R~ R~ R~ R~ u"),
    ("s u M u", 14_800, "s~ u u"),
    ("s u M u u", 14_800, "s~ u u"),
    ("s U r a U", 17_000, "s~ U~ U~"),
]


def written(parts: str) -> list[Message]:
    history = History(opening=1)
    for part in parts.split():
        if part in RESULTS:
            history.round(["r" * characters for characters in RESULTS[part]], native=True)
        else:
            history.add(PARTS[part])
    return [replace(message, text="") if message.calls else message for message in history.messages]


NAMES = {message.text: name for name, message in PARTS.items()} | {"r" * 100: "r", "r" * 3_000: "R"}


def read(before: Sequence[Message], after: Sequence[Message]) -> str:
    """What is left, a letter for each message without calls."""
    texts = {message.reasoning: message.text for message in before}
    left = [(texts[message.reasoning], message.text) for message in after if not message.calls]
    return " ".join(NAMES[then] if now == then else f"{NAMES[then]}~" for then, now in left)


@pytest.mark.parametrize("opening", [0, 1])
@pytest.mark.parametrize(("parts", "too_much", "left"), LADDER)
def test_the_ladder(parts: str, too_much: int, left: str, opening: int) -> None:
    messages = written(parts)
    trimmed = trim(messages, total(messages, characters) - too_much, characters, opening=opening)
    assert read(messages, trimmed.messages) == left


def test_what_would_not_be_smaller_is_not_shortened() -> None:
    def words(message: Message) -> int:
        return len(message.text.split())

    blank = replace(PARTS["a"], role="tool", text=" " * 5_000, call="c1")
    asked = Message("assistant", "", (AskedCall("c1", "bash", {}, "native"),))
    last = [Message("assistant", "word")] * 10
    trimmed = trim([PARTS["u"], Message("assistant", "word"), asked, blank, *last], 11, words, opening=0)
    assert trimmed.messages == [PARTS["u"], asked, blank, *last]


def test_the_last_texts_are_shortened_only_as_far_as_needed() -> None:
    messages = written("s u R")
    for too_much in (100, 1_500, 1_999):
        budget = total(messages, characters) - too_much
        trimmed = trim(messages, budget, characters)
        assert read(messages, trimmed.messages) == "s u R~"
        assert trimmed.after == budget


TOO_BIG = [
    ("s u r", 1_000, ["the system prompt (2,003 of 5,003 tokens)", "Offer fewer tools, shorten the system prompt"]),
    ("U r", 100, ["your message (203 of 9,003 tokens)", "the result of bash (103 tokens)", "Send a shorter message"]),
    ("u R", 200, ["the result of bash (203 of 3,003 tokens)", "Split the task into smaller messages"]),
    ("U a u", 200, ["the session's first message (203 of 9,003 tokens)", "Start a new session"]),
    ("s u", 0, ["The tool definitions and the tokens reserved for an answer", "Offer fewer tools"]),
]


@pytest.mark.parametrize(("parts", "budget", "told"), TOO_BIG)
def test_a_refusal_names_what_is_too_big_and_what_to_do(parts: str, budget: int, told: list[str]) -> None:
    with pytest.raises(ContextOverflow) as refused:
        trim(written(parts), budget, characters, opening=parts.startswith("s"))
    for words in [*told, "or use a model with a larger context window."]:
        assert words in str(refused.value)

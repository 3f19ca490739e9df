"""Conversations of any shape to trim, and what must be true of them, told in the simplest way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.compaction.message_groups import RECENT
from app.context.compaction.steps import LEAST, PROMPT
from app.context.compaction.trim import Trimmed, trim
from app.context.overflow import ContextOverflow
from app.core.messages import AskedCall, Message
from app.models.tokens.counter import TokenCounter
from app.models.tokens.cutting import shortened

Measure = Callable[[Message], int]
QUICK = settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
HALVES = "\ud83d\ude00"  # of one character; a model may write them in two deltas
UNITS = ("a", "word ", "line\n", "é", "漢字", "😀", HALVES)
texts = st.builds(str.__mul__, st.sampled_from(UNITS), st.sampled_from([0, 1, 40, 300, 900]))
step = st.sampled_from(["user", "answer", "round", "round", "system", "crash", "orphan"])
steps = st.one_of(st.lists(step, max_size=8), st.lists(step, min_size=12, max_size=40))


@dataclass(frozen=True, slots=True)
class Counted:
    """A model that never changes."""

    counter: TokenCounter
    native_tools: bool = False


@dataclass(slots=True)
class History:
    """A conversation; the tag of each message is its `reasoning`, which nothing here measures."""

    opening: int
    messages: list[Message] = field(default_factory=list)

    def add(self, message: Message) -> Message:
        tagged = replace(message, reasoning=str(len(self.messages)))
        self.messages.append(tagged)
        return tagged

    def round(self, texts: Sequence[str], native: bool, answered: int | None = None) -> None:
        """An answer with calls; the first `answered` of them (or all) have results."""
        number, dialect = len(self.messages), "native" if native else "fence_tool_tag"
        calls = tuple(AskedCall(f"c{number}-{one}", "bash", {}, dialect) for one in range(len(texts)))
        self.add(Message("assistant", texts[0], calls))
        for call, text in list(zip(calls, texts, strict=True))[:answered]:
            self.add(Message("tool", text, call=call.id, name=call.name, untrusted=native))


@st.composite
def histories(draw: st.DrawFn) -> History:
    examples = draw(st.integers(0, 2))
    history = History(opening=1 + 2 * examples)
    history.add(Message("system", draw(texts)))
    for _ in range(examples):
        history.add(Message("user", draw(texts)))
        history.add(Message("assistant", draw(texts)))
    for step in ["user", *draw(steps)]:
        match step:
            case "user" | "system":
                history.add(Message(step, draw(texts)))
            case "answer":
                history.add(Message("assistant", draw(texts)))
            case "round" | "crash":
                said = draw(st.lists(texts, min_size=1, max_size=4))
                history.round(said, draw(st.booleans()), len(said) if step == "round" else draw(st.integers(0, 3)))
            case "orphan":
                history.add(Message("tool", draw(texts), call=draw(st.sampled_from(["nobody", None]))))
    return history


def characters(message: Message) -> int:
    return 3 + len(message.text)


def tokens(message: Message) -> int:
    return 4 + len(message.text.encode("utf-8", "surrogatepass")) // 4 + 20 * len(message.calls)


measures = st.sampled_from([characters, tokens])
shares = st.integers(-10, 110)


def total(messages: Sequence[Message], measure: Measure) -> int:
    return sum(map(measure, messages))


def tags(messages: Sequence[Message]) -> list[int]:
    return [int(message.reasoning) for message in messages]


@dataclass(frozen=True, slots=True)
class Trial:
    """A history, and what became of it; `trimmed` is None if it was refused."""

    history: History
    measure: Measure
    budget: int
    target: int
    trimmed: Trimmed | None

    @property
    def before(self) -> list[Message]:
        return self.history.messages

    @property
    def after(self) -> list[Message]:
        return self.trimmed.messages if self.trimmed else []

    def again(self, budget: int, target: int) -> Trial:
        return tried(self.history, self.measure, budget, target)


def tried(history: History, measure: Measure, budget: int, target: int) -> Trial:
    trimmed = None
    with suppress(ContextOverflow):
        trimmed = trim(history.messages, budget, measure, opening=history.opening, target=target)
    return Trial(history, measure, budget, target, trimmed)


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    history, measure = draw(histories()), draw(measures)
    least, most = needed(history, measure), total(history.messages, measure)
    budget = least + (most - least) * draw(shares) // 100
    return tried(history, measure, budget, budget * draw(st.integers(0, 100)) // 100)


def answered(messages: Sequence[Message]) -> list[Message]:
    """The messages without results of calls that nobody made before."""
    asked: set[str | None] = set()
    kept = []
    for message in messages:
        asked |= {call.id for call in message.calls}
        if message.role != "tool" or message.call in asked:
            kept.append(message)
    return kept


def rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """Each answer with the results of its calls."""
    found = []
    for message in messages:
        if message.role == "assistant":
            ids = {call.id for call in message.calls}
            found.append([message, *(one for one in messages if one.role == "tool" and one.call in ids)])
    return found


def current(history: History) -> list[Message]:
    """The turn under way: from the last request that follows an answer, or from the first."""
    spoken = [message for message in answered(history.messages[history.opening :]) if message.role != "system"]
    starts = [at for at, one in enumerate(spoken) if one.role == "user" and at and spoken[at - 1].role == "assistant"]
    return spoken[starts[-1] if starts else 0 :]


def requests(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role == "user"]


def essential(history: History) -> list[Message]:
    """What no request may go without: opening, first goal, what the current turn began with, and was last told, and
    the last round unless the person has spoken since."""
    said, now = requests(history.messages[history.opening :]), current(history)
    last = [] if now[-1].role == "user" else (rounds(now) or [[]])[-1]
    return [*history.messages[: history.opening], said[0], requests(now)[0], said[-1], *last]


def recent(history: History) -> list[Message]:
    """The last messages, with the whole of the rounds that they belong to."""
    spoken = answered(history.messages[history.opening :])
    last = spoken[-RECENT:]
    return last + [one for each in rounds(spoken) if any(one in last for one in each) for one in each]


def needed(history: History, measure: Measure) -> int:
    """Tokens of what no request may go without, as short as it may be."""

    def at_least(message: Message) -> int:
        at = int(message.reasoning)
        least = len(message.text) if 0 < at < history.opening else LEAST if at else PROMPT
        return min(measure(message), measure(replace(message, text=shortened(message.text, least))))

    return total(distinct(essential(history)), at_least)


def distinct(messages: Sequence[Message]) -> list[Message]:
    return list({message.reasoning: message for message in messages}.values())

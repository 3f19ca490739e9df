"""Drop and shorten messages until they fit a token budget, and limit the bytes of attachments: pure, linear."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from app.context.compaction.message_groups import without_orphaned_results
from app.context.compaction.steps import Measure, TrimState, trim_history, trim_recent
from app.context.overflow import overflow
from app.core.messages import Message, in_words

MOST_BYTES = 24_000_000  # of attachments in a request: 32 MB as base64, the lowest limit of the large services


class Trimmed(Struct, frozen=True):
    """`messages` fit; `dropped` and `shortened` count messages; `before` and `after` are tokens."""

    messages: list[Message]
    dropped: int
    shortened: int
    before: int
    after: int


def trim(
    messages: Sequence[Message], budget: int, measure: Measure, *, opening: int = 1, target: int | None = None
) -> Trimmed:
    """Return the messages trimmed to `budget` tokens. The first `opening` are the prompt and its worked examples.

    If they do not fit, old history is trimmed down to `target` (default: the budget), so that the next rounds need no
    trimming and the model's prefix cache stays valid. Messages that fit stay as they are, except for results that
    answer no call. Raises ContextOverflow.
    """
    positions = without_orphaned_results(messages)
    kept = [messages[at] for at in positions]
    sizes = [measure(message) for message in messages]
    before, total = sum(sizes), sum(sizes[at] for at in positions)
    if total <= budget:
        return Trimmed(kept, len(messages) - len(kept), 0, before, total)
    state = TrimState(kept, [sizes[at] for at in positions], measure, opening)
    trim_history(state, budget if target is None else min(target, budget))
    trim_recent(state, budget)
    if state.total > budget:
        raise overflow(state, budget)
    cut = sum(message is not kept[at] for at, message in state.kept.items())
    return Trimmed(list(state.kept.values()), len(messages) - len(state.kept), cut, before, state.total)


def attachment_bytes(message: Message) -> int:
    return sum(one.size for one in message.attachments)


def limit_attachments(messages: Sequence[Message], most: int = MOST_BYTES) -> list[Message]:
    """Keep the newest attachments, up to `most` bytes, and describe older ones in words.

    Each round sends them again, and servers limit the body. The last message that has attachments keeps them: it may
    be the one to answer.
    """
    limited = list(messages)
    carried = 0
    last = True
    for at in reversed([at for at, message in enumerate(messages) if message.attachments]):
        carried += attachment_bytes(messages[at])
        if carried > most and not last:
            limited[at] = replace(messages[at], text=in_words(messages[at]), attachments=())
        last = False
    return limited

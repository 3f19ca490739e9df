"""The part of each prompt that equals the session's request before, byte by byte, and why it ends where it does.

Servers keep what they have computed of a prompt for the next one that begins alike. What they kept is theirs to say
(`cached_tokens`); this says what they could keep, and what has spoilt the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

MOST_SESSIONS = 64
MOST_BYTES = 32 << 20  # of the prompts that are kept, of all sessions
LAST = 2  # of the texts of a prompt: its messages
CLOSERS = '"}]'  # behind the last text of a prompt; that of a reply which broke off goes on in the next one
SYSTEM, NEXT = '[{"role":"system"', '},{"role":'  # of messages as JSON, in which a text has no quotes of its own

PrefixBreak = Literal[
    "first", "side_query", "other_model", "tools", "system", "summarised", "trimmed", "reminder", "edited"
]
"""Why a prompt goes on otherwise than the one before; the event `usage` says what each means."""


class PromptPrefix(Struct, frozen=True):
    """The bytes of a prompt, how many of them equal the one before, and why the next one differs, if one does."""

    size: int
    same: int
    ends: PrefixBreak | None


class SentPrompt(Struct, frozen=True):
    """A prompt as it went to `model`: tools, system text, opening and what follows it of the messages, as JSON.

    Tools and opening are those that other prompts share: a copy for each stream would be a fifth of what it holds.
    `stage` is that of its ModelRequest.
    """

    model: str
    parts: Sequence[str]
    stage: tuple[int, int] | None

    @property
    def texts(self) -> Sequence[str]:
        """In the order that templates write them, without their closers: the next prompt may go on there."""
        tools, system, opening, rest = (part[:-1] for part in self.parts)
        return tools, system, opening + rest

    @property
    def size(self) -> int:
        return sum(max(0, len(part) - 1) for part in self.parts)  # of the texts, which need not be joined for it


class PromptPrefixes:
    """The last prompt of each session, of the most recently active ones."""

    def __init__(self) -> None:
        self._last: dict[str, SentPrompt] = {}
        self._bytes = 0

    def take(self, session: str, sent: SentPrompt, *, in_round: bool) -> PromptPrefix:
        """Compare a prompt with the one of the session's last round; one of a round is kept for the next."""
        before = self._last.get(session)
        found = compared(before, sent, in_round=in_round)
        if in_round:
            if before:
                self._forget(session)
            self._last[session] = sent
            self._bytes += found.size
            while self._bytes > MOST_BYTES or len(self._last) > MOST_SESSIONS:
                self._forget(next(iter(self._last)))
        return found

    def _forget(self, session: str) -> None:
        self._bytes -= self._last.pop(session).size


def compared(before: SentPrompt | None, now: SentPrompt, *, in_round: bool) -> PromptPrefix:
    if now.stage is None:
        return PromptPrefix(now.size, 0, "side_query")
    if before is None or before.model != now.model:
        return PromptPrefix(now.size, 0, "other_model" if before else "first")
    same = 0
    for at, (old, new) in enumerate(zip(before.texts, now.texts, strict=True)):
        alike = common(old, new)
        same += alike
        is_last = at == LAST
        if old[alike:].strip(CLOSERS if is_last else "") or (alike < len(new) and not is_last):
            ends = _reason(before, now, at, alike) if in_round else "side_query"
            return PromptPrefix(now.size, same, ends)
    return PromptPrefix(now.size, same, None)


def _reason(before: SentPrompt, now: SentPrompt, part: int, at: int) -> PrefixBreak:
    messages = before.texts[LAST]
    if part < LAST:
        return "system" if part else "tools"
    if messages.startswith(SYSTEM) and at < messages.find(NEXT):
        return "system"
    if before.stage != now.stage:
        is_newer = before.stage and now.stage and before.stage[0] != now.stage[0]
        return "summarised" if is_newer else "trimmed"
    return "edited" if NEXT in messages[at:] else "reminder"


def common(one: str, other: str) -> int:
    """Return how many characters at the beginning of both texts are the same."""
    if other.startswith(one):
        return len(one)
    same, most = 0, min(len(one), len(other))
    while same < most:
        middle = (same + most + 1) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            most = middle - 1
    return same

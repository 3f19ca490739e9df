"""Earlier words of a conversation, found again: what the model is sent no more stays in the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice

from app.core.messages import Message, in_words
from app.storage.search_words import folded, words_of
from app.storage.sessions import SessionStore
from tools.builtin.recall_history import NAME
from tools.tool import Recalled

EXCERPT = 600  # characters
BEFORE = 200  # of them, in front of the word that was found
SPARE = 20  # hits that are read to make up for those that are searches themselves


class Recaller:
    """Searches one session at a time: the caller says which, never the model."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def __call__(self, session: str, query: str, limit: int) -> Sequence[Recalled]:
        """Raises StoreFailed."""
        hits = await self._store.search(session, query, limit + SPARE)
        best = islice(((position, message) for position, message in hits if not searches(message)), limit)
        words = words_of(query)
        return [recalled(position, message, words) for position, message in sorted(best, key=lambda hit: hit[0])]


def searches(message: Message) -> bool:
    """A search, or its result: both hold the words that they are about."""
    return message.name == NAME or any(call.name == NAME for call in message.calls)


def recalled(position: int, message: Message, words: Sequence[str]) -> Recalled:
    who = message.name or message.role
    return Recalled(position, who, excerpt(written(message), words), message.untrusted)


def written(message: Message) -> str:
    """What the message says, its calls included."""
    calls = (f"{call.name} {json.dumps(call.arguments)}" for call in message.calls)
    return "\n".join([in_words(message), *calls]).strip()


def excerpt(text: str, words: Sequence[str]) -> str:
    """The part of the text around the first of the words that it has."""
    if len(text) <= EXCERPT:
        return text
    plain = folded(text)
    found = [at for word in words if (at := plain.find(folded(word))) >= 0]
    start = max(0, min(min(found, default=0) - BEFORE, len(text) - EXCERPT))
    end = start + EXCERPT
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"

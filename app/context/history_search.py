"""Full-text search in the messages of a session, including those that are no longer sent to the model."""

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
BEFORE = 200  # of them, before the match
SPARE = 20  # extra hits to read, because searches themselves are filtered out


class HistorySearch:
    """Searches one session at a time. The caller chooses the session, never the model."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def __call__(self, session: str, query: str, limit: int) -> Sequence[Recalled]:
        """Raises StoreFailed."""
        hits = await self._store.search(session, query, limit + SPARE)
        best = islice(((position, message) for position, message in hits if not is_search(message)), limit)
        words = words_of(query)
        return [search_hit(position, message, words) for position, message in sorted(best, key=lambda hit: hit[0])]


def is_search(message: Message) -> bool:
    """True for a search call and its result: both contain the query's words."""
    return message.name == NAME or any(call.name == NAME for call in message.calls)


def search_hit(position: int, message: Message, words: Sequence[str]) -> Recalled:
    author = message.name or message.role
    return Recalled(position, author, excerpt(as_text(message), words), message.untrusted)


def as_text(message: Message) -> str:
    """The message's text and its calls."""
    calls = (f"{call.name} {json.dumps(call.arguments)}" for call in message.calls)
    return "\n".join([in_words(message), *calls]).strip()


def excerpt(text: str, words: Sequence[str]) -> str:
    """Return the part of the text around its first match."""
    if len(text) <= EXCERPT:
        return text
    plain = folded(text)
    found = [at for word in words if (at := plain.find(folded(word))) >= 0]
    start = max(0, min(min(found, default=0) - BEFORE, len(text) - EXCERPT))
    end = start + EXCERPT
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"

"""Origins of arguments: the texts that the model has read and that a call repeats, or plainly derives from.

The index is built when a call is first asked about, from the history, and goes on with it: most runs need none. After a
restart it is built anew. What the model had not read when it made the call is no source of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct

from app.core.messages import AskedCall
from app.core.spans import Span
from app.provenance.argument_spans import spans_of, texts_in
from app.provenance.quotation import Others, no_others, place_of
from app.provenance.read_sources import of_message, of_others
from app.provenance.text_index import ReadText, TextIndex
from app.transcript.conversation import Conversation

BESIDE_LOOP = 3_000  # characters, from which on texts are read in a thread


class Origins(Struct):
    """Finds where the arguments of one run's calls come from."""

    others: Others = no_others
    _index: TextIndex | None = None
    _seen: frozenset[ReadText] = frozenset()  # of the texts that are no messages
    _read: int = 0  # messages that are in the index

    async def of(self, call: AskedCall, conversation: Conversation) -> Sequence[Span]:
        """Return where the arguments come from. Raises StoreFailed."""
        others = conversation.redactor.redact_value(list(await self.others(conversation.session)))
        messages = conversation.messages[: place_of(call, conversation.messages)]
        tainted = any(message.untrusted for message in messages)
        new = [one for one in of_others(others, tainted=tainted) if one.text and one not in self._seen]
        self._seen = self._seen.union(new)
        for number, message in enumerate(islice(messages, self._read, None), self._read):
            new += (one for one in of_message(number, message) if one.text)
        self._read = max(self._read, len(messages))
        if self._index is None:
            self._index = TextIndex()
        characters = sum(len(one.text) for one in new) + sum(len(text) for _, text in texts_in(call.arguments))
        if characters > BESIDE_LOOP:
            return await asyncio.to_thread(_derived, self._index, new, call)
        return _derived(self._index, new, call)


def _derived(index: TextIndex, new: Iterable[ReadText], call: AskedCall) -> Sequence[Span]:
    for text in new:
        index.add(text)
    return spans_of(call.arguments, index)

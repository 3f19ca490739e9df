"""Origins of arguments: the texts that the model has read and that a call repeats, or plainly derives from.

The index is built when a call is first asked about, from the history, and goes on with it: most runs need none. After a
restart it is built anew. What the model had not read when it made the call is no source of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct, field

from app.core.messages import AskedCall
from app.core.spans import Derivation, SourceKind, Span
from app.provenance.argument_spans import spans_of, texts_in
from app.provenance.quotation import Others, no_others, place_of
from app.provenance.read_sources import of_message, of_others
from app.provenance.text_index import OWN, ReadText, TextIndex
from app.transcript.conversation import Conversation
from tools.base.patterns import lazy_pattern

BESIDE_LOOP = 3_000  # characters, from which on texts are read in a thread
_BETWEEN = lazy_pattern(r"[\s,;]*")  # what may stand between the values of a list that is one text
_AROUND = lazy_pattern(r"[\s,;\"'“”#@]*")


class Origins(Struct):
    """Finds where the arguments of one run's calls come from."""

    others: Others = no_others
    _index: TextIndex | None = None
    _seen: set[ReadText] = field(default_factory=set)  # of the texts that are no messages
    _read: int = 0  # messages that are in the index

    async def of(self, call: AskedCall, conversation: Conversation) -> Derivation:
        """Return where the arguments come from. Raises StoreFailed."""
        others = conversation.redactor.redact_value(list(await self.others(conversation.session)))
        messages = conversation.messages[: place_of(call, conversation.messages)]
        tainted = any(message.untrusted for message in messages)
        new = [one for one in of_others(others, tainted=tainted) if one.text and one not in self._seen]
        self._seen.update(new)
        for number, message in enumerate(islice(messages, self._read, None), self._read):
            new += (one for one in of_message(number, message) if one.text)
        self._read = max(self._read, len(messages))
        if self._index is None:
            self._index = TextIndex()
        characters = sum(len(one.text) for one in new) + sum(len(text) for _, text in texts_in(call.arguments))
        if characters > BESIDE_LOOP:
            return await asyncio.to_thread(_derived, self._index, new, call)
        return _derived(self._index, new, call)


def _derived(index: TextIndex, new: Iterable[ReadText], call: AskedCall) -> Derivation:
    for text in new:
        index.add(text)
    return spans_of(call.arguments, index)


def only_untrusted(spans: Iterable[Span], pointer: str, trusted: frozenset[SourceKind] = OWN) -> bool:
    """Return True if a part of the text at `pointer` comes from untrusted text, and from no `trusted` one as well."""
    here = [one for one in spans if one.argument == pointer]
    grounds = [one for one in here if one.exact and not one.untrusted and one.kind in trusted]
    return any(
        one.untrusted and not any(other.start <= one.start and one.end <= other.end for other in grounds)
        for one in here
    )


def is_grounded(spans: Iterable[Span], pointer: str, text: str, trusted: frozenset[SourceKind] = OWN) -> bool:
    """Return True if the whole `text` at `pointer` stands in own words, to the letter: all of it, or each of a list."""
    grounds = [
        one for one in spans if one.argument == pointer and one.exact and not one.untrusted and one.kind in trusted
    ]
    return bool(grounds) and _covered(sorted(grounds, key=lambda one: one.start), text)


def _covered(grounds: Sequence[Span], text: str) -> bool:
    at, between = 0, _AROUND
    for one in grounds:
        if one.start > at and not between.fullmatch(text[at : one.start]):
            return False
        at, between = max(at, one.end), _BETWEEN
    return _AROUND.fullmatch(text[at:]) is not None

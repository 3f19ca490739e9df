"""The messages that requests begin with, encoded once: many requests share them, and they are most of a short one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from app.core.messages import Message
from app.models.http.json_body import EncodedJSON, encoded
from app.models.wire.openai.history import WireMessage, wire_messages

SHARED = 16  # openings that are kept, the newest


class WiredOpening(Struct, frozen=True):
    """The messages of an opening in the wire format, and their JSON."""

    messages: Sequence[Message]  # a reference to them keeps their id unique
    wired: Sequence[WireMessage]
    json: EncodedJSON

    def with_rest(self, sent: Sequence[WireMessage]) -> EncodedJSON:
        """Return the JSON of `sent`, which begins with this opening; its last message may have been joined to."""
        begins = len(self.wired)
        if not begins or len(sent) == begins or sent[begins - 1] is not self.wired[-1]:
            return encoded(sent)
        return EncodedJSON(f"{self.json[:-1]},{encoded(sent[begins:])[1:]}")


class OpeningCache:
    """The openings of one model. Only tuples are kept, which cannot change; a new one is another opening."""

    def __init__(self, *, bare: bool) -> None:
        self._bare = bare
        self._known: dict[int, WiredOpening] = {}

    def wired(self, messages: Sequence[Message]) -> WiredOpening:
        """Return the opening. It has no native calls, attachments or times, so it is the same for all requests."""
        known = self._known.get(id(messages))
        if known is None:
            wired = wire_messages(messages, native=False, bare=self._bare)
            known = WiredOpening(messages, wired, encoded(wired))
            if isinstance(messages, tuple):
                self._known[id(messages)] = known
                if len(self._known) > SHARED:
                    del self._known[next(iter(self._known))]
        return known

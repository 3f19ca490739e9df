"""Going on with a reply that broke off, with the same model or another: as its prefix, or because a reminder asks so.

A server that can continue a message gets the text that was shown as the last one (`PrefixForm`), and goes on within a
word. Others get the reminder behind it, and may still begin anew: what their answer repeats of the text is left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.capabilities.server_profiles import PrefixForm

CANNOT = "{model} cannot go on with an answer that another model has begun. Ask again."


class PrefixRefused(Exception):
    """The server does not go on with a message: `failure` says why."""

    def __init__(self, failure: ProviderFailed) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Unfinished(Struct, frozen=True):
    """The text of the last reply, which is to go on, and the request without that and its reminder."""

    text: str
    before: ModelRequest

    def as_prefix(self, form: PrefixForm | None) -> ModelRequest | None:
        """Return the request that ends with the text, if there is one that the server goes on with."""
        if form is None or not self.text.strip() or (form.bare_end and self.text != self.text.rstrip()):
            return None
        return replace(self.before, messages=[*self.before.messages, Message("assistant", self.text)])


def unfinished(request: ModelRequest) -> Unfinished:
    """Return the last replies without calls as one; without text if anything but the reminder follows them."""
    messages = request.messages
    reminders = (at for at in reversed(range(len(messages))) if request.go_on and messages[at].text == request.go_on)
    begin = end = next(reminders, len(messages))
    while begin and messages[begin - 1].cut and not messages[begin - 1].calls:
        begin -= 1
    shown = (message.text if message.shown is None else message.shown for message in messages[begin:end])
    before = [*messages[:begin], *messages[end + 1 :]]
    return Unfinished("".join(shown), replace(request, messages=before))


async def without_repetition(pieces: AsyncGenerator[Piece, None], shown: str) -> AsyncGenerator[Piece, None]:
    """Yield an answer without the text that was shown before, if it begins with that; or if that is all of it."""
    begun, shown = "", shown.strip()
    async with aclosing(pieces):
        async for piece in pieces:
            if shown and isinstance(piece, TextChunk):
                begun = (begun + piece.text).lstrip()
                if shown.startswith(begun):
                    continue
                piece, shown = TextChunk(begun.removeprefix(shown)), ""
            elif begun and shown and not isinstance(piece, Finished):
                yield TextChunk(begun)
                shown = ""
            yield piece

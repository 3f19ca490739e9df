"""Going on with a reply of another model that broke off: as its prefix, or because a reminder asks so.

A server that can continue a message gets the text that was shown as the last one (`PrefixForm`), and goes on within a
word. Others get the reminder behind it, and may still begin anew: what their answer repeats of the text is left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from io import StringIO

from msgspec import Struct
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.capabilities.server_profiles import PrefixForm
from parsing import CallOpened
from parsing.dialects import FENCED

CANNOT = "{model} cannot go on with an answer that another model has begun. Ask again."


class PrefixRefused(Exception):
    """The server does not go on with a message: `failure` says why."""

    def __init__(self, failure: ProviderFailed) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Unfinished(Struct, frozen=True):
    """The text of the last reply, which is to go on, and the request without that and its reminder.

    There is none if the reply has calls, which are to be made again, or if anything stands between the two.
    """

    text: str
    before: ModelRequest | None

    def as_prefix(self, form: PrefixForm | None) -> ModelRequest | None:
        """Return the request that ends with the text, if there is one that the server goes on with."""
        before, text = self.before, self.text
        if form is None or before is None or not text.strip() or (form.bare_end and text != text.rstrip()):
            return None
        return replace(before, messages=[*before.messages, Message("assistant", text)])


def unfinished(request: ModelRequest) -> Unfinished:
    """Return the replies in a row that broke off as one."""
    messages = request.messages
    reminders = (at for at in reversed(range(len(messages))) if request.go_on and messages[at].text == request.go_on)
    begin = end = at = next(reminders, len(messages))
    while at and (messages[at - 1].cut or messages[at - 1].role == "tool"):
        at -= 1
        begin = at if messages[at].cut else begin  # the results in front of it are those of the round before
    replies = [message for message in messages[begin:end] if message.cut]
    calls = [call for message in replies for call in message.calls]
    if any(call.dialect == FENCED.name for call in calls):  # the block that is shown is the call itself
        return Unfinished("", None)
    shown = (message.text if message.shown is None else message.shown for message in replies)
    before = replace(request, messages=[*messages[:begin], *messages[end + 1 :]])
    return Unfinished("".join(shown), None if calls or len(replies) < end - begin else before)


async def without_repetition(pieces: AsyncGenerator[Piece, None], shown: str) -> AsyncGenerator[Piece, None]:
    """Yield an answer without the text that was shown before: all of that, or as much as the answer has."""
    begun, same, shown = StringIO(), 0, shown.lstrip()
    async with aclosing(pieces):
        async for piece in pieces:
            if shown and isinstance(piece, TextChunk):
                begun.write(piece.text)
                new = piece.text if same else piece.text.lstrip()
                if shown.startswith(new, same):
                    same += len(new)
                    continue
                left = len(shown) - same
                piece = TextChunk(new[left:] if new.startswith(shown[same:]) else begun.getvalue())
                shown = ""
            elif begun.tell() and shown and not same and isinstance(piece, CallOpened | Finished):  # it is white space
                yield TextChunk(begun.getvalue())
                shown = ""
            yield piece

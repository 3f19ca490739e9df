"""How many bytes of pictures and PDFs one request carries: each round sends them again, and servers take so many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.messages import Message, in_words

MOST_BYTES = 24_000_000  # 32 MB as base64, which is the least that the large services take


def weight(message: Message) -> int:
    return sum(one.size for one in message.attachments)


def lightened(messages: Sequence[Message], most: int = MOST_BYTES) -> list[Message]:
    """The messages with the files of the latest, up to `most` bytes; those of earlier ones are told of in words.

    The last message that has files keeps them: it may be the one that is to be answered.
    """
    light, carried, last = list(messages), 0, True
    for at in reversed([at for at, message in enumerate(messages) if message.attachments]):
        carried += weight(messages[at])
        if carried > most and not last:
            light[at] = replace(messages[at], text=in_words(messages[at]), attachments=())
        last = False
    return light

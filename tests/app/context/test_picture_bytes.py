"""Bytes of pictures in one request: the latest are sent, and a server that takes fewer gets fewer."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.compaction.trim import attachment_bytes, limit_attachments
from app.core.attachments import Attachment
from app.core.messages import Message, in_words
from tests.support.models.chatting import DONE, LIMIT_S, chat_with, chunk, says
from tests.support.models.pictures import image_part, png
from tests.support.models.upstream import Upstream, answer, stream, upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

CAT = Attachment("a" * 64, "image/png", 1, "cat.png", 80, 60)
SIZES = st.lists(st.lists(st.integers(1, 50), max_size=3), max_size=8)
ROOM = 110_000  # bytes of a body that the server takes: two pictures and the prompt, not three
LARGE = [png(tail=bytes([at]) * 30_000) for at in range(3)]
WELL = stream(says("I see."), chunk(finish="stop"), DONE)


def shows(*sizes: int) -> Message:
    return Message("user", "See", attachments=tuple(replace(CAT, size=size) for size in sizes))


@given(SIZES, st.integers(0, 120))
def test_the_latest_are_sent_and_the_last_in_any_case(sizes: list[list[int]], most: int) -> None:
    messages = [shows(*row) for row in sizes]
    light = limit_attachments(messages, most)
    pictured = [at for at, message in enumerate(messages) if message.attachments]
    sent = [at for at in pictured if light[at].attachments]
    assert sent == pictured[len(pictured) - len(sent) :], "none is left out behind one that is sent"
    assert sent[-1:] == pictured[-1:]
    assert len(sent) <= 1 or sum(attachment_bytes(light[at]) for at in sent) <= most
    more = pictured[: len(pictured) - len(sent)][-1:]
    assert all(sum(attachment_bytes(messages[at]) for at in [*more, *sent]) > most for _ in more)
    assert all(light[at].text == in_words(messages[at]) for at in pictured if at not in sent)


@pytest.mark.parametrize(
    ("turns", "outcome", "sent"),
    [(LARGE, "run.finished", [1, 2, 3, 1]), ([LARGE[0] * 5], "run.failed", [1])],
    ids=["one after the other", "one that is too large by itself"],
)
async def test_a_body_that_is_too_long_is_made_shorter_and_says_nothing_of_the_window(
    tmp_path: Path, turns: list[bytes], outcome: str, sent: list[int]
) -> None:
    """Pictures of earlier turns become words; what is sent now cannot."""
    opened: list[Upstream] = []

    async def say(reader: StreamReader, writer: StreamWriter) -> None:
        short = len(opened[0].asked[-1].body) < ROOM
        await (WELL if short else answer('{"error": "request entity too large"}', 413))(reader, writer)

    async with asyncio.timeout(LIMIT_S), upstream(say, repeat=True, chats=True) as model, chat_with(model) as chat:
        opened.append(model)
        async with serving(tmp_path, chat, window=32_768) as served:
            events = await served.chat([image_part(turns[0])])
            for data in turns[1:]:
                events = await served.chat([image_part(data)], session=events[0]["session"])
            assert events[-1]["type"] == outcome
            assert served.services.models.default.counter.known_window == 32_768
    assert [asked.body.count(b'"image_url":{') for asked in model.asked] == sent

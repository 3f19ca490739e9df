"""Pictures and PDFs on the wire, in OpenAI's form; and what they count for."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from app.core.attachments import CANNOT, PDF, Attachment, described
from app.core.clock import Clock
from app.core.messages import Message
from app.core.provider import ModelRequest
from app.models.http.json_body import encode
from app.models.scripted import Scripted
from app.models.tokens.counter import TokenCounter
from app.models.tokens.picture_tokens import tokens_of
from app.models.wire.attachment_parts import LARGE, Encoded, encoded_files
from app.models.wire.openai.history import wire_messages

pytestmark = pytest.mark.anyio

CAT = Attachment("a" * 64, "image/png", 3, "cat.png", 750, 1000)
DOG = Attachment("b" * 64, "image/gif", 3)
LAW = Attachment("c" * 64, PDF, 3, pages=2)
FILES = {CAT.sha256: "Q0FU", DOG.sha256: "RE9H", LAW.sha256: "TEFX"}
CAT_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,Q0FU"}}
DOG_PART = {"type": "image_url", "image_url": {"url": "data:image/gif;base64,RE9H"}}
LAW_PART = {"type": "file", "file": {"filename": "document.pdf", "file_data": f"data:{PDF};base64,TEFX"}}


def words(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def user(text: str, *files: Attachment) -> Message:
    return Message("user", text, attachments=files)


WIRED: dict[str, tuple[list[Message], list[Any]]] = {
    "files before words": ([user("Look", CAT, LAW)], [[CAT_PART, LAW_PART, words("Look")]]),
    "files alone": ([user("", CAT)], [[CAT_PART]]),
    "two messages as one": ([user("One", CAT), user("Two", DOG)], [[CAT_PART, words("One"), DOG_PART, words("Two")]]),
    "words after files": ([user("One", CAT), user("Two")], [[CAT_PART, words("One"), words("Two")]]),
    "words before files": ([user("One"), user("", CAT)], [[words("One"), CAT_PART]]),
    "words alone": ([user("One"), user("Two")], ["One\n\nTwo"]),
}


@pytest.mark.parametrize("name", WIRED)
@pytest.mark.parametrize("native", [True, False])
def test_files_on_the_wire(name: str, *, native: bool) -> None:
    history, expected = WIRED[name]
    wired = wire_messages(history, native=native, files=FILES)
    assert wired == [{"role": "user", "content": content} for content in expected]


def test_what_has_no_bytes_is_described() -> None:
    [wired] = wire_messages([user("Look", CAT)], native=False)
    assert wired["content"] == f"{described(CAT)}\nLook"


def test_the_time_stands_in_the_words() -> None:
    clock = Clock("UTC")
    [wired] = wire_messages([Message("user", "", at=0.0, attachments=(CAT,))], native=False, clock=clock, files=FILES)
    assert wired["content"] == [CAT_PART, words(clock.stamped("", 0.0))]


def body(request: ModelRequest, files: Encoded) -> dict[str, Any]:
    return {"messages": wire_messages(request.messages, native=True, files=files)}


async def test_each_file_is_read_once_and_written_the_same_way() -> None:
    asked = list[str]()
    large = bytes(LARGE + 1)

    async def read(sha256: str) -> bytes:
        asked.append(sha256)
        return large if sha256 == LAW.sha256 else b"x"

    request = ModelRequest([user("x", CAT, CAT), user("y", CAT, LAW)], read=read)
    first, second = await encoded_files(request), await encoded_files(request)
    assert sorted(asked) == sorted(2 * [CAT.sha256, LAW.sha256])
    once, twice = (one.put_into(encode(body(request, one.marks))) for one in (first, second))
    assert once == twice
    whole = {CAT.sha256: "eA==", LAW.sha256: b64encode(large).decode()}
    assert once == encode(body(request, whole)), "marks are but places"
    assert (await encoded_files(ModelRequest([user("x", CAT)]))).put_into(b"{}") == b"{}"


def test_pictures_count_by_the_rules_of_their_model() -> None:
    counter = TokenCounter(Scripted([], model="claude-sonnet-4-5"))
    plain = counter.measure(user("Look"))
    assert counter.measure(user("Look", CAT)) == plain + 1000
    assert counter.measure(user("Look", LAW)) == plain + tokens_of(LAW, "claude-sonnet-4-5")
    counter.learn(100, 300)
    assert counter.measure(user("", CAT)) - counter.measure(user("")) == 1000, "texts teach nothing of pictures"
    counter.sees = lambda ability: ability == "pdf"
    described_as = counter.measure(user("Look", CAT)) - counter.measure(user("Look"))
    assert described_as < 2 * len(described(CAT, CANNOT))

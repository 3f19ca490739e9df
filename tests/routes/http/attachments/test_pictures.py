"""Pictures that calls return: stored, reported, and given to a model that can see; to others in words."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp_types import Annotations, CallToolResult, ImageContent, TextContent

from app.core.attachments import Attachment
from app.core.messages import PICTURES, Message, with_pictures_apart
from app.core.provider import Ability, PictureChunk, ProviderNotice
from app.models.scripted import Scripted
from app.models.wire.openai.pictures import ReplyPictures
from parsing import Call
from tests.support.access.people import LIMIT_S, bearer
from tests.support.mcp.served import READS, serving_mcp
from tests.support.models.pictures import CAT, gif, hashed, jpeg, png, webp
from tests.support.models.scripted_models import Blind
from tests.support.server.serving import serving
from tools.base.outcome import MOST_BYTES, MOST_PICTURES, is_picture, shown_pictures
from tools.mcp.results import pictures_of

pytestmark = pytest.mark.anyio


class Sighted(Scripted):
    def abilities(self) -> Sequence[Ability]:
        return [Ability("images", True, "server", "/props")]


def read(*paths: str) -> list[Call]:
    return [Call(number, "read_file", {"path": path}, "native") for number, path in enumerate(paths)]


def workspace(folder: Path) -> None:
    (folder / "work").mkdir()
    (folder / "work/cat.png").write_bytes(CAT)
    (folder / "work/fly.gif").write_bytes(gif())


async def test_a_picture_is_stored_reported_and_seen(tmp_path: Path) -> None:
    workspace(tmp_path)
    model = Sighted([read("cat.png", "fly.gif"), "A cat.", "Still a cat."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        events = await served.chat("What is it?")
        session = events[0]["session"]
        images = [event for event in events if event["type"] == "image"]
        assert [(one["sha256"], one["media_type"]) for one in images] == [
            (hashed(CAT), "image/png"),
            (hashed(gif()), "image/gif"),
        ]
        assert (images[0]["width"], images[0]["height"], images[0]["size"]) == (80, 60, len(CAT))
        calls = [event["call"] for event in events if event["type"] == "tool.finished"]
        assert [one["call"] for one in images] == calls
        answer = await served.client.get(f"/sessions/{session}/files/{hashed(CAT)}")
        assert (answer.content, answer.headers["content-type"]) == (CAT, "image/png")

        *_, first, second, shown = model.requests[-1].messages
        assert [(one.role, one.attachments) for one in (first, second)] == [("tool", ())] * 2
        assert "cat.png is a picture" in first.text
        assert (shown.role, shown.text, len(shown.attachments)) == ("user", PICTURES, 2)
        read_bytes = model.requests[-1].read
        assert read_bytes and await read_bytes(shown.attachments[0].sha256) == CAT
        before = [message.text for message in model.requests[-1].messages]
        await served.chat("Sure?", session=session)
        assert [message.text for message in model.requests[-1].messages][: len(before)] == before
        bob = await bearer(served, "bob", "admin")
        address = f"/sessions/{session}/files/{hashed(CAT)}"
        assert (await served.client.get(address, headers=bob)).status_code == 404


PAINTER = """
import base64, sys
from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("painter")


@server.tool()
def paint() -> Image:
    "A picture of a cat."
    return Image(data=base64.b64decode(sys.argv[1]), format="png")


server.run("stdio")
"""


async def test_a_picture_of_an_mcp_server_reaches_a_model_that_sees(tmp_path: Path) -> None:
    (tmp_path / "painter.py").write_text(PAINTER)
    painter = {"command": sys.executable, "args": [str(tmp_path / "painter.py"), base64.b64encode(CAT).decode()]}
    model = Sighted([[Call(0, "mcp__painter__paint", {}, "native")], "A cat."])
    async with serving_mcp(tmp_path, model, {"painter": painter}, tools=READS) as served:
        events = await served.chat("Paint.")
        [image] = [event for event in events if event["type"] == "image"]
        [finished] = [event for event in events if event["type"] == "tool.finished"]
        assert (image["sha256"], image["call"], image["width"]) == (hashed(CAT), finished["call"], 80)
        answer = await served.client.get(f"/sessions/{events[0]['session']}/files/{hashed(CAT)}")
        assert answer.content == CAT
        shown = model.requests[-1].messages[-1]
        read_bytes = model.requests[-1].read
        assert read_bytes and await read_bytes(shown.attachments[0].sha256) == CAT


async def test_a_model_that_cannot_see_gets_words(tmp_path: Path) -> None:
    workspace(tmp_path)
    model = Blind([read("cat.png"), "I cannot see it."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        events = await served.chat("What is it?")
        assert events[-1]["text"] == "I cannot see it."
        assert "no_vision" in [event.get("code") for event in events]
        last = model.requests[-1].messages[-1]
        assert "[picture, 80 x 60, image/png: this model cannot see it]" in last.text and not last.attachments


def test_pictures_of_an_mcp_server_are_those_for_the_model() -> None:
    def image(data: bytes, *audience: str) -> ImageContent:
        annotations = Annotations(audience=list(audience)) if audience else None  # type: ignore[arg-type]
        encoded = base64.b64encode(data).decode()
        return ImageContent(data=encoded, mime_type="image/png", annotations=annotations)

    pictures = [image(CAT), image(b"<svg/>"), image(jpeg(), "user"), image(webp(), "assistant")]
    content: list[Any] = [TextContent(text="x"), *pictures]
    assert pictures_of(CallToolResult(content=content)) == (CAT, webp())


def test_pictures_are_bounded() -> None:
    assert all(map(is_picture, (CAT, gif(), jpeg(), webp())))
    assert not is_picture(b"<svg/>")
    assert len(shown_pictures([png(tail=bytes([number])) for number in range(20)])) == MOST_PICTURES
    assert shown_pictures([png(tail=bytes(MOST_BYTES)), CAT]) == (CAT,)


def test_pictures_of_results_follow_all_results_of_a_reply() -> None:
    cat = Attachment("a" * 64, "image/png", 3)
    history = [
        *(Message("user", "x"), Message("assistant", "y")),
        *(Message("tool", "one", call="1", attachments=(cat,)), Message("tool", "two", call="2")),
        *(Message("assistant", "z"), Message("tool", "three", call="3", attachments=(cat,))),
    ]
    told = [*with_pictures_apart(history)]
    assert [message.text for message in told] == ["x", "y", "one", "two", PICTURES, "z", "three", PICTURES]
    assert [len(message.attachments) for message in told] == [0, 0, 0, 0, 1, 0, 0, 1]
    assert [*with_pictures_apart(history[:2])] == history[:2]


async def test_a_picture_of_the_model_is_stored_reported_and_seen_again(tmp_path: Path) -> None:
    model = Sighted([["Here: ", PictureChunk(CAT)], "As you see.", [PictureChunk(png())], "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        events = await served.chat("Draw a cat.")
        session = events[0]["session"]
        [image] = [event for event in events if event["type"] == "image"]
        assert (image["sha256"], image["size"], image["width"], "call" in image) == (hashed(CAT), len(CAT), 80, False)
        stored = await served.client.get(f"/sessions/{session}/files/{image['sha256']}")
        assert stored.content == CAT
        await served.chat("And?", session=session)
        _, own, _ = [message for message in model.requests[-1].messages if message.role == "user"]
        assert own.text == PICTURES and [one.sha256 for one in own.attachments] == [hashed(CAT)]
        alone = (await served.chat("Only a picture.", session=session))[-1]
        assert (alone["type"], alone["reason"], len(model.requests)) == ("run.finished", "answered", 3)


DATA_URL = "data:image/png;base64," + base64.b64encode(png()).decode()


@pytest.mark.parametrize(
    ("delta", "kept"),
    [
        ({"images": [{"type": "image_url", "image_url": {"url": DATA_URL}}]}, 1),
        ({"images": [{"image_url": DATA_URL}, {"image_url": {"url": DATA_URL}}]}, 1),
        ({"content": [{"type": "image_url", "image_url": {"url": DATA_URL}}]}, 1),
        ({"images": [{"image_url": {"url": "https://example.com/cat.png"}}]}, 0),
        ({"images": [{"image_url": {"url": "data:image/png;base64,%%%"}}]}, 0),
        ({"images": [{"image_url": {"url": "data:image/png;base64,\u00e9"}}]}, 0),
        ({"images": [{"image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}}]}, 0),
        ({"images": [{"image_url": {"url": DATA_URL + "A" * 4 * MOST_BYTES}}]}, 0),
    ],
)
def test_pictures_of_a_reply_are_decoded_or_counted(delta: dict[str, Any], kept: int) -> None:
    pictures = ReplyPictures()
    assert [one.data for one in pictures.read(delta)] == [png()] * kept
    assert [type(one) for one in pictures.close()] == ([] if kept else [ProviderNotice])


def test_pictures_of_a_reply_are_bounded_and_strange_fields_are_passed_by() -> None:
    pictures = ReplyPictures()
    urls = ["data:image/png;base64," + base64.b64encode(png(tail=bytes([n]))).decode() for n in range(9)]
    assert len([*pictures.read({"images": [{"image_url": url} for url in urls]})]) == MOST_PICTURES
    [notice] = pictures.close()
    assert notice.code == "picture" and notice.message.startswith("1 of the model's pictures")
    links = [{"image_url": f"https://example.com/{number}.png"} for number in range(MOST_PICTURES)]
    assert len([*ReplyPictures().read({"images": [*links, {"image_url": DATA_URL}]})]) == 1, "links take no place"
    for strange in ({"images": "x"}, {"images": [None, 3, {"image_url": None}]}, {"content": ["x", {}]}, {}):
        assert [*ReplyPictures().read(strange)] == []

"""Long results over HTTP: told by head and tail, kept whole, read by pages by their own conversation alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from app.core.messages import Message
from app.core.provider import ModelRequest, Piece, TextChunk
from app.models.scripted import Scripted
from app.policy.guards import WITHHELD
from tests.support.access.guards import kept
from tests.support.server.events import of_kind
from tests.support.server.serving import serving, until
from tools.base.output_buffer import TEXT_CHARACTERS

pytestmark = pytest.mark.anyio

LIMIT_S = 60
LONG = "```bash\nseq 20000\n```\n"  # 108,894 characters
NUMBERS = "".join(f"{number}\n" for number in range(1, 20_001)).rstrip("\n")
READ = '```read_result\n{"call": "CALL", "offset": OFFSET}\n```\n'


class Reader(Scripted):
    """Scripted; in its lines CALL is the first call that was answered, OFFSET what the last result says comes next.

    THEIRS is a call of somebody else.
    """

    theirs = ""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                yield TextChunk(self.filled(piece.text, results(request))) if isinstance(piece, TextChunk) else piece

    def filled(self, text: str, told: list[Message]) -> str:
        following = re.findall(r"offset=(\d+)", told[-1].text) if told else []
        first = told[0].call if told else None
        text = text.replace("THEIRS", self.theirs).replace("CALL", first or "")
        return text.replace("OFFSET", following[-1] if following else "0")


def results(request: ModelRequest) -> list[Message]:
    return [message for message in request.messages if message.role == "tool"]


async def test_a_long_output_is_paged_to_its_end_even_after_a_restart(tmp_path: Path) -> None:
    model = Reader([LONG, "Long.", *[READ] * 14, "Read."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, None, window="100000") as served:
        first = await served.chat("Count.")
    [told] = of_kind(first, "tool.finished")
    assert len(told["text"]) <= 8000
    head, gap, _ = told["text"].partition("\n[... ")
    assert gap and NUMBERS.startswith(head)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, None, window="100000") as served:
        events = await served.chat("Read it.", session=first[0]["session"])
    pages = [event["text"].rpartition("\n") for event in of_kind(events, "tool.finished")]
    assert head + "".join(page for page, _, _ in pages) == NUMBERS and "This is the end" in pages[-1][-1]


async def test_more_than_is_kept_is_counted(tmp_path: Path) -> None:
    model = Reader(["```bash\nhead -c 1000000 /dev/zero | tr '\\0' x\n```\n", READ, "Read."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        _, page = of_kind(await served.chat("Go."), "tool.finished")
    assert int(re.findall(r" of ([\d,]+)\.", page["text"])[0].replace(",", "")) <= TEXT_CHARACTERS


async def test_all_lines_are_counted_whatever_is_stored(tmp_path: Path) -> None:
    """In the event, by the output's route while the run is remembered and after a restart; not of a short one."""
    model = Reader(["```bash\nseq 1 100000\n```\n", "```bash\nseq 1 10\n```\n", "Counted."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        events = await served.chat("Count.")
        long, short = of_kind(events, "tool.finished")
        path = f"/runs/{events[0]['run']}/calls/{long['call']}/output"
    assert (long["lines"], "lines" in short) == (100_000, False) and long["bytes"] >= 588_895
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        part = (await served.client.get(path)).json()
    assert part["lines"] == 100_000


async def test_other_sessions_cannot_read_it(tmp_path: Path) -> None:
    model = Reader([LONG, "Long.", "```read_result\nTHEIRS\n```\n", "No."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        [told] = of_kind(await served.chat("Count."), "tool.finished")
        model.theirs = told["call"]
        [page] = of_kind(await served.chat("Whose is it?"), "tool.finished")
    assert not page["ok"] and "no result of a call" in page["text"]


async def test_without_the_tool_nobody_is_sent_there(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Reader([LONG, "Long."])) as served:
        [told] = of_kind(await served.chat("Count.", tools=["bash"]), "tool.finished")
    assert "characters left out" in told["text"] and "read_result" not in told["text"]


async def test_strangers_words_taint_whoever_reads_them_again(tmp_path: Path) -> None:
    flags = {"tools": '[{"match": "bash", "untrusted": true}]'}
    model = Reader([LONG, READ, "```write_file\n.envrc\nplanted\n```\n", "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, None, **flags) as served:
        async with aclosing(served.turn(message="Count.")) as turn:
            question = await until(turn, "approval.required")
        assert question["name"] == "write_file" and "untrusted text" in question["reason"]
        told = results(model.requests[-1])
        assert [message.untrusted for message in told] == [True, True] and "[Characters" in told[-1].text
        await served.client.delete(f"/sessions/{(await served.client.get('/sessions')).json()['sessions'][0]['id']}")


async def test_what_was_withheld_is_not_kept_either(tmp_path: Path) -> None:
    flags = {"tools": '[{"match": "bash", "untrusted": true}]', "screen_results": "true", "taint": "false"}
    model = Reader([LONG, "UNSAFE", READ, "UNSAFE", "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, None, **flags) as served:
        first, again = of_kind(await served.chat("Count."), "tool.finished")
    assert first["text"] == again["text"] == WITHHELD
    assert b"\\n9999\\n" not in kept(tmp_path) and b"\n9999\n" not in kept(tmp_path)


@pytest.mark.parametrize("before", [3900, 3925, 3930, 3935, 8000])
async def test_a_secret_at_the_cut_is_hidden_in_all_that_is_told_and_kept(tmp_path: Path, before: int) -> None:
    key = "sk-sesame-0123456789abcdef-please"
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "long").write_text("a" * before + key + "b" * 20_000)
    model = Reader(["```bash\ncat long\n```\n", READ, "Read."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, None, model_key=key) as served:
        told, page = of_kind(await served.chat("Go."), "tool.finished")
    shown = told["text"] + page["text"]
    assert not any(key[:length] in shown or key[-length:] in shown for length in (8, 16))
    assert key.encode() not in kept(tmp_path)


async def test_the_limit_is_a_setting_and_pages_of_files_fit_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "long").write_text("".join(f"line {number}\n" for number in range(900)))
    model = Reader([LONG + "```read_file\nlong\n```\n", "Read."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, None, result_characters="600") as served:
        told, page = of_kind(await served.chat("Go."), "tool.finished")
    assert len(told["text"]) <= 600 and len(page["text"]) <= 600
    assert "left out" in told["text"] and "left out" not in page["text"] and "Next page: offset=" in page["text"]

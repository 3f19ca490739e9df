"""The frames of a lane on their way: in few pieces, none of them empty or long, closed in the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager

import pytest

from app.storage.runs import EventRow
from routes.lanes.streams import lane_frames
from routes.protocol.sse import PIECE, Last

pytestmark = pytest.mark.anyio


class Log:
    """Pages of rows, as a run's log gives them. A row's data is its frame; `STOP` in it ends the stream."""

    def __init__(self, *pages: Sequence[str], terminal: str = "run.finished") -> None:
        self._pages = pages
        self._terminal = terminal
        self.closed = False
        self.attended: list[str] = []
        self.over = False

    async def pages(self) -> AsyncGenerator[Sequence[EventRow], None]:
        try:
            seq, last = 0, sum(map(len, self._pages))
            for page in self._pages:
                rows = list[EventRow]()
                for data in page:
                    seq += 1
                    kind = self._terminal if seq == last else "text.delta"
                    rows.append(EventRow("run_1", seq, kind, data))
                yield rows
        finally:
            self.closed = True

    def frames(self, row: EventRow) -> str:
        self.over = self.over or "STOP" in row.data
        return row.data

    @contextmanager
    def attending(self) -> Iterator[None]:
        self.attended.append("enters")
        yield
        self.attended.append("leaves")

    async def pieces(self) -> list[bytes]:
        async with aclosing(lane_frames(self.pages(), self, self.attending())) as frames:
            return [piece async for piece in frames]


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ([["a"], ["b"], ["end"]], [b"a", b"b", b"end"]),
        ([["a", "b", "end"]], [b"abend"]),
        ([["a"], [""], ["", ""], ["", "b"], ["end"]], [b"a", b"b", b"end"]),
        ([["a"], [""]], [b"a"]),
        ([["a"], ["b STOP", "c"], ["end"]], [b"a", b"b STOP"]),
        ([["a STOP"], ["end"]], [b"a STOP"]),
    ],
)
async def test_frames_leave_together_and_none_is_empty(pages: list[list[str]], expected: list[bytes]) -> None:
    log = Log(*pages)
    assert await log.pieces() == expected
    assert log.closed and log.attended == ["enters", "leaves"]


async def test_the_last_piece_says_so() -> None:
    *others, last = await Log(["a"], ["b", "end"]).pieces()
    assert type(last) is Last and not any(type(one) is Last for one in others)
    assert type((await Log(["a", "STOP"], ["end"]).pieces())[-1]) is Last


async def test_a_piece_is_not_long_unless_a_frame_is() -> None:
    long = "x" * (PIECE + 1)
    pieces = await Log([*["y" * 5000] * 9, long, "end"]).pieces()
    assert b"".join(pieces) == b"y" * 45_000 + long.encode() + b"end"
    assert all(len(piece) <= PIECE or piece == long.encode() for piece in pieces)

"""A run that the server has stopped is no answer that reached a limit: each lane ends with its error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from starlette.types import Message

from app.core.events import RoundStarted, RunFinished, TextDelta, ToolStarted
from app.runs.connections import OpenStream
from app.storage.runs import EventRow
from routes.lanes.catalogue import LANES
from routes.lanes.errors import STOPPED, failure_of, openai_error
from routes.lanes.lane import Lane
from routes.lanes.responses.response import STOPPED_CODES
from routes.lanes.streams import collected
from tests.support.lanes.logs import STARTED, rows_of, turn_of

END = "data: [DONE]"


class Anywhere:
    """The places of streams, which are not counted."""

    def leave(self, place: OpenStream) -> None:
        """Do nothing."""


def ends_in(name: str, last: list[dict[str, Any]]) -> str:
    """The message of the error that a stream ends in."""
    match name, last:
        case "chat", [*_, {"error": {"message": str(message)}}]:
            return message
        case "messages", [*_, {"type": "error", "error": {"message": str(message)}}]:
            return message
        case "responses", [*_, {"type": "response.failed", "response": {"error": {"message": str(message)}}}]:
            return message
        case "ag_ui", [*_, {"type": "RUN_ERROR", "message": str(message)}]:
            return message
        case "ui_message_stream", [*_, {"errorText": str(message)}, _, {"type": "finish", "finishReason": "error"}]:
            return message
    raise AssertionError(last)


@pytest.mark.parametrize("lane", LANES, ids=[lane.name for lane in LANES])
@pytest.mark.parametrize("reason", STOPPED)
def test_a_stream_ends_in_an_error(lane: Lane, reason: str) -> None:
    end = RunFinished(reason, "Half", 1, 0, {})
    encoder = lane.encoder(turn_of())
    rows = rows_of(STARTED, RoundStarted(1), TextDelta("Half"), ToolStarted("c1", "bash", {}, "native"), end)
    blocks = "".join(map(encoder.frames, rows)).split("\n\n")[:-1]
    data = [json.loads(block.partition("data: ")[2]) for block in blocks if block != END]
    assert ends_in(lane.name, data) == STOPPED[reason]["message"]


def test_each_end_has_codes_that_clients_know() -> None:
    assert STOPPED_CODES.keys() == STOPPED.keys()
    statuses = {reason: openai_error(failure_of(failed))[0] for reason, failed in STOPPED.items()}
    assert statuses == {"server_stopped": 503, "paused": 503, "revoked": 401}


@pytest.mark.anyio
async def test_an_answer_as_a_whole_is_none_when_its_run_goes_on_at_another_server() -> None:
    async def pages() -> AsyncGenerator[Sequence[EventRow], None]:
        yield rows_of(STARTED, RoundStarted(1), TextDelta("Half"))

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    answer = await collected(pages(), receive, OpenStream(Anywhere(), "ann"), asks=True)
    assert answer.reason in STOPPED

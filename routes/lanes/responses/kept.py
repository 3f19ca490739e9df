"""Responses that are kept: found by their ids, and read from the log of their run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.core.events import ApprovalRequired
from app.storage.principals import Principal
from app.storage.runs import ALL, EventRow, RunRow
from app.transcript.run_request import NotFound
from routes.lanes.answer import Answer
from routes.lanes.event_text import fields_of
from routes.lanes.kept_turns import kept_turn
from routes.lanes.lane import Turn
from routes.lanes.models import AGENT
from routes.lanes.responses.encoder import ResponseEncoder
from routes.lanes.responses.ids import ResponseId, approval_id, approval_place, item_place, response_id, response_place
from routes.lanes.responses.response import NAME, whole
from routes.protocol.errors import Refused
from routes.services import Services

NO_ITEM = "is not kept here; send the items themselves, as clients do with store: false"


class KeptResponse(Struct, frozen=True):
    """A response, and the row of its run."""

    turn: Turn
    row: RunRow


class KeptResponses(Struct, frozen=True):
    """The kept responses of one principal."""

    services: Services
    principal: Principal

    async def find(self, response: str) -> KeptResponse:
        """Raises Refused with 404: also for others' responses, and for those that are not kept."""
        place = response_place(response)
        if place and (found := await self._at(place)):
            return found
        raise Refused(404, "not_found", f"There is no response {response[:80]!a}, or it was sent with store: false.")

    async def whole(self, response: KeptResponse) -> dict[str, Any]:
        """The response as far as it has come."""
        return whole(answer_of(await self._rows(response), response.turn), response.turn)

    async def output(self, response: KeptResponse) -> dict[str, dict[str, Any]]:
        """The items of its output by id, as it is streamed and as it is given whole."""
        rows = await self._rows(response)
        encoder = ResponseEncoder(response.turn)
        for row in rows:
            encoder.frames(row)
        items = [*encoder.output, *whole(answer_of(rows, response.turn), response.turn)["output"]]
        return {item["id"]: item for item in items}

    async def _rows(self, response: KeptResponse) -> Sequence[EventRow]:
        return await self.services.store.events(response.row.id, 0, ALL)

    async def _at(self, place: ResponseId) -> KeptResponse | None:
        try:
            row = await self.services.runs.run(place.run, self.principal)
        except NotFound:
            return None
        turn = kept_turn(row, NAME, place.after)
        if turn is None or not await self._exists(place, row):
            return None
        echo = turn.request.echo
        if place.after:
            (question,) = await self.services.store.events(row.id, place.after - 1, 1)
            call = fields_of(question)["call"]
            echo = echo | {"approvals": {call: approval_id(row.id, place.after, call)}}
        request = replace(turn.request, echo=echo)
        return KeptResponse(replace(turn, model=turn.model or AGENT, request=request), row)

    async def _exists(self, place: ResponseId, row: RunRow) -> bool:
        """False for a log that was deleted, and for a number at which no response ended."""
        first = await self.services.store.events(place.run, max(0, place.after - 1), 1)
        if place.after:
            return bool(first) and first[0].seq == place.after and first[0].type == ApprovalRequired.type
        return bool(first) or row.ended is None


def answer_of(rows: Sequence[EventRow], turn: Turn) -> Answer:
    """The answer of a turn: behind the event that it begins with, up to one that its client is asked about."""
    answer = Answer()
    for row in rows:
        if row.seq > turn.after:
            answer.add(row)
            if turn.request.asks and row.type == ApprovalRequired.type:
                break
    return answer


async def with_items(services: Services, principal: Principal, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request with the items that it only refers to. Raises Refused if one is not kept."""
    given = body.get("input")
    if not isinstance(given, list) or not any(map(is_reference, given)):
        return body
    kept, known = KeptResponses(services, principal), dict[str, dict[str, dict[str, Any]]]()
    items = []
    for at, item in enumerate(given):
        if not is_reference(item):
            items.append(item)
        elif approval_place(item["id"]) is None:  # its answer, which follows, says all
            items.append(await _item(kept, known, item["id"], f"input.{at}.id"))
    return {**body, "input": items}


def is_reference(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "item_reference" and isinstance(item.get("id"), str)


async def _item(
    kept: KeptResponses, known: dict[str, dict[str, dict[str, Any]]], item: str, at: str
) -> Mapping[str, Any]:
    place = item_place(item)
    if place:
        response = response_id(place.run, place.after)
        if response not in known:
            try:
                known[response] = await kept.output(await kept.find(response))
            except Refused:  # it does not exist, or is another principal's
                known[response] = {}
        if found := known[response].get(item):
            return found
    raise Refused(400, "not_found", f"{at} {item[:80]!a} {NO_ITEM}.", param=at)

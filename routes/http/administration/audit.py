"""The audit, for admins: every decision, newest first, and the calls that were decided on."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from app.storage.audit import AuditFilter, AuditRow
from app.storage.store import Store
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse
from routes.protocol.numbers import LARGEST, query_number, whole_number
from routes.protocol.route import Query, Route, tagged
from routes.services import services_of

MOST, USUAL = 1000, 100  # rows that one answer has
MOST_WITH_CALLS = 100  # whose calls are looked up
SHORT = 200  # characters of a call in a list


async def list_audit(request: Request) -> Response:
    """Every decision, newest first. With `calls` the `arguments` of each call, long values shortened."""
    before, limit = query_number(request, "before", LARGEST), query_number(request, "limit", USUAL)
    wanted, with_calls = request.query_params, request.query_params.get("calls") == "1"
    only = AuditFilter(*(wanted.get(name, "") for name in ("principal", "action", "decision")))
    store = services_of(request).store
    rows = await store.audit(before, min(limit, MOST_WITH_CALLS if with_calls else MOST), only)
    shown = [decision_fields(number, row) for number, row in rows]
    if with_calls:
        for fields, (_, row) in zip(shown, rows, strict=True):
            fields["arguments"] = shortened(await arguments_of(store, row))
    return ASCIIResponse({"audit": shown})


async def show_audit(request: Request) -> Response:
    """A decision, with all arguments of its call. They are null once the conversation is deleted."""
    store, number = services_of(request).store, whole_number(request.path_params["number"])
    rows = await store.audit(number + 1, 1) if number is not None else []
    if not rows or rows[0][0] != number:
        raise NotFound("There is no such row. GET /audit lists them.")
    row = rows[0][1]
    return ASCIIResponse(decision_fields(number, row) | {"arguments": await arguments_of(store, row)})


def decision_fields(number: int, row: AuditRow) -> dict[str, Any]:
    """A decision as JSON, without the facts that it rested on: these are for other rules."""
    fields = {"number": number} | asdict(row)
    del fields["facts"]
    return fields


async def arguments_of(store: Store, row: AuditRow) -> dict[str, Any] | None:
    """The arguments of the call that was decided on, from the approval or else the log.

    The audit itself keeps a fingerprint of them.
    """
    if row.run is None or row.call is None:
        return None
    if approval := await store.approval(row.run, row.call):
        found = json.loads(approval.edited or approval.arguments)
    else:
        events = (json.loads(event.data) for event in await store.call_events(row.run, row.call))
        found = next((event["arguments"] for event in events if "arguments" in event), None)
    return found if isinstance(found, dict) else None


def shortened(arguments: dict[str, Any] | None) -> dict[str, Any] | None:
    """The arguments with long values cut at a character."""
    if arguments is None:
        return None
    return {name: _short(value) for name, value in arguments.items()}


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= SHORT else f"{text[:SHORT]}…"


ROUTES = tagged(
    "Server",
    Route(
        "GET /audit",
        list_audit,
        rights="admin",
        answer={"audit": ["@Decision"]},
        query=(
            Query("before", "the number of the last row of the page before", "integer"),
            Query("limit", "at most so many rows", "integer"),
            Query("principal", "of this person"),
            Query("action", "that begins so, as `bash`"),
            Query("decision", "with this decision"),
            Query("calls", "1: with the arguments of the calls, shortened"),
        ),
    ),
    Route("GET /audit/{number}", show_audit, rights="admin", answer="@Decision"),
)

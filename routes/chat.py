"""POST /chat: one turn, streamed; or only begun, for those who say `Prefer: respond-async`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.store import RunRow
from app.turns import Turn
from routes.errors import ASCIIResponse
from routes.parts import file_limits
from routes.requests import ChatRequest, idempotency_key, read_message
from routes.services import asker, services_of
from routes.sse import event_stream


async def chat(request: Request) -> Response:
    """Starts a run and streams its events. Leaving does not stop it, unless `on_disconnect` says so."""
    services, principal = services_of(request), asker(request)
    wish = await read_message(request, ChatRequest, services.settings.max_message_bytes, file_limits(services.settings))
    limit_s = services.limits(wish).seconds
    key = idempotency_key(request, wish)
    turn = Turn(wish.text, wish.session, wish.when_busy, key, limit_s, wish.policy(), files=wish.files)
    with services.presence.place(principal) as place:
        row = await services.runs.start(services.agent(principal, wish), principal, turn)

    if request.headers.get("prefer") == "respond-async":  # RFC 7240: who watches elsewhere needs no stream here
        place.leave()
        return accepted(row)

    async def stop(_: object) -> None:
        await services.runs.cancel(row.id)

    return event_stream(place, services.runs, row, on_leave=stop if wish.on_disconnect == "cancel" else None)


def accepted(row: RunRow) -> Response:
    """202 for a run that has been begun."""
    named = {"X-Run-Id": row.id, "X-Session-Id": row.session, "Preference-Applied": "respond-async"}
    return ASCIIResponse({"run": row.id, "session": row.session, "state": row.state}, 202, named)

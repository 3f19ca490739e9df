"""POST /chat: one turn, streamed."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from routes.requests import read_chat
from routes.services import asker, services_of
from routes.sse import event_stream


async def chat(request: Request) -> Response:
    """Starts a run and streams its events; leaving does not stop it."""
    services, principal = services_of(request), asker(request)
    wish = await read_chat(request, services.settings.max_message_bytes)
    agent = services.agent(principal, wish)
    row = await services.runs.start(agent, principal, wish.text, wish.session)
    return event_stream(services.runs, row)

"""POST /chat: one turn, streamed; or only started, with `Prefer: respond-async`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.storage.people.members import bot_of, member_name
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.transcript.run_request import CallResult, ConversationMoved, RunRequest
from routes.access.members import CONVERSATION_HEADER, outside_name
from routes.http.branching.branches import files_of_run
from routes.http.session_labels import known_labels
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.message_parts import file_limits
from routes.protocol.requests import ChatRequest, key_of, read_message
from routes.protocol.route import Body, Route, tagged
from routes.protocol.sse import event_stream
from routes.services import Services, current_principal, services_of, traceparent_of
from tools.base.patterns import lazy_pattern

RESPOND_ASYNC = "respond-async"
QUOTED = lazy_pattern(r'"((?:[^"\\]|\\.)*)"?', re.DOTALL)  # what is in it separates nothing


async def chat(request: Request) -> Response:
    """Run one turn and stream its events.

    The headers `X-Run-Id` and `X-Session-Id` identify it. See [the body](#the-body-of-post-chat). Disconnecting does
    not cancel the run, unless `on_disconnect` says so.
    """
    services = services_of(request)
    body = await read_message(request, ChatRequest, services.settings.max_message_bytes, file_limits(services.settings))
    principal = await _speaker(request, services, body.member)
    session, conversation = await _conversation(request, services, body, principal)
    limit_s = services.factory.limits(body).seconds
    key = key_of(request, body.fingerprint()) if "idempotency-key" in request.headers else None
    again = await files_of_run(services, principal, body.files_of, session) if body.files_of else []
    results = [CallResult(one.call, one.text) for one in body.tool_results]
    turn = RunRequest(
        body.text,
        session,
        conversation=conversation or "",
        when_busy=body.when_busy,
        key=key,
        time_limit_s=limit_s,
        policy=body.policy(),
        files=[*again, *body.files],
        results=results,
        labels=known_labels(services.settings, body.labels),
        traceparent=traceparent_of(request, services),
        tied=body.on_disconnect == "cancel",
    )

    async def begin() -> RunRow:
        now = turn
        while True:
            with suppress(ConversationMoved):
                agent = await services.factory.agent(principal, body, now.session)
                return await services.runs.start(agent, principal, now)
            session, _ = await _conversation(request, services, body, principal)
            now = replace(now, session=session)

    return await answered(request, begin, tied=turn.tied)


async def _speaker(request: Request, services: Services, member: str | None) -> Principal:
    """The principal of a request, which its body may name a member for. Raises Refused, TooSoon."""
    principal = current_principal(request)
    if member is None:
        return principal
    if not principal.member:
        principal = request.state.principal = await services.speakers.speaking(principal, member)
    elif principal.member != member_name(bot_of(principal.member), member):
        raise Refused(422, "invalid_request", "member is another one than X-Dragoman-Member names; send one of both")
    return principal


async def _conversation(
    request: Request, services: Services, body: ChatRequest, principal: Principal
) -> tuple[str | None, str | None]:
    """The session of a request, if there is one, and the conversation's key. Raises Refused."""
    header = outside_name(request.headers, CONVERSATION_HEADER)
    key = header if body.conversation is None else body.conversation
    if key is None:
        return body.session, None
    if header not in (None, key):
        raise Refused(422, "invalid_request", "conversation is another one than X-Dragoman-Conversation names")
    session = await services.store.keyed_session(principal.keeper, key, principal.name)
    if body.session is not None and body.session != session:
        where = f"is that of session {session}" if session else "has no session yet"
        raise Refused(422, "invalid_request", f"conversation {where}, not of {body.session[:40]!a}; send one of both")
    return session, key


async def answered(request: Request, begin: Callable[[], Awaitable[RunRow]], *, tied: bool = False) -> Response:
    """Begin a run and stream it; with `Prefer: respond-async` answer 202. Raises Refused and what `begin` raises.

    `tied`: a client that leaves its stream stops the run.
    """
    services, principal = services_of(request), current_principal(request)
    if RESPOND_ASYNC in preferences(request.headers.getlist("prefer")):
        if tied:
            message = "on_disconnect: cancel needs a stream to leave; leave it out, or leave out Prefer: respond-async"
            raise Refused(422, "invalid_request", message)
        services.presence.check(principal)
        row = await begin()
        named = {"X-Run-Id": row.id, "X-Session-Id": row.session, "Preference-Applied": RESPOND_ASYNC}
        return ASCIIResponse({"run": row.id, "session": row.session, "state": row.state}, 202, named)
    with services.presence.place(principal) as place:
        row = await begin()

    async def stop() -> None:
        await services.runs.cancel(row.id)

    return event_stream(place, services.runs, row, on_leave=stop if tied else None)


def preferences(headers: Sequence[str]) -> set[str]:
    """The names in `Prefer` headers that stand without a value, in lower case (RFC 7240)."""
    bare = (QUOTED.sub(lambda quoted: "value" if quoted[1] else "", header) for header in headers)
    named = (one.partition(";")[0].partition("=") for header in bare for one in header.split(","))
    return {name.strip().lower() for name, _, value in named if not value.strip()}


HEADERS = {
    "Idempotency-Key": "the same run answers if the request is sent again",
    "X-Dragoman-Conversation": "a key of yours for the conversation, as the field `conversation`",
    "X-Dragoman-Member": "the member of a bot's chat that speaks, as the field `member`; other routes read it, too",
    "Prefer": "`respond-async` answers 202 at once; the run is read with its events",
}
ROUTES = tagged(
    "Runs",
    Route(
        "POST /chat",
        chat,
        rights="user",
        accepted={"run": "text", "session": "text"},
        statuses=(200, 202),
        errors=(404, 409),
        body=Body(ChatRequest, {"message": "Print hello world with the shell."}),
        headers=HEADERS,
        stream="run",
    ),
)

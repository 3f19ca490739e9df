"""POST /sessions/{id}/compact: the older half of a conversation is summarised now."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.context.compaction.summarise import STARTED
from app.core.events import ContextSummarised, Notice, RunFailed
from app.core.profile_spec import LONGEST_MODEL
from app.core.strict_model import StrictModel
from app.runs.composition.compacting import check_compactable, compacting_agent, policy_kept
from app.runs.run_options import RunOptions
from app.storage.audit import AuditRow
from app.storage.runs import ALL, EventRow, RunRow
from app.transcript.run_request import RunRequest, SessionBusy
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of, traceparent_of

ACTION = "compact"  # in the audit log
WAIT_S = 40.0  # for the run: clients give an answer 45 s and more
UNKNOWN_END = "The run ended without a summary. The conversation is unchanged; send the request again."
FAILED = "summary_failed"


class CompactRequest(StrictModel):
    """The body of POST /sessions/{id}/compact, which may be left out: the model, as for POST /chat."""

    model: str | None = Field(default=None, min_length=1, max_length=LONGEST_MODEL)


async def compact_session(request: Request) -> Response:
    """Summarise the older half of a conversation now.

    `model` names the model of the [summary](#summaries-on-request) as for `POST /chat`. Answers when it is done: 202 if
    it waits longer, as for a person's consent. 409 `session_busy` while a run is active, `nothing_to_compact` where it
    is too short, 502 `summary_failed` with the reason: then nothing has changed.
    """
    services, principal = services_of(request), current_principal(request)
    session = await services.runs.session(request.path_params["session"], principal)
    body = await read_fields(request, CompactRequest, services.settings.max_message_bytes, empty=True)
    services.switch.check()
    if busy := await services.runs.under_way(session.id):
        raise SessionBusy(busy)
    options = await services.factory.resolved(principal, RunOptions(model=body.model), session.id)
    agent = await compacting_agent(services.factory, principal, options, session.id)
    await check_compactable(agent, services.store, session.id)

    def audited(row: RunRow) -> Sequence[AuditRow]:
        why = "asked for by a person"
        return [AuditRow(time.time(), row.principal, ACTION, "allow", why=why, by=principal.name, run=row.id)]

    turn = RunRequest(
        "",
        session.id,
        time_limit_s=services.factory.limits(options).seconds,
        policy=await policy_kept(services.store, session.id),
        beside=audited,
        traceparent=traceparent_of(request, services),
        tied=True,  # a restart ends it: whoever wants the summary asks again
    )
    with services.presence.place(principal):
        row = await services.runs.start(agent, principal, turn)
        try:
            async with asyncio.timeout(WAIT_S):
                await services.runs.ended(row.id)
        except TimeoutError:
            return ASCIIResponse({"run": row.id, "session": row.session, "state": row.state}, 202)
    summary = summary_in(row.id, await services.store.events(row.id, 0, ALL))
    return ASCIIResponse({"run": row.id, "summary": summary})


def summary_in(run: str, events: Sequence[EventRow]) -> dict[str, int]:
    """Return the figures of the summary that a run has made. Raises Refused with the reason if there is none."""
    why = UNKNOWN_END
    for event in events:
        fields = json.loads(event.data)
        if event.type == ContextSummarised.type:
            return {name: fields[name] for name in ("messages", "before", "after")}
        if event.type == RunFailed.type or (event.type == Notice.type and fields["message"] != STARTED):
            why = fields["message"]  # the last one counts
    raise Refused(502, FAILED, why, run=run)


ROUTES = tagged(
    "Sessions",
    Route(
        "POST /sessions/{session}/compact",
        compact_session,
        rights="owner",
        answer={"run": "text", "summary": {"messages": "integer", "before": "integer", "after": "integer"}},
        statuses=(200, 202),
        errors=(409, 502),
        body=Body(CompactRequest, {"model": "qwen3"}, required=False),
    ),
)

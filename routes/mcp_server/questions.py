"""Calls that wait for approval, and questions of tools, as forms that the client shows to its person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from app.policy.approvals import AlreadyDecided, ApprovalExpired, NoApproval
from app.policy.stored_grants import Review
from routes.mcp_server.callers import Caller
from routes.mcp_server.run_log import Fields
from tools.builtin.ask_user import OWN_QUESTION
from tools.mcp.names import is_question

LONGEST = 4_000  # characters of arguments that a form shows
DECISION: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "title": "Decision", "enum": ["approve", "deny"]},
        "scope": {
            "type": "string",
            "title": "For this call only, or for the same call in this session",
            "enum": ["once", "session"],
            "default": "once",
        },
        "note": {"type": "string", "title": "A note, if you deny it", "maxLength": 2_000},
    },
    "required": ["decision"],
}


def form_of(fields: Fields) -> ElicitRequest:
    """Return the form for what `approval.required` asks."""
    if _is_question(fields):
        shown = fields["arguments"]
        link = f"\n\n{shown['url']}" if shown.get("url") else ""
        message, schema = f"{fields['reason']}\n\n{shown['message']}{link}", shown.get("schema") or {"type": "object"}
    else:
        arguments = json.dumps(fields["arguments"], indent=1, ensure_ascii=False)
        cut = "\n… (the page shows all of it)" if len(arguments) > LONGEST else ""
        message = f"{fields['name']}: {fields['reason']}\n\n{arguments[:LONGEST]}{cut}"
        schema = DECISION
    schema = {"properties": {}, **schema}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


async def decide(caller: Caller, run: str, fields: Fields, answer: ElicitResult) -> None:
    """Decide as the person has, unless somebody was faster. Raises UnfitArguments, StoreFailed."""
    with suppress(AlreadyDecided, ApprovalExpired, NoApproval):
        review = _review(fields, answer)
        await caller.services.runs.decide(run, fields["call"], caller.principal, review)


def _review(fields: Fields, answer: ElicitResult) -> Review:
    given = dict(answer.content or {})
    if answer.action != "accept":
        return Review("deny", door="mcp")
    if _is_question(fields):
        return Review("approve", arguments=given or None, door="mcp")
    if given.get("decision") != "approve":
        return Review("deny", note=str(given["note"])[:2_000] if given.get("note") else None, door="mcp")
    return Review("approve", "session" if given.get("scope") == "session" else "once", door="mcp")


def _is_question(fields: Fields) -> bool:
    return fields["name"] == OWN_QUESTION or is_question(fields["name"])

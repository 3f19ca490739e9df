"""The event by which an app of an MCP server shows a result: its page and the result are kept with the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from hashlib import sha256

from app.core.events import AgentEvent, Notice, ToolApp
from app.core.messages import AskedCall
from app.runs.run_context import RunContext
from app.runs.run_scope import RunScope
from app.storage.files.store import FileRow, SessionFile
from tools.base.outcome import App
from tools.mcp.apps import MAX_PAGE

MISSING = "The app of {name} is not shown: {why}."


async def app_events(call: AskedCall, app: App, context: RunContext, scope: RunScope) -> Sequence[AgentEvent]:
    """Keep what is shown, without secrets, and return the event; a notice where nothing is to be shown.

    An app that made the call itself gets the result, and nothing is shown.
    """
    redactor = context.conversation.redactor
    whole = await asyncio.to_thread(redactor.redact_value, dict(app.result))
    if scope.gate.policy.of_app:
        scope.app_results[call.id] = whole
        return ()
    result = json.dumps(whole)
    if why := app.problem or (f"its result has more than {MAX_PAGE:,} characters" if len(result) > MAX_PAGE else ""):
        return [Notice("app_missing", MISSING.format(name=call.name, why=why))]
    html = await asyncio.to_thread(redactor.redact, app.html)
    event = ToolApp(
        call.id,
        call.name,
        server=app.server,
        uri=app.uri,
        file=_kept(html, context),
        result=_kept(result, context),
        csp={kind: list(domains) for kind, domains in app.csp.items()},
        permissions=list(app.permissions),
        border=app.border,
    )
    return [event]


def _kept(text: str, context: RunContext) -> str:
    """Store a text as a file of the session; return its SHA-256."""
    data = text.encode("utf-8", "replace")
    digest, conversation = sha256(data).hexdigest(), context.conversation
    conversation.record(FileRow(digest, data))
    conversation.record(SessionFile(conversation.session, digest))
    return digest

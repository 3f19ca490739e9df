"""The event by which an app of an MCP server shows a result: its page and the result are kept with the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from hashlib import sha256

from app.core.attachments import Attachment, File
from app.core.events import AgentEvent, Notice, ToolApp
from app.core.messages import AskedCall
from app.runs.run_scope import RunScope
from app.transcript.conversation import Conversation
from tools.mcp.apps import MAX_PAGE, App

MISSING = "The app of {name} is not shown: {why}."


async def app_events(call: AskedCall, app: App, conversation: Conversation, scope: RunScope) -> Sequence[AgentEvent]:
    """Keep what is shown, without secrets; an app that made the call itself gets the result, and nothing is shown."""
    result = await asyncio.to_thread(conversation.redactor.redact_value, dict(app.result))
    if scope.gate.policy.of_app:
        scope.app_results.append(result)
        return ()
    texts = await asyncio.to_thread(conversation.redactor.redact, app.html), json.dumps(result)
    if why := app.problem or ("its result is too long" if len(texts[1]) > MAX_PAGE else ""):
        return [Notice("app_missing", MISSING.format(name=call.name, why=why))]
    file, whole = (_kept(text.encode("utf-8", "replace"), conversation) for text in texts)
    csp = {kind: list(domains) for kind, domains in app.csp.items()}
    return [
        ToolApp(call.id, call.name, server=app.server, uri=app.uri, file=file, result=whole, csp=csp, border=app.border)
    ]


def _kept(data: bytes, conversation: Conversation) -> str:
    digest = sha256(data).hexdigest()
    conversation.keep_file(File(Attachment(digest, "text/html", len(data), ""), data))
    return digest

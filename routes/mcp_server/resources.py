"""Conversations and documents of the principal as resources."""

from __future__ import annotations

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams, ReadResourceRequestParams

from app.core.messages import shown
from routes.mcp_server.calls import Caller
from routes.transcripts.exports import as_markdown, exported

SESSIONS, DOCUMENTS = "dragoman://sessions/", "dragoman://documents/"
MARKDOWN, PLAIN = "text/markdown", "text/plain"
PAGE = 50  # sessions, each followed by its documents
Json = dict[str, Any]


async def list_resources(caller: Caller, params: PaginatedRequestParams) -> Json:
    """The most recently used sessions come first. The cursor is the last session of a page."""
    store, found = caller.services.store, list[Json]()
    if params.cursor is not None:
        await caller.services.runs.session(params.cursor, caller.principal)
    rows = await store.sessions(caller.principal.name, PAGE, params.cursor)
    for row in rows:
        found.append({"uri": SESSIONS + row.id, "name": row.id, "title": row.title, "mimeType": MARKDOWN})
        for one in await store.documents(row.id):
            found.append({"uri": DOCUMENTS + one.id, "name": one.id, "title": one.title, "mimeType": _kind(one.kind)})
    more = {"nextCursor": rows[-1].id} if len(rows) == PAGE else {}
    return {"resources": caller.services.redactor.redact_value(found), **more}


async def list_templates(caller: Caller, params: PaginatedRequestParams) -> Json:
    templates = ((SESSIONS, "session"), (DOCUMENTS, "document"))
    return {"resourceTemplates": [{"uriTemplate": f"{uri}{{{name}}}", "name": name} for uri, name in templates]}


async def read_resource(caller: Caller, params: ReadResourceRequestParams) -> Json:
    """Raises MCPError, NotFound."""
    services, uri, kind = caller.services, str(params.uri), MARKDOWN
    if uri.startswith(SESSIONS):
        session = await services.runs.session(uri.removeprefix(SESSIONS), caller.principal)
        text = as_markdown(await exported(services.store, session, services.redactor, shown), {})
    elif document := await services.store.document(uri.removeprefix(DOCUMENTS)) if uri.startswith(DOCUMENTS) else None:
        await services.runs.session(document.session, caller.principal)
        version = await services.store.document_version(document.id, document.version)
        text, kind = version.text if version else "", _kind(document.kind)
    else:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, "mimeType": kind, "text": services.redactor.redact(text)}]}


def _kind(kind: str) -> str:
    return MARKDOWN if kind == "markdown" else PLAIN

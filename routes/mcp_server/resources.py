"""Conversations and documents of the principal as resources."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from app.core.messages import Message, in_words
from app.storage.documents import DocumentRow
from app.storage.sessions import SessionRow
from app.transcript.run_request import NotFound
from routes.mcp_server.callers import Caller

SESSIONS, DOCUMENTS = "dragoman://sessions/", "dragoman://documents/"
MARKDOWN, PLAIN = "text/markdown", "text/plain"
PAGE = 50  # sessions, each followed by its documents
TEMPLATES = (
    ResourceTemplate(uri_template=f"{SESSIONS}{{session}}", name="session", mime_type=MARKDOWN),
    ResourceTemplate(uri_template=f"{DOCUMENTS}{{document}}", name="document"),
)
HEADS = {"user": "You", "assistant": "dragoman", "tool": "Result"}


async def list_resources(caller: Caller, params: PaginatedRequestParams | None) -> ListResourcesResult:
    """The most recently used sessions come first. The cursor is the last session of a page."""
    store, before = caller.services.store, params.cursor if params else None
    if before is not None:
        await caller.services.runs.session(before, caller.principal)
    rows = await store.sessions(caller.principal.name, PAGE, before)
    found = list[Resource]()
    for row in rows:
        found.append(_session(row))
        found += map(_document, await store.documents(row.id))
    found = [Resource.model_validate(caller.services.redactor.redact_value(one.model_dump())) for one in found]
    return ListResourcesResult(resources=found, next_cursor=rows[-1].id if len(rows) == PAGE else None)


async def list_templates(caller: Caller, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(resource_templates=list(TEMPLATES))


async def read_resource(caller: Caller, params: ReadResourceRequestParams) -> ReadResourceResult:
    uri = str(params.uri)
    if uri.startswith(SESSIONS):
        text, kind = await _conversation(caller, uri.removeprefix(SESSIONS)), MARKDOWN
    elif uri.startswith(DOCUMENTS):
        text, kind = await _text_of(caller, uri.removeprefix(DOCUMENTS))
    else:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
    text = caller.services.redactor.redact(text)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)])


async def _conversation(caller: Caller, session: str) -> str:
    """Raises NotFound."""
    row = await caller.services.runs.session(session, caller.principal)
    messages = await caller.services.store.messages(row.id)
    return "\n\n".join([f"# {row.title}", *filter(None, map(_section, messages))]) + "\n"


def _section(message: Message) -> str:
    text = in_words(message) if message.shown is None else message.shown
    if message.role == "tool":
        text = f"`{message.name}`\n\n" + "\n".join(f"    {line}" for line in text.splitlines())
    return f"## {HEADS.get(message.role, message.role)}\n\n{text}" if text.strip() else ""


async def _text_of(caller: Caller, document: str) -> tuple[str, str]:
    """Return the text of a document, and its type. Raises NotFound."""
    store = caller.services.store
    if (row := await store.document(document)) is None:
        raise NotFound(f"There is no document {document[:40]!r}.")
    await caller.services.runs.session(row.session, caller.principal)
    version = await store.document_version(document, row.version)
    return version.text if version else "", _kind(row)


def _session(row: SessionRow) -> Resource:
    return Resource(uri=f"{SESSIONS}{row.id}", name=row.id, title=row.title, mime_type=MARKDOWN)


def _document(row: DocumentRow) -> Resource:
    return Resource(uri=f"{DOCUMENTS}{row.id}", name=row.id, title=row.title, mime_type=_kind(row))


def _kind(row: DocumentRow) -> str:
    return MARKDOWN if row.kind == "markdown" else PLAIN

"""The JSON Schema of a shape, and the shapes that several answers have in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from app.budget.usage_report import COUNTS
from app.core.spans import Span
from app.redaction.output_chunks import OutputPart
from app.storage.approvals import ApprovalRow
from app.storage.audit import AuditRow
from app.storage.documents import DocumentRow, SuggestionRow
from app.storage.memories import MemoryRow
from app.storage.people.permissions import PermissionRow
from app.storage.people.sign_ins import SignInRow
from routes.http import approvals, documents, health, jobs, memory
from routes.http.people import sign_ins
from routes.protocol.route import Shape
from tools.jobs.records import Job
from tools.mcp.model import Status
from tools.tool import Tool

TYPES: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "object": {"type": "object"},
    "any": {},
}
# In the order in which a type is looked for: a bool is an int, too.
NAMES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "text", object: "object"}


def typed(struct: type[Struct], names: Iterable[str] = ()) -> dict[str, Shape]:
    """The shapes of the fields of a struct that have these names; without names of all."""
    types = {field.name: field.type for field in fields(struct)}
    return {name: shape_of(types[name]) for name in names or types}


def shape_of(kind: Any) -> Shape:
    """The shape of a type's values as JSON."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):  # with None, which stands last
        return f"{shape_of(inner[0])}?"
    if origin is Literal:
        return "text"
    return [shape_of(inner[0])] if origin is tuple else next(NAMES[one] for one in NAMES if issubclass(origin, one))


_RUN = {"session": "text", "model": "text", "state": "text", "created": "number", "ended": "number?"}
_UNATTENDED = {
    "id": "text",
    "name": "text",
    "message": "text",
    "profile": "text?",
    "model": "text?",
    "tools": "any",
    "approval": "text?",
    "max_rounds": "integer?",
    "max_calls": "integer?",
    "max_tokens": "integer?",
    "time_limit_s": "number?",
    "session": "text",
    "enabled": "boolean",
    "created": "number",
    "last": ["object"],
}
_TARGET = {
    "id": "text",
    "name": "text",
    "url": "text",
    "events": ["text"],
    "state": "text",
    "reason": "text?",
    "failing_since": "number?",
    "created": "number",
}
_DOCUMENT = {**typed(DocumentRow, documents.ABOUT), "open_suggestions": "integer"}
_DECISION = {name: shape for name, shape in typed(AuditRow).items() if name != "facts"}
_JOB = {**typed(Job, jobs.SHOWN), "elapsed_s": "number"}
_SESSION = {
    "id": "text",
    "title": "text",
    "created": "number",
    "updated": "number",
    "running": "boolean",
    "pinned": "boolean",
    "archived": "boolean",
    "folder": "text?",
    "disabled_tools": ["text"],
    "profile": "text?",
    "options": "object",
    "temporary?": "boolean",
    "read_only?": "boolean",
    "workspace?": "text",
    "labels?": "any",
    "summary?": "text",
    "conversation?": "text",
}

COMPONENTS: Mapping[str, Shape] = {
    "Totals": {**dict.fromkeys(COUNTS, "integer"), "cost?": "number?"},
    "Run": {"id": "text", **_RUN, "usage?": "@Totals", "profiles?": ["object"], "options?": ["object"]},
    "Attachment": {"sha256": "text", "media_type": "text", "size": "integer", "name": "text?", "path?": "text?"},
    "Message": {"role": "text", "text?": "text", "at?": "number?", "attachments?": ["@Attachment"]},
    "LoggedRun": {"run": "text", **_RUN, "message": "@Message", "events": ["@RunEvent"]},
    "Approval": {
        **typed(ApprovalRow, approvals.ASKED),
        "arguments": "object",
        "expires_at": "number?",
        "origins?": [typed(Span)],
        "by?": "text?",
        "door?": "text?",
        "scope?": "text?",
        "proposals?": ["object"],
        "path?": ["object"],
    },
    "BranchChanges": {
        "session": "text",
        "fingerprint": "text",
        "files": [{"path": "text", "change": "text", "kind": "text", "diff?": "text"}],
        "more_files": "integer",
        "left_out": ["any"],
        "change?": "text",
    },
    "Changes": {
        "run": "text",
        "state": "text",
        "note?": "text",
        "undone_at?": "number?",
        "undone_by?": "text?",
        "files": [{"path": "text", "change": "text", "kind": "text", "diff?": "text"}],
        "more_files": "integer",
        "left_out": ["any"],
        "undone_files": ["text"],
    },
    "Output": {
        "text": "text",
        "from": "integer",
        **typed(OutputPart, ("next", "characters", "lines", "done")),
        "missing_lines?": "integer",
    },
    "Session": _SESSION,
    "FoundSession": {
        **_SESSION,
        "snippet?": "text",
        "marks?": [["integer"]],
        "title_marks?": [["integer"]],
        "run?": "text?",
    },
    "Folder": {"id": "text", "name": "text", "created": "number", "sessions": "integer"},
    "WholeSession": {
        **_SESSION,
        "schedules?": ["object"],
        "messages": ["@Message"],
        "summaries": ["object"],
        "runs": ["@Run"],
        "usage": "@Totals",
    },
    "SessionLog": {
        "session": "text",
        "title": "text",
        "modes": "object",
        "cursor": "text",
        "earlier": "boolean",
        "usage": "@Totals",
        "runs": ["@LoggedRun"],
    },
    "Grant": {
        "id": "text",
        "tool": "text",
        "kind": "text",
        "created": "number",
        "by": "text",
        "expires_at": "number?",
        "tainted": "boolean",
    },
    "Withdrawn": {"withdrawn": "integer"},
    "Document": _DOCUMENT,
    "ShownDocument": {
        **_DOCUMENT,
        "shown": "integer",
        "author": "text",
        "run": "text?",
        "text": "text",
        "suggestions": ["@Suggestion"],
    },
    "Suggestion": typed(SuggestionRow, documents.SUGGESTION),
    "Memory": {
        **typed(MemoryRow, memory.SHOWN),
        "labels": ["text"],
        "source": "object?",
        "similarity?": "number?",
    },
    "Job": _JOB,
    "ShownJob": {**_JOB, "tail": ["text"], "lines": "integer", "bytes": "integer"},
    "Tool": typed(Tool, health.OFFERED),
    "Profile": {
        "name": "text",
        "source": "text",
        "version": "text",
        "by?": "text?",
        "at?": "number?",
        "options": "object",
    },
    "McpServer": {
        **typed(Status, ("name", "state", "transport", "target", "from_api", "error", "tools", "held")),
        **typed(Status, ("pid", "exit_code", "protocol", "restarts")),
        "trust": "object",
        "classified": ["object"],
    },
    "Endpoint": {
        "name": "text",
        "default": "boolean",
        "kind": "text",
        "models": ["@Model"],
        "url?": "text",
        "problem?": "text?",
        "state?": "text",
        "last_error?": "any",
        "keys?": "object",
    },
    "Secret": {
        "name": "text",
        "env": "text?",
        "hosts": ["text"],
        "tools": ["text"],
        "role": "text",
        "paths": ["text"],
        "source": "text",
        "by": "text",
        "at": "number",
        "used": "number?",
    },
    "ExaminationEvent": {
        "type": "text",
        "done?": "integer",
        "of?": "integer",
        "probe?": "text",
        "report?": "object",
        "markdown?": "text",
        "message?": "text",
    },
    "Model": {"name": "text", "default": "boolean", "window": "integer?", "abilities": ["object"]},
    "ServedModels": {"models": ["object"], "memory": "object", "folders": ["text"], "files": ["any"]},
    "Schedule": {
        **_UNATTENDED,
        "cron": "text?",
        "every": "text?",
        "once": "any",
        "time_zone": "text",
        "missed": "text",
        "jitter_s": "number",
        "next": "number?",
        "words": "text",
        "labels?": ["text"],
    },
    "Trigger": {**_UNATTENDED, "scheme": "text", "template": "text", "path": "text"},
    "Begun": {"run": "text", "session": "text", "state": "text"},
    "Webhook": {
        **_TARGET,
        "channel": "text",
        "everyone": "boolean",
        "decides": "boolean",
        "pending": "integer",
        "dropped": "integer",
    },
    "Subscription": _TARGET,
    "Delivery": {
        "id": "text",
        "type": "text",
        "subject": "text",
        "session": "text?",
        "created": "number",
        "state": "text",
        "attempts": "integer",
        "status": "integer?",
        "error": "text?",
        "due": "number?",
        "finished": "number?",
    },
    "Trial": {"delivered": "boolean", "status": "integer?", "error": "text?", "duration_s": "number"},
    "Token": {
        "name": "text",
        "role": "text",
        "state": "text",
        "created": "number",
        "expires": "number?",
        "revoked": "number?",
        "tools": ["text"],
        "disabled": ["text"],
        "profile": "text?",
        "members": "boolean",
        "budget": "object",
    },
    "Member": {"member": "text", "principal": "text", "bot": "text", "account": "text?", "created": "number"},
    "Person": {
        "name": "text",
        "role": "text",
        "by": "text",
        "state": "text",
        "created": "number",
        "expires": "number?",
        "sessions": "integer",
        "sign_ins": "integer",
        "active_runs": "integer",
        "last_seen": "number?",
        "usage": "object",
    },
    "Permission": {
        **typed(PermissionRow, ("id", "tool", "run", "call", "created", "by", "per_day")),
        "words": "text",
        "pattern": "object",
        "expires_at": "number?",
        "uses_today": "integer",
        "uses": "integer",
        "last_used": "number?",
    },
    "SignIn": {**typed(SignInRow, sign_ins.SHOWN), "current": "boolean"},
    "StoredPrompt": {"name": "text", "about": "text", "text": "text", "updated": "number"},
    "Preferences": {"profile": "text?", "options": "object", "plan": "boolean"},
    "Setting": {
        "name": "text",
        "value": "any",
        "started_with": "any",
        "changed": "boolean",
        "description": "text",
    },
    "Decision": {"number": "integer", **_DECISION},
    "Paused": {"paused": "boolean"},
    "Budgets": {"principal": "text", "usage": "object", "months": ["object"]},
    "ServerState": {
        "type": "text",
        "me?": "object",
        "server?": "object",
        "paused?": "boolean",
        "runs?": ["object"],
        "approvals?": ["object"],
        "jobs?": ["object"],
        "mcp?": ["object"],
    },
    "RunAsked": {"type": "text", "run": "text", **_RUN, "message": "@Message"},
}


def schema_of(shape: Shape) -> dict[str, Any]:
    """The JSON Schema of a shape."""
    if isinstance(shape, str):
        name = shape.removesuffix("?")
        schema = {"$ref": f"#/components/schemas/{name[1:]}"} if name.startswith("@") else dict(TYPES[name])
        if name == shape:
            return schema
        return {"anyOf": [schema, {"type": "null"}]} if "$ref" in schema else {"type": [schema["type"], "null"]}
    if isinstance(shape, Mapping):
        fields = {key.removesuffix("?"): schema_of(value) for key, value in shape.items()}
        required = [key for key in shape if not key.endswith("?")]
        return {"type": "object", "properties": fields} | ({"required": required} if required else {})
    return {"type": "array", "items": schema_of(shape[0]) if shape else {}}

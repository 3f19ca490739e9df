"""Operations on runs, sessions, jobs, documents and memories."""

from __future__ import annotations

from app.runs.discipline.run_terminals import TerminalSize
from routes.http.branches import ForkRequest
from routes.http.checkpoints import UndoRequest
from routes.http.documents import DocumentRequest, SuggestionRequest
from routes.http.library.compaction import CompactRequest
from routes.http.library.folders import FolderRequest
from routes.http.library.shares import ShareRequest
from routes.http.memory import MemoryEdit, NewMemory
from routes.openapi.operation import Operation, Query, rows
from routes.protocol.message_parts import MessageRequest
from routes.protocol.requests import ApprovalRequest, ChatRequest, InputRequest, SessionRequest

SHARE = {
    "id": "text",
    "session": "text",
    "title": "text",
    "owner": "text",
    "created": "number",
    "updated": "number",
    "expires_at": "number?",
    "tool_results": "boolean",
    "attachments": "boolean",
}
AFTER = Query("after", "the `id:` of the last event that was received; the header Last-Event-ID comes first")
FROM = Query("after", "`next` of the answer before, 0 for the beginning", "integer")
VERSION = Query("version", "an older version; without it the latest", "integer")
OF_RUNS = rows(
    "Runs",
    Operation(
        "POST /chat",
        "Run one turn and stream its events",
        body=ChatRequest,
        stream="run",
        ok=(200, 202),
        errors=(404, 409),
        answer={"run": "text", "session": "text"},
        example={"message": "Print hello world with the shell."},
    ),
    Operation("GET /runs/{run}", "State and usage of a run", "@Run", rights="owner"),
    Operation(
        "GET /runs/{run}/events",
        "The events of a run after a cursor, then those still to come",
        rights="owner",
        stream="run",
        ok=(200, 204),
        errors=(400,),
        query=(AFTER,),
        resumes=True,
    ),
    Operation("POST /runs/{run}/cancel", "Cancel a run with all of its processes", "@Run", rights="owner"),
    Operation(
        "POST /runs/{run}/messages",
        "Add a message to a running run",
        {"run": "text", "accepted": "boolean"},
        body=MessageRequest,
        rights="owner",
        ok=(202,),
        errors=(409,),
        example={"message": "Also say how long it took."},
    ),
    Operation("GET /runs/{run}/changes", "What a run has changed in the workspace", "@Changes", rights="owner"),
    Operation(
        "POST /runs/{run}/undo",
        "Undo what a run has changed, or some of it",
        "@Changes",
        UndoRequest,
        "owner",
        errors=(409,),
        body_required=False,
        example={"paths": ["notes.txt"]},
    ),
    Operation(
        "POST /runs/{run}/approvals/{call}",
        "Approve or deny a waiting call",
        "@Approval",
        ApprovalRequest,
        "owner",
        errors=(409, 410),
        example={"decision": "approve"},
    ),
    Operation(
        "GET /runs/{run}/approvals/{call}/preview",
        "The change that a waiting `write_file` or `edit_file` would make",
        {"path": "text", "change": "text", "diff": "text?", "note": "text", "current": "boolean"},
        rights="owner",
    ),
    Operation(
        "GET /runs/{run}/calls/{call}/output",
        "The output of a call, in pages",
        "@Output",
        rights="owner",
        query=(FROM,),
    ),
    Operation(
        "POST /runs/{run}/calls/{call}/input",
        "Type into the terminal of a running command",
        "object",
        body=InputRequest,
        rights="owner",
        errors=(409,),
        example={"text": "yes", "keys": ["enter"]},
    ),
    Operation(
        "POST /runs/{run}/calls/{call}/terminal",
        "Resize the terminal of a running command",
        {"run": "text", "call": "text", "columns": "integer", "rows": "integer"},
        body=TerminalSize,
        rights="owner",
        errors=(409,),
        example={"columns": 100, "rows": 30},
    ),
    Operation(
        "POST /runs/{run}/calls/{call}/cancel",
        "Stop one running call",
        {"run": "text", "call": "text", "stopped": "boolean"},
        rights="owner",
    ),
    Operation("GET /approvals", "The calls that wait for your approval", {"approvals": ["@Approval"]}),
)
OF_SESSIONS = rows(
    "Sessions",
    Operation(
        "GET /sessions",
        "Your conversations, the last used first",
        {"sessions": ["@FoundSession"], "pinned?": ["@Session"], "folders?": ["@Folder"]},
        query=(
            Query("before", "the last id of the page before"),
            Query("q", "words that the conversations contain"),
            Query("parent", "a session whose helpers' sessions are listed"),
            Query("folder", "a folder, whose conversations are listed"),
            Query("archived", "`true` for those that are archived"),
            Query("pinned", "`true` for those that are pinned"),
        ),
    ),
    Operation(
        "POST /sessions/{session}/shares",
        "Make a link that shows a conversation as it is now",
        {**SHARE, "path": "text", "url": "text?"},
        ShareRequest,
        "owner",
        ok=(201,),
        errors=(403, 409),
        example={"tool_results": False, "expires_in_s": 604800},
    ),
    Operation(
        "GET /shares",
        "Your links to conversations",
        {"shares": [SHARE], "may_share": "boolean"},
        query=(Query("all", "`true`, for admins: the links of all"),),
        errors=(403,),
    ),
    Operation(
        "POST /shares/{share}",
        "Let a link show the conversation as it is now",
        SHARE,
        rights="owner",
        errors=(403, 409),
    ),
    Operation("DELETE /shares/{share}", "Revoke a link; admins may revoke any", rights="owner", ok=(204,)),
    Operation(
        "GET /shared/{token}",
        "A shared conversation, or its page for a browser",
        {"title": "text", "updated": "number", "expires_at": "number?", "runs": ["object"], "earlier": "boolean"},
        rights="open",
        errors=(404, 429),
    ),
    Operation(
        "GET /shared/{token}/files/{sha256}",
        "A file that a shared conversation shows",
        rights="open",
        media=("application/octet-stream",),
        errors=(404, 429),
    ),
    Operation("GET /folders", "The folders of your list of conversations", {"folders": ["@Folder"]}),
    Operation(
        "POST /folders", "Add a folder", "@Folder", FolderRequest, ok=(201,), errors=(409,), example={"name": "Travel"}
    ),
    Operation(
        "PATCH /folders/{folder}",
        "Rename a folder",
        "@Folder",
        FolderRequest,
        "owner",
        errors=(409,),
        example={"name": "Travel"},
    ),
    Operation("DELETE /folders/{folder}", "Delete a folder, not its conversations", rights="owner", ok=(204,)),
    Operation("GET /sessions/{session}", "One conversation with its messages", "@WholeSession", rights="owner"),
    Operation(
        "PATCH /sessions/{session}",
        "Rename, pin, archive or move a session, or change its tools, profile, options or labels",
        "@Session",
        SessionRequest,
        "owner",
        errors=(403, 409),
        example={"title": "Trip to Lisbon"},
    ),
    Operation(
        "DELETE /sessions/{session}",
        "Delete a session with its runs",
        rights="owner",
        ok=(204,),
        query=(Query("branches", "`all`: with the other branches of the conversation"),),
    ),
    Operation(
        "POST /sessions/{session}/fork",
        "Begin a branch of a conversation before or after one of its runs",
        {"id": "text", "title": "text", "created": "number", "parent": "object", "branches": ["object"]},
        ForkRequest,
        "owner",
        ok=(201,),
        errors=(409, 422),
        example={"before": "run_0123456789abcdef0123"},
    ),
    Operation(
        "POST /sessions/{session}/compact",
        "Summarise the older half of a conversation now",
        {"run": "text", "summary": {"messages": "integer", "before": "integer", "after": "integer"}},
        CompactRequest,
        "owner",
        ok=(200, 202),
        errors=(409, 422, 502),
        body_required=False,
        example={"model": "qwen3"},
    ),
    Operation(
        "GET /sessions/{session}/log",
        "The last runs of a session with their events",
        "@SessionLog",
        rights="owner",
        query=(
            Query("runs", "the number of runs, 20 by default, 100 at most", "integer"),
            Query("before", "a run: the page before it"),
        ),
    ),
    Operation("GET /sessions/{session}/grants", "The grants in force", {"grants": ["@Grant"]}, rights="owner"),
    Operation("DELETE /sessions/{session}/grants", "Withdraw all grants", "@Withdrawn", rights="owner"),
    Operation("DELETE /sessions/{session}/grants/{grant}", "Withdraw a grant", "@Withdrawn", rights="owner"),
    Operation(
        "GET /sessions/{session}/files",
        "The files that its runs made or changed",
        {"files": ["object"], "more": "integer"},
        rights="owner",
    ),
    Operation(
        "GET /sessions/{session}/files/{sha256}",
        "A file of its messages, or a picture of its results",
        rights="owner",
        media=("application/octet-stream",),
    ),
    Operation(
        "GET /sessions/{session}/workspace/{path:path}",
        "A file of your workspace",
        rights="owner",
        media=("application/octet-stream",),
        ok=(200, 206, 304),
        errors=(403, 416),
    ),
    Operation(
        "GET /sessions/{session}/documents",
        "The documents of a session",
        {"documents": ["@Document"]},
        rights="owner",
    ),
)
OF_DOCUMENTS = rows(
    "Documents",
    Operation("GET /documents/{document}", "A document", "@ShownDocument", rights="owner", query=(VERSION,)),
    Operation(
        "PUT /documents/{document}",
        "Store an edit as a new version",
        "@Document",
        DocumentRequest,
        "owner",
        errors=(409,),
        example={"version": 1, "text": "# Trip"},
    ),
    Operation(
        "GET /documents/{document}/versions",
        "The versions that are kept",
        {"document": "text", "versions": ["object"]},
        rights="owner",
    ),
    Operation(
        "GET /documents/{document}/file",
        "The text as a download",
        rights="owner",
        media=("text/plain", "text/markdown"),
        query=(VERSION,),
    ),
    Operation(
        "POST /documents/{document}/suggestions/{number}",
        "Accept or reject a suggestion",
        {"id": "text", "version": "integer", "suggestion": "@Suggestion"},
        SuggestionRequest,
        "owner",
        errors=(409,),
        example={"decision": "accept"},
    ),
)
OF_MEMORY = rows(
    "Memory",
    Operation(
        "GET /memory",
        "Your memories, the latest changed first",
        {"memories": ["@Memory"], "next": "text?", "total": "integer", "enabled": "boolean"},
        query=(
            Query("q", "words; the best matches come first"),
            Query("before", "`next` of the page before"),
            Query("session", "only those of this session"),
            Query("untrusted", "only those from untrusted text, or only others", "boolean"),
            Query("limit", "at most so many", "integer"),
        ),
    ),
    Operation(
        "POST /memory",
        "Add a memory",
        "@Memory",
        NewMemory,
        ok=(200, 201),
        errors=(409,),
        example={"text": "Likes tea", "kind": "preference"},
    ),
    Operation(
        "DELETE /memory",
        "Delete the memories of a session, or all",
        {"deleted": "integer"},
        errors=(400,),
        query=(Query("session", "those of this session"), Query("all", "true deletes all", "boolean")),
    ),
    Operation("GET /memory/{memory}", "A memory", "@Memory", rights="owner"),
    Operation(
        "PATCH /memory/{memory}",
        "Edit a memory",
        "@Memory",
        MemoryEdit,
        "owner",
        errors=(409,),
        example={"text": "Likes green tea"},
    ),
    Operation("DELETE /memory/{memory}", "Delete a memory", rights="owner", ok=(204,)),
)
OF_JOBS = rows(
    "Jobs",
    Operation("GET /jobs", "Your background jobs", {"jobs": ["@Job"]}),
    Operation("GET /jobs/{job}", "A job with its last lines", "@ShownJob", rights="owner"),
    Operation(
        "GET /jobs/{job}/events",
        "The live output of a job",
        rights="owner",
        stream="job",
        ok=(200, 204),
        resumes=True,
    ),
    Operation("GET /jobs/{job}/output", "The output of a job, in pages", "@Output", rights="owner", query=(FROM,)),
    Operation("POST /jobs/{job}/cancel", "End a job with its processes", "@ShownJob", rights="owner"),
)
OPERATIONS = (*OF_RUNS, *OF_SESSIONS, *OF_DOCUMENTS, *OF_MEMORY, *OF_JOBS)

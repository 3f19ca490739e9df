"""What each kind of change says to a SQL database, and the schema, a file per version."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from app.storage.approval_rows import ApprovalDecided, ApprovalRow, GrantGone, GrantRow
from app.storage.endpoint_rows import EndpointGone, EndpointRow
from app.storage.file_rows import FileRow, SessionFile
from app.storage.mcp_rows import McpPinGone, McpPinRow, McpServerGone, McpServerRow
from app.storage.rows import (
    AuditRow,
    EventRow,
    InboxRow,
    InboxTaken,
    KeyRow,
    MessageRow,
    ResultRow,
    RunBegan,
    RunEnded,
    RunRow,
    SessionRow,
    SessionTitle,
    SessionTools,
    StateRow,
    SummaryRow,
    TokenRevoked,
    TokenRow,
)
from app.storage.usage_rows import Spent, UsageAdded

# Version n of the schema is what the first n files make; a database of an older one gets the files it lacks.
_FILES = sorted(Path(__file__).parent.glob("schema_*.sql"), key=lambda path: int(path.stem.partition("_")[2]))
SCHEMA = tuple(path.read_text() for path in _FILES)

EVENT_COLUMNS = "run, seq, type, data, parts"
RUN_COLUMNS = "id, session, principal, model, state, created, ended, policy"
SESSION_COLUMNS = "id, principal, created, title, disabled, updated"
TOKEN_COLUMNS = "sha256, name, role, created, tools, disabled, budget, expires, revoked"
APPROVAL_COLUMNS = (
    "run, call, session, principal, name, arguments, fingerprint, reason, created, expires, "
    "state, decided, by, scope, edited, note"
)
GRANT_COLUMNS = "id, session, principal, tool, created, by, fingerprint, pattern, hosts, arguments, expires, tainted"
AUDIT_COLUMNS = "at, principal, action, decision, why, by, run, call, fingerprint"
ENDPOINT_COLUMNS = "name, spec, by, at"
MCP_SERVER_COLUMNS = "name, entry, enabled, by, at"
SUMMARY_COLUMNS = "session, upto, run, text, before, after, created"
MCP_PIN_COLUMNS = "server, tool, identity, digest, definition"


def _insert(table: str, columns: str) -> str:
    marks = ", ".join("?" * (columns.count(",") + 1))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"


def _fields(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    return lambda row: tuple(getattr(row, name) for name in names)


def _inserting(table: str, columns: str) -> tuple[str, Callable[[Any], tuple[Any, ...]]]:
    return _insert(table, columns), _fields(*columns.split(", "))


REPLACE_KEY = (
    "ON CONFLICT (principal, key) DO UPDATE SET body = excluded.body, run = excluded.run, created = excluded.created"
)
SPENT_KEY = "principal, month, model, run"
COUNTED = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "estimated_tokens")
COSTS = ("cost", "estimated_cost")
SPENT_COLUMNS = f"{SPENT_KEY}, session, {', '.join((*COUNTED, *COSTS))}"
SPENT_SUMS = ", ".join(f"SUM({name})" for name in (*COUNTED, *COSTS))
ADD_SPENT = f"ON CONFLICT ({SPENT_KEY}) DO UPDATE SET " + ", ".join(
    [f"{name} = spent.{name} + excluded.{name}" for name in COUNTED]
    + [f"{name} = COALESCE(spent.{name} + excluded.{name}, spent.{name}, excluded.{name})" for name in COSTS]
)
STATEMENTS: dict[type[Any], tuple[str, Callable[[Any], tuple[Any, ...]]]] = {
    EventRow: (_insert("events", EVENT_COLUMNS), lambda row: (row.run, row.seq, row.type, row.data, row.parts)),
    MessageRow: _inserting("messages", "session, position, run, message"),
    SessionRow: _inserting("sessions", SESSION_COLUMNS),
    SessionTitle: ("UPDATE sessions SET title = ? WHERE id = ?", _fields("title", "id")),
    SessionTools: ("UPDATE sessions SET disabled = ? WHERE id = ?", _fields("disabled", "id")),
    RunRow: _inserting("runs", RUN_COLUMNS),
    RunBegan: ("UPDATE runs SET state = 'running' WHERE id = ?", _fields("id")),
    RunEnded: ("UPDATE runs SET state = ?, ended = ? WHERE id = ?", _fields("state", "ended", "id")),
    TokenRow: _inserting("tokens", TOKEN_COLUMNS),
    TokenRevoked: ("UPDATE tokens SET revoked = ? WHERE sha256 = ?", _fields("revoked", "sha256")),
    ApprovalDecided: (
        "UPDATE approvals SET state = ?, decided = ?, by = ?, scope = ?, edited = ?, note = ? "
        "WHERE run = ? AND call = ? AND state = 'pending'",
        _fields("state", "decided", "by", "scope", "edited", "note", "run", "call"),
    ),
    ApprovalRow: _inserting("approvals", APPROVAL_COLUMNS),
    GrantRow: _inserting("grants", GRANT_COLUMNS),
    GrantGone: ("DELETE FROM grants WHERE id = ?", _fields("id")),
    AuditRow: _inserting("audit", AUDIT_COLUMNS),
    UsageAdded: (
        f"{_insert('used', 'principal, kind, period, amount')} "
        "ON CONFLICT (principal, kind, period) DO UPDATE SET amount = used.amount + excluded.amount",
        _fields("principal", "kind", "period", "amount"),
    ),
    Spent: (f"{_insert('spent', SPENT_COLUMNS)} {ADD_SPENT}", _fields(*SPENT_COLUMNS.split(", "))),
    InboxRow: _inserting("inbox", "run, position, text, attachments"),
    InboxTaken: ("DELETE FROM inbox WHERE run = ?", _fields("run")),
    KeyRow: (
        f"{_insert('idempotency', 'principal, key, body, run, created')} {REPLACE_KEY}",
        _fields("principal", "key", "body", "run", "created"),
    ),
    StateRow: (
        f"{_insert('state', 'name, value')} ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        _fields("name", "value"),
    ),
    SummaryRow: (  # a run that was stopped while it kept one may have kept it: the next one makes it again
        f"{_insert('summaries', SUMMARY_COLUMNS)} ON CONFLICT (session, upto) DO UPDATE SET run = excluded.run, "
        "text = excluded.text, before = excluded.before, after = excluded.after, created = excluded.created",
        _fields(*SUMMARY_COLUMNS.split(", ")),
    ),
    FileRow: (f"{_insert('files', 'sha256, bytes')} ON CONFLICT (sha256) DO NOTHING", _fields("sha256", "data")),
    SessionFile: (
        f"{_insert('session_files', 'session, sha256')} ON CONFLICT (session, sha256) DO NOTHING",
        _fields("session", "sha256"),
    ),
    ResultRow: _inserting("results", "session, run, call, name, text"),
    EndpointRow: (
        f"{_insert('endpoints', ENDPOINT_COLUMNS)} ON CONFLICT (name) DO UPDATE SET "
        "spec = excluded.spec, by = excluded.by, at = excluded.at",
        _fields("name", "spec", "by", "at"),
    ),
    EndpointGone: ("DELETE FROM endpoints WHERE name = ?", _fields("name")),
    McpServerRow: (
        f"{_insert('mcp_servers', MCP_SERVER_COLUMNS)} ON CONFLICT (name) DO UPDATE SET "
        "entry = excluded.entry, enabled = excluded.enabled, by = excluded.by, at = excluded.at",
        _fields("name", "entry", "enabled", "by", "at"),
    ),
    McpServerGone: ("DELETE FROM mcp_servers WHERE name = ?", _fields("name")),
    McpPinRow: (
        f"{_insert('mcp_pins', MCP_PIN_COLUMNS)} ON CONFLICT (server, tool) DO UPDATE SET "
        "identity = excluded.identity, digest = excluded.digest, definition = excluded.definition",
        _fields("server", "tool", "identity", "digest", "definition"),
    ),
    McpPinGone: (
        "DELETE FROM mcp_pins WHERE server = ? AND tool = COALESCE(?, tool)",
        _fields("server", "tool"),
    ),
}

MOST_AT_ONCE = 64  # rows of a statement: SQLite takes so many values, and each number of them is a text to keep


@cache
def insert_events(count: int) -> str:
    """So many rows in one step: between two steps another thread may take the interpreter, and keep it for long."""
    insert, _ = STATEMENTS[EventRow]
    return insert + f", ({', '.join('?' * (EVENT_COLUMNS.count(',') + 1))})" * (count - 1)


MESSAGES = "SELECT message FROM messages WHERE session = ? ORDER BY position"
# What stands in the history before a run's own words may have been left behind by the one before it.
ASKED = """
    SELECT messages.message FROM messages JOIN runs ON runs.id = messages.run
    WHERE messages.session = ? AND messages.run = ? AND json_extract(message, '$.role') = 'user'
    ORDER BY json_extract(message, '$.at') IS NOT runs.created, position LIMIT 1
"""
CALL = f"""
    SELECT {EVENT_COLUMNS} FROM events WHERE run = ? AND type IN ('tool.started', 'tool.finished', 'tool.rejected')
    AND json_extract(data, '$.call') = ? ORDER BY seq
"""
RESULT_LINES = """
    SELECT length(text) - length(replace(text, char(10), '')) + (substr(text, -1) <> char(10))
    FROM results WHERE session = ? AND call = ?
"""
INBOX = "SELECT run, position, text, attachments FROM inbox WHERE run = ? ORDER BY position"
STRANDED = """
    SELECT inbox.run, inbox.position, inbox.text, inbox.attachments FROM inbox JOIN runs ON runs.id = inbox.run
    WHERE runs.session = ? AND runs.ended IS NOT NULL ORDER BY runs.created, inbox.position
"""
DISABLED = "SELECT disabled FROM sessions WHERE id = ?"
GRANTS = f"SELECT {GRANT_COLUMNS} FROM grants WHERE session = ? ORDER BY created, id"

TOKEN_COUNTS = """
    SELECT COUNT(*), COUNT(revoked), COUNT(CASE WHEN revoked IS NULL AND (expires IS NULL OR expires > ?) THEN 1 END)
    FROM tokens
"""
# One token in use per name, and one spelling of a name for ever: it is a folder, too.
ADD_TOKEN = f"""
    INSERT INTO tokens ({TOKEN_COLUMNS}) SELECT {", ".join("?" * 9)} WHERE NOT EXISTS (
        SELECT 1 FROM tokens WHERE LOWER(name) = LOWER(?)
        AND (name <> ? OR (revoked IS NULL AND (expires IS NULL OR expires > ?)))
    )
"""


def token_values(row: TokenRow) -> tuple[Any, ...]:
    """What ADD_TOKEN takes."""
    _, fields_of = STATEMENTS[TokenRow]
    return (*fields_of(row), row.name, row.name, row.created)


# A month's sums stay when its runs go: they become those of no run.
KEEP_SPENT = f"""
    INSERT INTO spent ({SPENT_COLUMNS})
    SELECT principal, month, model, '', '', {SPENT_SUMS} FROM spent WHERE session IN (SESSIONS)
    GROUP BY principal, month, model {ADD_SPENT}
"""

# What goes with a session; the sessions to forget are the rows of a query that stands in for SESSIONS.
FORGET = (
    "DELETE FROM events WHERE run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    "DELETE FROM inbox WHERE run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    "DELETE FROM idempotency WHERE run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    "DELETE FROM messages WHERE session IN (SESSIONS)",
    "DELETE FROM approvals WHERE session IN (SESSIONS)",
    "DELETE FROM grants WHERE session IN (SESSIONS)",
    "DELETE FROM summaries WHERE session IN (SESSIONS)",
    "DELETE FROM results WHERE session IN (SESSIONS)",
    KEEP_SPENT,
    "DELETE FROM spent WHERE session IN (SESSIONS)",
    "DELETE FROM session_files WHERE session IN (SESSIONS)",
    "DELETE FROM files WHERE sha256 NOT IN (SELECT sha256 FROM session_files)",
    "DELETE FROM sessions WHERE id IN (SESSIONS)",
    "DELETE FROM runs WHERE session NOT IN (SELECT id FROM sessions)",
)
# The index marks words as deleted and keeps them until it is put together anew; VACUUM copies it as it is.
FORGOTTEN_WORDS = "INSERT INTO message_words (message_words) VALUES ('optimize')"
ONE_SESSION = "?"
IDLE_SESSIONS = """
    SELECT id FROM sessions WHERE created < ? AND NOT EXISTS
    (SELECT 1 FROM runs WHERE runs.session = sessions.id AND COALESCE(runs.ended, 9e99) >= ?)
"""
TABLES = (
    *("sessions", "runs", "events", "messages", "inbox", "idempotency", "tokens", "state"),
    *("approvals", "grants", "audit", "used", "mcp_servers", "mcp_pins", "endpoints"),
    *("summaries", "results", "files", "session_files", "spent"),
)

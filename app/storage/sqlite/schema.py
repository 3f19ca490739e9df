"""The schema, a file per version: version n is what the first n files make; an older database gets those it lacks."""

from __future__ import annotations

from pathlib import Path

_FILES = sorted(Path(__file__).parent.glob("schema_*.sql"), key=lambda path: int(path.stem.partition("_")[2]))
SCHEMA = tuple(path.read_text() for path in _FILES)

TABLES = (
    *("sessions", "runs", "events", "messages", "inbox", "idempotency", "tokens", "state"),
    *("approvals", "grants", "audit", "used", "mcp_servers", "mcp_pins", "mcp_trust", "endpoints"),
    *("summaries", "results", "files", "session_files", "spent", "event_batches"),
    *("documents", "document_versions", "document_suggestions"),
    *("notification_targets", "deliveries", "session_digests"),
    *("memories", "memory_vectors", "memory_jobs"),
    *("profiles",),
    "served_models",
    *("schedules", "triggers", "occurrences"),
    *("session_labels", "file_labels"),
    "helpers",
    *("folders", "lists", "shares"),
    *("sign_ins", "prompts", "preferences"),
    *("branches", "branch_parts"),
    *("recordings", "secrets"),
    "decision_links",
    "untrusted_marks",
    *("permissions", "permission_uses"),
    *("conversation_keys", "members", "member_codes"),
)

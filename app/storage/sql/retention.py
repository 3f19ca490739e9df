"""Deleting sessions and what belongs to them."""

from __future__ import annotations

from app.storage.sql.columns import names
from app.storage.sql.principals import ADD_USAGE, USAGE_SUMS
from app.storage.usage import ModelUsage

# A month's sums outlive its runs: they become those of no run.
KEEP_USAGE = f"""
    INSERT INTO spent ({names(ModelUsage)})
    SELECT principal, month, model, '', '', {USAGE_SUMS} FROM spent WHERE session IN (SESSIONS)
    GROUP BY principal, month, model {ADD_USAGE}
"""
DOCUMENTS = "SELECT id FROM documents WHERE session IN (SESSIONS)"
# Keys of deliveries and of times, which must not begin another run because the session of theirs was deleted.
LASTING = " OR ".join(f"substr(key, 1, {len(kind)}) = '{kind}'" for kind in ("trigger\n", "schedule\n"))
# Branches of a deleted session go on reading the runs that they have of it; with the last of them, these are deleted.
ORIGINS = """
    SELECT id FROM sessions WHERE id IN (SESSIONS) UNION
    SELECT origin FROM branch_parts WHERE session IN (SESSIONS) AND origin NOT IN (SELECT id FROM sessions)
"""
HAS_BRANCH = """
    EXISTS (
        SELECT 1 FROM branch_parts WHERE origin = runs.session AND runs.created <= until AND session NOT IN (SESSIONS)
    )
"""
RUNS = f"SELECT id FROM runs WHERE session IN ({ORIGINS}) AND NOT {HAS_BRANCH}"
ANSWERS = "place = 'here' AND session IN (SESSIONS)"
# Deletes a session with all that belongs to it; SESSIONS stands for a query of the sessions' ids.
FORGET = (
    f"DELETE FROM events WHERE run IN ({RUNS})",
    f"DELETE FROM inbox WHERE run IN ({RUNS})",
    f"DELETE FROM recordings WHERE run IN ({RUNS})",
    f"DELETE FROM idempotency WHERE NOT ({LASTING}) AND run IN ({RUNS})",
    "DELETE FROM messages WHERE session IN (SESSIONS)",
    "DELETE FROM approvals WHERE session IN (SESSIONS)",
    "DELETE FROM session_labels WHERE session IN (SESSIONS)",
    "DELETE FROM untrusted_marks WHERE session IN (SESSIONS)",
    "DELETE FROM grants WHERE session IN (SESSIONS)",
    "DELETE FROM summaries WHERE session IN (SESSIONS)",
    f"""
    DELETE FROM results WHERE session IN ({ORIGINS})
    AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = results.run AND {HAS_BRANCH})
    """,
    f"DELETE FROM document_versions WHERE document IN ({DOCUMENTS})",
    f"DELETE FROM document_suggestions WHERE document IN ({DOCUMENTS})",
    "DELETE FROM documents WHERE session IN (SESSIONS)",
    "DELETE FROM session_digests WHERE session IN (SESSIONS)",
    "DELETE FROM deliveries WHERE session IN (SESSIONS)",
    "DELETE FROM helpers WHERE session IN (SESSIONS)",
    "DELETE FROM shares WHERE session IN (SESSIONS)",
    "DELETE FROM decision_links WHERE session IN (SESSIONS)",
    f"DELETE FROM occurrences WHERE origin IN (SELECT id FROM schedules WHERE {ANSWERS})",
    f"DELETE FROM schedules WHERE {ANSWERS}",
    "DELETE FROM conversation_keys WHERE session IN (SESSIONS)",
    KEEP_USAGE,
    "DELETE FROM spent WHERE session IN (SESSIONS)",
    "DELETE FROM session_files WHERE session IN (SESSIONS)",
    "DELETE FROM files WHERE sha256 NOT IN (SELECT sha256 FROM session_files)",
    "DELETE FROM branches WHERE session IN (SESSIONS)",
    "DELETE FROM branch_parts WHERE session IN (SESSIONS)",
    "DELETE FROM sessions WHERE id IN (SESSIONS)",
    """
    DELETE FROM runs WHERE session NOT IN (SELECT id FROM sessions)
    AND NOT EXISTS (SELECT 1 FROM branch_parts WHERE origin = runs.session AND runs.created <= until)
    """,
)
OLD_KEYS = "DELETE FROM idempotency WHERE created < ? AND (body <> '' OR run NOT IN (SELECT id FROM runs))"
IDLE_SESSIONS = """
    SELECT id FROM sessions WHERE created < ? AND NOT EXISTS
    (SELECT 1 FROM runs WHERE runs.session = sessions.id AND COALESCE(runs.ended, 9e99) >= ?) AND NOT EXISTS
    (SELECT 1 FROM schedules WHERE schedules.session = sessions.id AND place = 'here' AND enabled
    AND next IS NOT NULL)
"""

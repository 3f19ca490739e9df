-- arguments: JSON of the call that was approved, for display. hosts: JSON of a list, NULL but for a grant of network.
-- expires: NULL for the life of the session. tainted: given when the conversation held untrusted text.
-- Grants of before say nothing of that, and of when they end: they keep what they had.
CREATE TABLE grants_of_9 (
    id          TEXT PRIMARY KEY,
    session     TEXT NOT NULL,
    principal   TEXT NOT NULL,
    tool        TEXT NOT NULL,
    created     DOUBLE PRECISION NOT NULL,
    by          TEXT NOT NULL,
    fingerprint TEXT,
    pattern     TEXT,
    hosts       TEXT,
    arguments   TEXT,
    expires     DOUBLE PRECISION,
    tainted     INTEGER NOT NULL DEFAULT 0
);
INSERT INTO grants_of_9 (id, session, principal, tool, created, by, fingerprint, pattern, arguments)
    SELECT 'grt_' || lower(hex(randomblob(10))), session, principal, tool, created, principal, fingerprint, pattern, (
        SELECT COALESCE(approvals.edited, approvals.arguments) FROM approvals
        WHERE approvals.session = grants.session AND approvals.decided = grants.created
    ) FROM grants;
DROP TABLE grants;
ALTER TABLE grants_of_9 RENAME TO grants;
CREATE INDEX grants_by_session ON grants (session, created);

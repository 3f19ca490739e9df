-- Permissions that fit: what a call's arguments derive from, marks of untrusted text, standing permissions, secrets.

-- Approvals: `origins` is JSON, the spans of the arguments and where their text comes from.
ALTER TABLE approvals ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';

-- Declarations of trust: `arguments` is JSON, what the arguments of a tool are for by name (tools.base.rights.Column).
ALTER TABLE mcp_trust ADD COLUMN arguments TEXT;

-- Doors: `door` is the way by which a decision came, NULL without one. `decides`: the webhook gets links that decide.
ALTER TABLE approvals ADD COLUMN door TEXT;
ALTER TABLE notification_targets ADD COLUMN decides INTEGER NOT NULL DEFAULT 0;
-- A link that decides one approval, once. `sha256` is the hash of its token, `fingerprint` that of the call.
CREATE TABLE decision_links (
    sha256      TEXT PRIMARY KEY,
    run         TEXT NOT NULL,
    call        TEXT NOT NULL,
    session     TEXT NOT NULL,
    target      TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    expires     REAL NOT NULL
);
CREATE INDEX decision_links_of_session ON decision_links (session);
CREATE INDEX decision_links_by_end ON decision_links (expires);

-- Decisions: `facts` is JSON, what a decision on a call rested on, so that other rules can be tried on it.
ALTER TABLE audit ADD COLUMN facts TEXT NOT NULL DEFAULT '';
CREATE INDEX audit_by_run ON audit (run);

-- Marks of untrusted text, of one result or message a row: `digests` are keyed, of 8 bytes each. `place` is the tool, or
-- empty for a message. `at` is the time in microseconds.
CREATE TABLE untrusted_marks (
    session   TEXT NOT NULL,
    run       TEXT NOT NULL,
    call      TEXT NOT NULL,
    principal TEXT NOT NULL,
    place     TEXT NOT NULL,
    at        INTEGER NOT NULL,
    digests   BLOB NOT NULL,
    PRIMARY KEY (principal, at, session)
);
CREATE INDEX untrusted_marks_of_session ON untrusted_marks (session);

-- Approvals: `proposals` is JSON, the standing permissions that can be given with them.
ALTER TABLE approvals ADD COLUMN proposals TEXT NOT NULL DEFAULT '[]';
-- Standing permissions of principals: `bounds` is JSON. Their uses by day (UTC); `permission` is an id, or `rule:` and
-- the name of a rule of the operator.
CREATE TABLE permissions (
    id        TEXT NOT NULL PRIMARY KEY,
    principal TEXT NOT NULL,
    tool      TEXT NOT NULL,
    bounds    TEXT NOT NULL,
    created   REAL NOT NULL,
    by        TEXT NOT NULL,
    run       TEXT NOT NULL,
    call      TEXT NOT NULL,
    per_day   INTEGER,
    expires   REAL,
    secrets   TEXT NOT NULL DEFAULT ''
);
CREATE INDEX permissions_by_principal ON permissions (principal, created);
CREATE TABLE permission_uses (
    permission TEXT NOT NULL,
    day        TEXT NOT NULL,
    uses       INTEGER NOT NULL,
    last       REAL NOT NULL,
    PRIMARY KEY (permission, day)
);

-- Secrets: `spec` is the JSON of app.config.secret_spec.SecretSpec, `sealed` the encrypted value (NULL: at its source).
CREATE TABLE secrets (
    name   TEXT NOT NULL PRIMARY KEY,
    spec   TEXT NOT NULL,
    sealed BLOB,
    by     TEXT NOT NULL,
    at     REAL NOT NULL,
    used   REAL
);

-- The secrets that a call was shown with, a line each with the time at which it was set.
ALTER TABLE approvals ADD COLUMN secrets TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN secrets TEXT NOT NULL DEFAULT '';

-- Permissions that fit: what a call's arguments derive from, marks of untrusted text, standing permissions, secrets.

-- Approvals: `origins` is JSON, the spans of the arguments and where their text comes from.
ALTER TABLE approvals ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';

-- Declarations of trust: `arguments` is JSON, what the arguments of a tool are for by name (tools.base.rights.Column).
ALTER TABLE mcp_trust ADD COLUMN arguments TEXT;

-- Doors: `door` is the way by which a decision came, NULL without one. `decides`: the webhook gets links that decide.
ALTER TABLE approvals ADD COLUMN door TEXT;
ALTER TABLE notification_targets ADD COLUMN decides BOOLEAN NOT NULL DEFAULT false;
-- A link that decides one approval, once. `sha256` is the hash of its token, `fingerprint` that of the call.
CREATE TABLE decision_links (
    sha256      TEXT COLLATE "C" PRIMARY KEY,
    run         TEXT COLLATE "C" NOT NULL,
    call        TEXT COLLATE "C" NOT NULL,
    session     TEXT COLLATE "C" NOT NULL,
    target      TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL,
    expires     DOUBLE PRECISION NOT NULL
);
CREATE INDEX decision_links_of_session ON decision_links (session);
CREATE INDEX decision_links_by_end ON decision_links (expires);

-- Decisions: `facts` is JSON, what a decision on a call rested on, so that other rules can be tried on it.
ALTER TABLE audit ADD COLUMN facts TEXT NOT NULL DEFAULT '';
CREATE INDEX audit_by_run ON audit (run);

-- Marks of untrusted text, of one result or message a row: `digests` are keyed, of 8 bytes each. `place` is the tool, or
-- empty for a message. `at` is the time in microseconds.
CREATE TABLE untrusted_marks (
    session   TEXT COLLATE "C" NOT NULL,
    run       TEXT COLLATE "C" NOT NULL,
    call      TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    place     TEXT NOT NULL,
    at        BIGINT NOT NULL,
    digests   BYTEA NOT NULL,
    PRIMARY KEY (principal, at, session)
);
CREATE INDEX untrusted_marks_of_session ON untrusted_marks (session);

-- Approvals: `proposals` is JSON, the standing permissions that can be given with them.
ALTER TABLE approvals ADD COLUMN proposals TEXT COLLATE "C" NOT NULL DEFAULT '[]';
-- Standing permissions of principals: `bounds` is JSON. Their uses by day (UTC); `permission` is an id, or `rule:` and
-- the name of a rule of the operator.
CREATE TABLE permissions (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    principal TEXT COLLATE "C" NOT NULL,
    tool      TEXT COLLATE "C" NOT NULL,
    bounds    TEXT COLLATE "C" NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    by        TEXT COLLATE "C" NOT NULL,
    run       TEXT COLLATE "C" NOT NULL,
    call      TEXT COLLATE "C" NOT NULL,
    per_day   BIGINT,
    expires   DOUBLE PRECISION,
    secrets   TEXT NOT NULL DEFAULT ''
);
CREATE INDEX permissions_by_principal ON permissions (principal, created);
CREATE TABLE permission_uses (
    permission TEXT COLLATE "C" NOT NULL,
    day        TEXT COLLATE "C" NOT NULL,
    uses       BIGINT NOT NULL,
    last       DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (permission, day)
);

-- Secrets: `spec` is the JSON of app.config.secret_spec.SecretSpec, `sealed` the encrypted value (NULL: at its source).
CREATE TABLE secrets (
    name   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    spec   TEXT COLLATE "C" NOT NULL,
    sealed BYTEA,
    by     TEXT COLLATE "C" NOT NULL,
    at     DOUBLE PRECISION NOT NULL,
    used   DOUBLE PRECISION
);

-- The secrets that a call was shown with, a line each with the time at which it was set.
ALTER TABLE approvals ADD COLUMN secrets TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN secrets TEXT NOT NULL DEFAULT '';

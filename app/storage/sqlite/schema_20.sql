-- Permissions that fit: what a call's arguments derive from, marks of untrusted text, standing permissions, secrets.

-- Approvals: `origins` is JSON, the spans of the arguments and where their text comes from.
ALTER TABLE approvals ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';

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
    expires   REAL
);
CREATE INDEX permissions_by_principal ON permissions (principal, created);
CREATE TABLE permission_uses (
    permission TEXT NOT NULL,
    day        TEXT NOT NULL,
    uses       INTEGER NOT NULL,
    last       REAL NOT NULL,
    PRIMARY KEY (permission, day)
);

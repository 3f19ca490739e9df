-- Permissions that fit: what a call's arguments derive from, marks of untrusted text, standing permissions, secrets.

-- Approvals: `origins` is JSON, the spans of the arguments and where their text comes from.
ALTER TABLE approvals ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';

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
    expires   DOUBLE PRECISION
);
CREATE INDEX permissions_by_principal ON permissions (principal, created);
CREATE TABLE permission_uses (
    permission TEXT COLLATE "C" NOT NULL,
    day        TEXT COLLATE "C" NOT NULL,
    uses       BIGINT NOT NULL,
    last       DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (permission, day)
);

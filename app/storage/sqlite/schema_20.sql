-- Permissions that fit: what a call's arguments derive from, marks of untrusted text, standing permissions, secrets.

-- Approvals: `origins` is JSON, the spans of the arguments and where their text comes from.
ALTER TABLE approvals ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';

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

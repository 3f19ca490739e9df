-- Permissions that fit: what a call's arguments derive from, marks of untrusted text, standing permissions, secrets.

-- Approvals: `origins` is JSON, the spans of the arguments and where their text comes from.
ALTER TABLE approvals ADD COLUMN origins TEXT NOT NULL DEFAULT '[]';

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

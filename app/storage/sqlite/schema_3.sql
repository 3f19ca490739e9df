ALTER TABLE tokens ADD COLUMN tools TEXT NOT NULL DEFAULT '[]';
ALTER TABLE tokens ADD COLUMN disabled TEXT NOT NULL DEFAULT '[]';
ALTER TABLE tokens ADD COLUMN budget TEXT NOT NULL DEFAULT '{}';
ALTER TABLE tokens ADD COLUMN expires DOUBLE PRECISION;
ALTER TABLE tokens ADD COLUMN revoked DOUBLE PRECISION;
ALTER TABLE sessions ADD COLUMN disabled TEXT NOT NULL DEFAULT '[]';
ALTER TABLE runs ADD COLUMN policy TEXT NOT NULL DEFAULT '{}';

CREATE TABLE approvals (
    run         TEXT NOT NULL,
    call        TEXT NOT NULL,
    session     TEXT NOT NULL,
    principal   TEXT NOT NULL,
    name        TEXT NOT NULL,
    arguments   TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    reason      TEXT NOT NULL,
    created     DOUBLE PRECISION NOT NULL,
    expires     DOUBLE PRECISION NOT NULL,
    state       TEXT NOT NULL,
    decided     DOUBLE PRECISION,
    by          TEXT,
    scope       TEXT,
    edited      TEXT,
    note        TEXT,
    PRIMARY KEY (run, call)
);
CREATE INDEX approvals_by_state ON approvals (principal, state, created);
CREATE INDEX approvals_by_session ON approvals (session);

CREATE TABLE grants (
    session     TEXT NOT NULL,
    principal   TEXT NOT NULL,
    tool        TEXT NOT NULL,
    created     DOUBLE PRECISION NOT NULL,
    fingerprint TEXT,
    pattern     TEXT
);
CREATE INDEX grants_by_session ON grants (session);

CREATE TABLE audit (
    number      INTEGER PRIMARY KEY,
    at          DOUBLE PRECISION NOT NULL,
    principal   TEXT NOT NULL,
    action      TEXT NOT NULL,
    decision    TEXT NOT NULL,
    why         TEXT NOT NULL,
    by          TEXT NOT NULL,
    run         TEXT,
    call        TEXT,
    fingerprint TEXT
);
CREATE INDEX audit_by_time ON audit (at);

CREATE TABLE used (
    principal TEXT NOT NULL,
    kind      TEXT NOT NULL,
    period    TEXT NOT NULL,
    amount    DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (principal, kind, period)
);

-- A call may wait for a person without an end: expires is NULL then.
CREATE TABLE approvals_of_10 (
    run         TEXT NOT NULL,
    call        TEXT NOT NULL,
    session     TEXT NOT NULL,
    principal   TEXT NOT NULL,
    name        TEXT NOT NULL,
    arguments   TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    reason      TEXT NOT NULL,
    created     DOUBLE PRECISION NOT NULL,
    expires     DOUBLE PRECISION,
    state       TEXT NOT NULL,
    decided     DOUBLE PRECISION,
    by          TEXT,
    scope       TEXT,
    edited      TEXT,
    note        TEXT,
    PRIMARY KEY (run, call)
);
INSERT INTO approvals_of_10 (run, call, session, principal, name, arguments, fingerprint, reason, created, expires,
        state, decided, by, scope, edited, note)
    SELECT run, call, session, principal, name, arguments, fingerprint, reason, created, expires,
        state, decided, by, scope, edited, note FROM approvals;
DROP TABLE approvals;
ALTER TABLE approvals_of_10 RENAME TO approvals;
CREATE INDEX approvals_by_state ON approvals (principal, state, created);
CREATE INDEX approvals_by_session ON approvals (session);

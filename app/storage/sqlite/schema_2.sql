ALTER TABLE events ADD COLUMN parts TEXT;
ALTER TABLE runs ADD COLUMN joined INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_by_ended ON runs (joined, ended);

CREATE TABLE inbox (
    run      TEXT NOT NULL,
    position INTEGER NOT NULL,
    text     TEXT NOT NULL,
    PRIMARY KEY (run, position)
);

CREATE TABLE idempotency (
    principal TEXT NOT NULL,
    key       TEXT NOT NULL,
    body      TEXT NOT NULL,
    run       TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (principal, key)
);

CREATE TABLE state (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS sessions (
    id        TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    title     TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_by_principal ON sessions (principal, created);

CREATE TABLE IF NOT EXISTS runs (
    id        TEXT PRIMARY KEY,
    session   TEXT NOT NULL,
    principal TEXT NOT NULL,
    model     TEXT NOT NULL,
    state     TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    ended     DOUBLE PRECISION
);
CREATE INDEX IF NOT EXISTS runs_by_session ON runs (session, created);
CREATE INDEX IF NOT EXISTS runs_by_state ON runs (state);

CREATE TABLE IF NOT EXISTS events (
    run  TEXT NOT NULL,
    seq  INTEGER NOT NULL,
    type TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, seq)
);

CREATE TABLE IF NOT EXISTS messages (
    session  TEXT NOT NULL,
    position INTEGER NOT NULL,
    run      TEXT NOT NULL,
    message  TEXT NOT NULL,
    PRIMARY KEY (session, position)
);

CREATE TABLE IF NOT EXISTS tokens (
    sha256  TEXT PRIMARY KEY,
    name    TEXT NOT NULL,
    role    TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL
);

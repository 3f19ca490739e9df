-- Documents that stand beside a conversation. `seen` is the version that the model knows.
CREATE TABLE documents (
    id      TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    title   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    version INTEGER NOT NULL,
    seen    INTEGER NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    updated DOUBLE PRECISION NOT NULL
);
CREATE INDEX documents_by_session ON documents (session, created);
CREATE INDEX documents_unseen ON documents (session) WHERE seen < version;

CREATE TABLE document_versions (
    document TEXT NOT NULL,
    version  INTEGER NOT NULL,
    author   TEXT NOT NULL,
    run      TEXT NOT NULL,
    call     TEXT NOT NULL,
    created  DOUBLE PRECISION NOT NULL,
    text     TEXT NOT NULL,
    PRIMARY KEY (document, version)
);

CREATE TABLE document_suggestions (
    document TEXT NOT NULL,
    number   INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    old      TEXT NOT NULL,
    new      TEXT NOT NULL,
    reason   TEXT NOT NULL,
    state    TEXT NOT NULL,
    run      TEXT NOT NULL,
    call     TEXT NOT NULL,
    created  DOUBLE PRECISION NOT NULL,
    decided  DOUBLE PRECISION,
    reported INTEGER NOT NULL,
    PRIMARY KEY (document, number)
);

-- spec: the JSON of app.endpoints.spec.EndpointSpec, of an endpoint that was added at run time.
CREATE TABLE endpoints (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
    by   TEXT NOT NULL,
    at   DOUBLE PRECISION NOT NULL
);

-- Each file is kept once, however many messages have it; it goes with the last session that has it.
CREATE TABLE files (
    sha256 TEXT PRIMARY KEY,
    bytes  BLOB NOT NULL
);

CREATE TABLE session_files (
    session TEXT NOT NULL,
    sha256  TEXT NOT NULL,
    PRIMARY KEY (session, sha256)
);
CREATE INDEX session_files_by_file ON session_files (sha256);

ALTER TABLE inbox ADD COLUMN attachments TEXT NOT NULL DEFAULT '[]';

-- As before, and the names of what is attached.
DROP VIEW message_texts;
CREATE VIEW message_texts AS
    SELECT session, position, CASE WHEN json_valid(message) THEN
        json_extract(replace(message, '\u0000', '\u0020'), '$.text') || COALESCE((
            SELECT group_concat(' ' || json_extract(value, '$.name') || ' ' || json_extract(value, '$.arguments'), '')
            FROM json_each(message, '$.calls')
        ), '') || COALESCE((
            SELECT group_concat(' ' || json_extract(value, '$.name'), '') FROM json_each(message, '$.attachments')
        ), '')
    ELSE message END AS text FROM messages;

-- What models were asked, and what that took; cost in billionths. Rows of sessions that are gone have no run.
CREATE TABLE spent (
    principal         TEXT NOT NULL,
    month             TEXT NOT NULL,
    model             TEXT NOT NULL,
    run               TEXT NOT NULL,
    session           TEXT NOT NULL,
    requests          INTEGER NOT NULL,
    prompt_tokens     INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens     INTEGER NOT NULL,
    estimated_tokens  INTEGER NOT NULL,
    cost              DOUBLE PRECISION,
    estimated_cost    DOUBLE PRECISION,
    PRIMARY KEY (principal, month, model, run)
);
CREATE INDEX spent_by_session ON spent (session);

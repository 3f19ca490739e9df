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

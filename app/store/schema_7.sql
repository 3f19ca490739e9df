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

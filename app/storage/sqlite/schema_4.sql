-- entry: of a server that was added at run time, as it was given; NULL for one of the file.
-- enabled: what somebody said at run time; NULL for what the entry says.
CREATE TABLE mcp_servers (
    name    TEXT PRIMARY KEY,
    entry   TEXT,
    enabled INTEGER,
    by      TEXT NOT NULL,
    at      DOUBLE PRECISION NOT NULL
);

CREATE TABLE mcp_pins (
    server     TEXT NOT NULL,
    tool       TEXT NOT NULL,
    identity   TEXT NOT NULL,
    digest     TEXT NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (server, tool)
);

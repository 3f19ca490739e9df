-- What people have declared of MCP servers (an empty tool) and of their tools; the identity is that of a pin.
CREATE TABLE mcp_trust (
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    identity TEXT NOT NULL,
    role TEXT,
    risk TEXT,
    untrusted INTEGER,
    by TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (server, tool)
);

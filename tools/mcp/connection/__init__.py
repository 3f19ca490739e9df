"""One connection to an MCP server: stdio and HTTP transports, repair of messages, elicitation, the session."""

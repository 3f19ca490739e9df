"""`dragoman acp`: the agent of an editor, by the Agent Client Protocol, as a client of the HTTP API."""

"""Management by the agent: this server's own routes as tools for admins, each call of which asks."""

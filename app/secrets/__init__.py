"""Secrets for commands and MCP servers: kept encrypted or at their source, resolved when a call needs one."""

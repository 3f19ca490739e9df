"""This server as an MCP server: the person's agent, tools and conversations for other agents (docs/mcp.md)."""

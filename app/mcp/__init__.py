"""MCP servers inside the agent: which there are, reviewed definitions, their files and questions."""

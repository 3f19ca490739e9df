"""MCP servers over HTTP: their administration, trust in them, and their resources and prompts."""

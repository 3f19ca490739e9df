"""Signing in to MCP servers with OAuth, and the stored tokens."""

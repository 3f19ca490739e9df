"""Reading and changing `mcp.json`: entries, variables, and the check where server code may lie."""

/** MCP servers, for admins: their state, and tools that are held until somebody approves them. */

export function start(page) {}

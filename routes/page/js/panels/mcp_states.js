/** The states of an MCP server, and which of them need an admin. */

export const STATES = ["stopped", "connecting", "ready", "failed", "needs_auth", "disabled"];

const FAILED = new Set(["failed", "needs_auth"]);

export const isDown = ({ state }) => FAILED.has(state);

/** The states of an MCP server: their labels, and which of them need an admin. */

export const STATES = {
  stopped: "starts at its next call",
  connecting: "connecting",
  ready: "ready",
  failed: "failed",
  needs_auth: "needs you to sign in",
  disabled: "disabled",
};

const FAILED = new Set(["failed", "needs_auth"]);

export const isDown = ({ state }) => FAILED.has(state);

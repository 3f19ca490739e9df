/** The bar at the bottom: model, context, tokens and cost, sandbox, MCP, jobs, connection, pause. */

export function start(page) {}

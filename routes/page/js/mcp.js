/** How the MCP servers are, for admins: a button that says how many of them want a person. */

import { fill, h, icon } from "./dom.js";
import { fetching } from "./forms.js";

/** States that want a person. */
export const BAD = new Set(["failed", "needs_auth"]);

/** For the bar; hidden from who is no admin. */
export function mcpButton(page) {
  const button = h("button", {
    type: "button",
    class: "status-item",
    "aria-expanded": "false",
    hidden: true,
    onclick: fetching(
      () => import("./mcp_servers.js"),
      (panel) => panel.toggle(page, button),
    ),
  });
  page.store.watch("mcp", (servers) => {
    button.hidden = !servers;
    const held = servers.reduce((sum, one) => sum + one.held.length, 0);
    const bad = servers.filter(({ state }) => BAD.has(state)).length;
    button.dataset.warns = held + bad > 0;
    const word = held
      ? `MCP: ${held} held`
      : bad
        ? `MCP: ${bad} down`
        : servers.length
          ? `MCP: ${servers.length}`
          : "MCP";
    fill(button, icon(held + bad ? "warn" : "plug"), h("span", { class: "status-brief" }, word));
    button.title = "MCP servers and their tools";
  });
  return button;
}

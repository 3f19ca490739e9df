/** What changed, line by line, with more than colour to tell lines apart. */

import { h } from "./dom.js";

/** A unified diff as `edit_file` and MCP pins tell it; text before it is shown as it is. */
export function unifiedDiff(text) {
  return h("pre", { class: "diff", tabindex: 0 }, text);
}

/** What would change if `before` became `after`. */
export function changed(before, after) {
  return h("pre", { class: "diff", tabindex: 0 }, `- ${before}\n+ ${after}`);
}

/** The operator's rules on the arguments of calls, for admins: the settings file alone changes them. */

import { get } from "../../feed/api.js";
import { h } from "../../dom/elements.js";
import { factList } from "../../dom/forms.js";

const CONDITIONS = ["paths", "hosts", "commands"];

/** Fetches the rules, and shows one block for each. */
export async function rules() {
  const { rules: rows } = await get("/rules");
  if (!rows.length) return h("p", { class: "faint" }, "The settings file has no rules on arguments.");
  return h("div", { class: "stack" }, rows.map(shown));
}

function shown(rule) {
  const conditions = CONDITIONS.filter((kind) => rule[kind].length).map((kind) => [kind, rule[kind].join(", ")]);
  const rows = [["Rule", rule.name], [rule.action, rule.tool], ...conditions, ["Reason", rule.reason]];
  return factList(rows);
}

/** The operator's rules on the arguments of calls, for admins: the settings file alone changes them. */

import { get } from "../../feed/api.js";
import { h, stack } from "../../dom/elements.js";
import { factList } from "../../dom/forms.js";
import { t, ts } from "../../dom/more_texts.js";
import { trialButton } from "./rule_trial.js";

const CONDITIONS = ["paths", "hosts", "commands", "network"];
const LABELS = ts("rules.condition", CONDITIONS);
const ACTIONS = ts("rules.action", ["ask", "deny", "allow"]);

/** Fetches the rules, and shows one block for each. */
export async function rules() {
  const { rules: rows } = await get("/rules");
  const all = trialButton(t("rules.try.all"));
  if (!rows.length) return stack(h("p", { class: "faint" }, t("rules.none")), all);
  return stack(...rows.map(shown), all);
}

function shown(rule) {
  const given = CONDITIONS.filter((kind) => rule[kind].length);
  const conditions = given.map((kind) => [LABELS[kind], rule[kind].join(", ")]);
  for (const [name, patterns] of Object.entries(rule.arguments ?? {})) conditions.push([name, patterns.join(", ")]);
  for (const [name, most] of Object.entries(rule.most)) conditions.push([name, t("rules.most", { most })]);
  if (rule.per_day) conditions.push([t("rules.per_day"), String(rule.per_day)]);
  if (rule.until) conditions.push([t("grants.until"), rule.until]);
  const action = [ACTIONS[rule.action] ?? rule.action, rule.tool];
  const facts = factList([[t("rules.name"), rule.name], action, ...conditions, [t("rules.reason"), rule.reason]]);
  return stack(facts, trialButton(t("rules.try"), rule.name));
}

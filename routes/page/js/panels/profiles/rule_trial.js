/** Rules tried on the past: the stored calls that would go otherwise now. No call is run. */

import { post } from "../../feed/api.js";
import { fill, h, stack } from "../../dom/elements.js";
import { actionButton, factList, formatNumber, Outcome } from "../../dom/forms.js";
import { t, ts } from "../../dom/more_texts.js";
import { escapeLine } from "../../text/exact_text.js";

const LONGEST_MS = 90_000; // the server gives up before
const DECISIONS = ts("rules.try", ["allow", "ask", "refuse"]);
const COLUMNS = Object.values(ts("rules.try", ["calls", "tool", "then", "now", "row"]));

/** A button that tries the rules in force, and shows what all of them change, or one of them (`rule`, by its name). */
export function trialButton(label, rule = null) {
  const outcome = new Outcome();
  const found = h("div", { class: "rule-trial" });
  const ask = async () => fill(found, shown(await post("/rules/backtest", {}, { wait_ms: LONGEST_MS }), rule));
  return stack(actionButton(label, outcome, ask), outcome.element, found);
}

function shown(report, rule) {
  const { calls, days, untried } = report;
  const groups = report.groups.filter((one) => rule === null || one.rule === rule);
  const changed = groups.reduce((sum, one) => sum + one.calls, 0);
  const lost = Object.entries(untried).map(([why, count]) => `${formatNumber(count)}: ${why}`);
  const [then, now] = report.asked_a_day.map(formatNumber);
  const decided = formatNumber(report.rules[rule] ?? 0);
  const values = { calls: formatNumber(calls), days: formatNumber(days), decided, count: calls };
  const head = calls === 0 ? "rules.try.none" : rule === null ? "rules.try.tried" : "rules.try.decides";
  return stack(
    h("p", {}, t(head, values)),
    factList([
      [t("rules.try.questions"), rule === null && t("rules.try.change", { then, now })],
      [t("rules.try.changed"), formatNumber(changed)],
      [t("rules.try.untried"), lost.join("; ")],
    ]),
    !report.complete && h("p", { class: "faint" }, t("rules.try.partial")),
    groups.length > 0 && table(groups),
  );
}

function table(groups) {
  const heads = COLUMNS.map((name) => h("th", { scope: "col" }, name));
  const props = { role: "region", "aria-label": t("rules.try.changed"), tabindex: 0, class: "table-box" };
  return h("div", props, h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, groups.flatMap(rows))));
}

/** A row for a group of calls, and one for its examples. */
function rows(group) {
  const { calls, tool, then, then_by, now, by, rule, examples } = group;
  const cells = [
    formatNumber(calls),
    escapeLine(tool),
    then === "allow" ? DECISIONS[then] : `${DECISIONS[then] ?? then} (${then_by})`,
    DECISIONS[now] ?? now,
    escapeLine(rule || by),
  ];
  const row = cells.map((cell) => h("td", { dir: "auto" }, cell));
  const lines = examples.map((one) => h("li", {}, h("code", { dir: "ltr" }, escapeLine(one.arguments))));
  const span = { colspan: COLUMNS.length };
  return [h("tr", {}, row), h("tr", {}, h("td", span, h("ul", {}, lines)))];
}

/** What somebody has used in this month, and of their budgets. */

import { get } from "./api.js";
import { h } from "./dom.js";
import { number, pairs } from "./forms.js";
import { money } from "./spending.js";

function usedOf(name, used, limit) {
  const told = name === "cost_per_month" ? money : number;
  return `${told(used)} of ${told(limit)}`;
}

const anew = (reset) => (reset ? `, starts again on ${new Date(reset * 1000).toLocaleDateString()}` : "");

/** What somebody has used of their budgets, and this month's tokens. */
export async function monthly() {
  const { usage, months } = await get("/usage");
  const now = months.at(-1);
  const budget = ([name, { used, limit, reset }]) => [BUDGETS[name], usedOf(name, used, limit) + anew(reset)];
  const limited = Object.entries(usage).filter(
    ([name, { used, limit }]) => BUDGETS[name] && limit && used !== undefined,
  );
  return h(
    "div",
    { class: "stack" },
    pairs([
      ["Month", now?.month ?? "nothing yet"],
      ["Read", now && `${number(now.prompt_tokens)} tokens`],
      ["Written", now && `${number(now.completion_tokens)} tokens`],
      ["Cost", now?.cost && money(now.cost)],
      ...(now?.models ?? []).map(({ model, prompt_tokens, completion_tokens }) => [
        model,
        `${number(prompt_tokens + completion_tokens)} tokens`,
      ]),
    ]),
    limited.length > 0 && h("h4", {}, "Budgets"),
    limited.length > 0 && pairs(limited.map(budget)),
  );
}

const BUDGETS = {
  runs: "Turns at a time",
  tokens_per_month: "Tokens a month",
  cost_per_month: "Cost a month",
  tool_seconds_per_day: "Seconds of tools a day",
};

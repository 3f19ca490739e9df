/** The model's plan in a run: a list of steps that is ticked off in place. */

import { fill, h, announce } from "../dom/elements.js";
import { escapeLine } from "../text/exact_text.js";
import { t, ts } from "../dom/texts.js";

const WORDS = { __proto__: null, ...ts("plan.state", ["pending", "active", "done"]) };
const MARKS = { __proto__: null, pending: "○", active: "▸", done: "✓" };

export class Plan {
  #count = h("span", { class: "faint" });
  #list = h("ol");

  constructor() {
    const head = h("header", {}, h("h3", {}, t("plan.title")), this.#count);
    this.element = h("section", { class: "plan", role: "group", "aria-label": t("plan.title") }, head, this.#list);
  }

  /** Draws all steps; `quietly`: without an announcement to screen readers. */
  show(steps, { quietly }) {
    const done = steps.filter(({ state }) => state === "done").length;
    this.#count.textContent = t("plan.count", { done, steps: steps.length });
    fill(this.#list, steps.map(drawn));
    if (!quietly) announce(t("plan.announced", { done, steps: steps.length }));
  }
}

function drawn({ step, state }) {
  const known = state in WORDS ? state : "pending";
  const mark = h("span", { class: "plan-mark", "aria-hidden": "true" }, MARKS[known]);
  const words = h("span", { dir: "auto" }, escapeLine(step));
  const spoken = h("span", { class: "visually-hidden" }, ` (${WORDS[known]})`);
  return h("li", { dataset: { state: known } }, mark, words, spoken);
}

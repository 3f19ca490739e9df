/** The guards of new runs, for admins: a switch and a sentence for each. */

import { get, patch } from "../../feed/api.js";
import { h, stack } from "../../dom/elements.js";
import { Outcome, runOnce } from "../../dom/forms.js";
import { t, ts } from "../../dom/more_texts.js";

const GUARDS = ts("safety", ["canary", "judge_output", "screen_results"]);

/** The switches. Raises Refused. */
export async function guards() {
  const { settings } = await get("/settings");
  const value = Object.fromEntries(settings.map((one) => [one.name, one.value]));
  return stack(
    h("p", { class: "faint" }, t("safety.about")),
    Object.entries(GUARDS).map(([name, words]) => guardSwitch(name, words, value[name])),
  );
}

function guardSwitch(name, words, on) {
  const outcome = new Outcome();
  const change = () => patch("/settings", { changes: { [name]: box.checked } });
  const onchange = async () => {
    const answer = await runOnce(box, outcome, change);
    on = answer ? answer.settings.find((one) => one.name === name).value : on;
    box.checked = on;
  };
  const box = h("input", { type: "checkbox", role: "switch", checked: on, onchange });
  return h("div", { class: "notify-switch" }, h("label", {}, box, h("span", {}, words)), outcome.element);
}

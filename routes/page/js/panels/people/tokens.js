/** A form that creates a token, for admins: it is shown once. */

import { post, token as own } from "../../feed/api.js";
import { copyButton } from "../../dom/copy.js";
import { fill, h, icon } from "../../dom/elements.js";
import { collapsible, runOnce, field, Outcome } from "../../dom/forms.js";
import { pieces, t, ts } from "../../dom/more_texts.js";
import { deferSignOut, isSignedIn } from "../sign_in.js";

const EXPIRIES = ["30d", "7d", "365d", ""];
const ROLES = ["user", "guest", "admin"];
const LIMITS = ts("people.budget", ["tokens_per_month", "cost_per_month", "requests_per_minute"]);
const BUDGETS = ["tokens_per_month", "cost_per_month", "requests_per_minute"];

/** The form; `draw` shows the list anew. */
export function tokenForm(draw) {
  const outcome = new Outcome();
  const name = h("input", { required: true, maxlength: 64, autocomplete: "off", dir: "ltr" });
  const role = h(
    "select",
    {},
    (isSignedIn() ? ROLES : ["admin"]).map((one) => h("option", { value: one }, t(`people.role.${one}`))),
  );
  const span = h(
    "select",
    {},
    EXPIRIES.map((value) => h("option", { value }, t(`people.expires.${value || "never"}`))),
  );
  const limits = BUDGETS.map((one) => [
    one,
    h("input", { type: "number", min: one === "cost_per_month" ? 0.01 : 1, step: "any" }),
  ]);
  const make = h("button", { type: "submit" }, icon("plus"), t("people.create"));
  const once = h("div", { hidden: true });
  const form = h(
    "form",
    { class: "form" },
    field(t("people.name"), name),
    field(t("people.role"), role),
    field(t("people.expires"), span),
    collapsible(t("people.budgets"), () =>
      h(
        "div",
        { class: "form" },
        limits.map(([one, input]) => field(LIMITS[one], input)),
      ),
    ),
    h("div", { class: "buttons" }, make),
    outcome.element,
    once,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wish = { name: name.value.trim(), role: role.value, ...(span.value && { expires: span.value }) };
    const budget = Object.fromEntries(
      limits.filter(([, { value }]) => value).map(([one, { value }]) => [one, Number(value)]),
    );
    if (Object.keys(budget).length) wish.budget = budget;
    const first = !isSignedIn();
    const made = await runOnce(make, outcome, () => deferSignOut(() => createToken(wish, first)));
    if (!made) return;
    form.reset();
    fill(
      once,
      secret(made, () => (first ? location.replace(location.pathname) : (once.hidden = true))),
    );
    once.hidden = false;
    await draw().catch((error) => outcome.show(error.message, "problem"));
  });
  return form;
}

/** Once a token exists the server requires one: this page continues with the new one. */
async function createToken(wish, first) {
  const made = await post("/tokens", wish);
  if (first) own.set(made.token);
  return made;
}

/** A new token, shown once: the button removes it from the page. */
function secret({ name, token }, gone) {
  const text = h("input", {
    value: token,
    readonly: true,
    class: "mono",
    "aria-label": t("people.token_of", { name }),
    dir: "ltr",
  });
  const copy = copyButton(t("people.copy.token"), () => token, t("people.copy"));
  const done = h(
    "button",
    {
      type: "button",
      onclick: () => {
        text.value = "";
        box.remove();
        gone();
      },
    },
    t("people.done"),
  );
  const box = h(
    "div",
    { class: "new-token stack" },
    h("p", {}, pieces("people.once", { name: h("strong", {}, name) })),
    text,
    h("div", { class: "buttons" }, copy, done),
  );
  return box;
}

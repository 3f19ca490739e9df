/** A form that creates a token, for admins: it is shown once. */

import { post, token as own } from "../../feed/api.js";
import { fill, h, icon } from "../../dom/elements.js";
import { collapsible, field, select, sendForm } from "../../dom/forms.js";
import { secretOnce } from "../../dom/secret.js";
import { pieces, t, ts } from "../../dom/more_texts.js";
import { deferSignOut, isLocal } from "../sign_in.js";

const EXPIRIES = ["30d", "7d", "365d", ""];
const ROLES = ["user", "guest", "admin"];
const LIMITS = ts("people.budget", ["tokens_per_month", "cost_per_month", "requests_per_minute"]);
const TEXTS = { label: "people.token_of", copy: "people.copy.token", brief: "people.copy", done: "people.done" };

/** The form; `draw` shows the list anew. */
export function tokenForm(page, draw) {
  const name = h("input", { required: true, maxlength: 64, autocomplete: "off", dir: "ltr" });
  const role = select((isLocal(page) ? ["admin"] : ROLES).map((one) => [one, t(`people.role.${one}`)]));
  const span = select(EXPIRIES.map((value) => [value, t(`people.expires.${value || "never"}`)]));
  const limits = Object.keys(LIMITS).map((one) => [
    one,
    h("input", { type: "number", min: one === "cost_per_month" ? 0.01 : 1, step: "any" }),
  ]);
  const budgets = limits.map(([one, input]) => field(LIMITS[one], input));
  const once = h("div", { hidden: true });
  const bot = h("input", { type: "checkbox" });
  const fields = [
    field(t("people.name"), name),
    field(t("people.role"), role),
    field(t("people.expires"), span),
    h("label", { class: "check" }, bot, h("span", {}, t("members.may"))),
    collapsible(t("people.budgets"), () => h("div", { class: "form" }, budgets)),
  ];
  const send = () => {
    const wish = { name: name.value.trim(), role: role.value, ...(span.value && { expires: span.value }) };
    if (bot.checked) wish.members = true;
    const given = limits.filter(([, { value }]) => value).map(([one, { value }]) => [one, Number(value)]);
    if (given.length) wish.budget = Object.fromEntries(given);
    return deferSignOut(() => createToken(wish, isLocal(page)));
  };
  const make = h("button", { type: "submit" }, icon("plus"), t("people.create"));
  const form = sendForm(fields, make, send, async ({ name: of, token, isFirst }, outcome) => {
    const words = pieces("people.once", { name: h("strong", {}, of) });
    const gone = () => (isFirst ? location.replace(location.pathname) : (once.hidden = true));
    fill(once, secretOnce({ name: of, secret: token }, words, { texts: TEXTS, gone })).hidden = false;
    await draw().catch((error) => outcome.show(error.message, "problem"));
  });
  form.append(once);
  return form;
}

/** Once a token exists the server requires one: this page continues with the new one. */
async function createToken(wish, isFirst) {
  const made = await post("/tokens", wish);
  if (isFirst) own.set(made.token);
  return { ...made, isFirst };
}

/** People, for admins: who may use the server, with what they use; roles, disabling, revoking, and new tokens. */

import { get, patch, remove } from "../../feed/api.js";
import { fill, h } from "../../dom/elements.js";
import { actionButton, collapsible, confirmButton, factList, formatNumber, Outcome } from "../../dom/forms.js";
import { locale, t } from "../../dom/more_texts.js";
import { tokenForm } from "./tokens.js";

const ROLES = ["guest", "user", "admin"];
const IN_USE = new Set(["active", "disabled"]);

/** The list and the form. Raises Refused. */
export async function people(page) {
  const list = h("ul", { class: "tokens people" });
  const former = h("div", {});
  const draw = async () => {
    const { people: rows } = await get("/people");
    const now = rows.filter(({ state }) => IN_USE.has(state));
    fill(
      list,
      now.map((row) => personRow(page, row, draw)),
    );
    if (!rows.length) list.append(h("li", { class: "faint" }, t("people.first")));
    const gone = rows.filter(({ state }) => !IN_USE.has(state));
    const names = () =>
      h("p", { class: "faint" }, gone.map(({ name, state }) => `${name} (${t(`people.state.${state}`)})`).join(", "));
    fill(former, gone.length > 0 && collapsible(t("people.former", { count: gone.length }), names));
  };
  await draw();
  return h("div", { class: "stack" }, list, former, h("h4", {}, t("people.new")), tokenForm(draw));
}

function personRow(page, row, draw) {
  const { name, role, state, expires } = row;
  const outcome = new Outcome();
  const path = `/people/${encodeURIComponent(name)}`;
  const change = async (body) => {
    await patch(path, body);
    await draw();
  };
  const select = h(
    "select",
    { "aria-label": t("people.role_of", { name }) },
    ROLES.map((one) => h("option", { value: one }, t(`people.role.${one}`))),
  );
  select.value = role;
  // Not with the choice itself: an arrow key changes it at once, and each change ends what runs.
  const apply = actionButton(t("people.role_change"), outcome, () => change({ role: select.value }), { hidden: true });
  select.addEventListener("change", () => (apply.hidden = select.value === role));
  const until = expires
    ? t("people.until", { date: new Date(expires * 1000).toLocaleDateString(locale) })
    : t("people.endless");
  const isSelf = page.store.get("me")?.name === name;
  const head = [
    h("strong", {}, name),
    state === "disabled" && h("span", { class: "badge" }, t("people.state.disabled")),
  ];
  return h(
    "li",
    { dataset: { state } },
    h("span", { class: "person" }, head, h("span", { class: "faint" }, `${t(`people.role.${role}`)}, ${until}`)),
    h("div", { class: "buttons" }, select, apply, buttons(row, isSelf, outcome, change, draw)),
    collapsible(t("people.details"), () => facts(row)),
    outcome.element,
  );
}

function buttons({ name, state, sign_ins: devices }, isSelf, outcome, change, draw) {
  const away = async () => {
    await remove(`/tokens/${encodeURIComponent(name)}`);
    await draw();
  };
  const signOut = async () => {
    await remove(`/sign-ins?principal=${encodeURIComponent(name)}`);
    await draw();
  };
  const enable = actionButton(t("people.enable"), outcome, () => change({ disabled: false }));
  const disable = confirmButton(
    t("people.disable"),
    t("people.disable.sure", { name }),
    t("people.disable"),
    outcome,
    () => change({ disabled: true }),
  );
  return [
    state === "disabled" ? enable : !isSelf && disable,
    devices > 0 && !isSelf && actionButton(t("people.sign_out"), outcome, signOut),
    confirmButton(t("people.revoke"), t("people.revoke.sure", { name }), t("people.revoke.yes"), outcome, away),
  ];
}

function facts({ last_seen: seen, sessions, sign_ins: devices, active_runs: runs, usage, created }) {
  const date = (at) => (at ? new Date(at * 1000).toLocaleString(locale) : null);
  return factList([
    [t("people.seen"), date(seen) ?? t("people.never")],
    [t("people.created"), date(created)],
    [t("people.sessions"), formatNumber(sessions)],
    [t("people.devices"), formatNumber(devices)],
    [t("people.runs"), formatNumber(runs)],
    [t("people.usage"), formatNumber(usage.prompt_tokens + usage.completion_tokens)],
  ]);
}

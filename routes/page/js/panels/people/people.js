/** People, for admins: who may use the server, with what they use; roles, disabling, revoking, and new tokens. */

import { get, patch, remove } from "../../feed/api.js";
import { buttonRow, fill, h, stack } from "../../dom/elements.js";
import {
  actionButton,
  collapsible,
  confirmButton,
  factList,
  fillRows,
  formatNumber,
  Outcome,
  select,
} from "../../dom/forms.js";
import { locale, t } from "../../dom/more_texts.js";
import { loadedSection } from "../loaded_section.js";
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
    fillRows(list, now, (row) => personRow(page, row, draw), !rows.length && t("people.first"));
    const gone = rows.filter(({ state }) => !IN_USE.has(state));
    const names = () =>
      h("p", { class: "faint" }, gone.map(({ name, state }) => `${name} (${t(`people.state.${state}`)})`).join(", "));
    fill(former, gone.length > 0 && collapsible(t("people.former", { count: gone.length }), names));
  };
  await draw();
  return stack(list, former, h("h4", {}, t("people.new")), tokenForm(page, draw));
}

function personRow(page, row, draw) {
  const { name, role, state, expires } = row;
  const outcome = new Outcome();
  const path = `/people/${encodeURIComponent(name)}`;
  const change = async (body) => {
    await patch(path, body);
    await draw();
  };
  const names = ROLES.map((one) => [one, t(`people.role.${one}`)]);
  const roles = select(names, { "aria-label": t("people.role_of", { name }), value: role });
  // Not with the choice itself: an arrow key changes it at once, and each change ends what runs.
  const apply = actionButton(t("people.role_change"), outcome, () => change({ role: roles.value }), { hidden: true });
  roles.addEventListener("change", () => (apply.hidden = roles.value === role));
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
    buttonRow(roles, apply, buttons(row, isSelf, outcome, change, draw)),
    collapsible(t("people.details"), () => facts(row)),
    row.members && loadedSection(t("members.of"), async () => (await import("./members.js")).members(name)),
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
  const turnOff = () => change({ disabled: true });
  const word = t("people.disable");
  const disable = confirmButton(word, t("people.disable.sure", { name }), word, outcome, turnOff);
  return [
    state === "disabled" ? enable : !isSelf && disable,
    devices > 0 && !isSelf && actionButton(t("people.sign_out"), outcome, signOut),
    confirmButton(t("people.revoke"), t("people.revoke.sure", { name }), t("people.revoke.yes"), outcome, away),
  ];
}

function facts({ by, last_seen: seen, sessions, sign_ins: devices, active_runs: runs, usage, created }) {
  const date = (at) => (at ? new Date(at * 1000).toLocaleString(locale) : null);
  return factList([
    [t("people.seen"), date(seen) ?? t("people.never")],
    [t("people.by"), t(`people.by.${by}`)],
    [t("people.created"), date(created)],
    [t("people.sessions"), formatNumber(sessions)],
    [t("people.devices"), formatNumber(devices)],
    [t("people.runs"), formatNumber(runs)],
    [t("people.usage"), formatNumber(usage.prompt_tokens + usage.completion_tokens)],
  ]);
}

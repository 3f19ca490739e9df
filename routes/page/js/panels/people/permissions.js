/** What the person has allowed for good: each permission in words, how often it was used, and a button to withdraw it. */

import { get, remove } from "../../feed/api.js";
import { formatMoment } from "../../dom/clock.js";
import { announce, h, stack } from "../../dom/elements.js";
import { actionButton, factList, fillRows, formatNumber, Outcome } from "../../dom/forms.js";
import { escapeText } from "../../text/exact_text.js";
import { t } from "../../dom/more_texts.js";

/** The list. Raises Refused. */
export async function permissions() {
  const list = h("ul", { class: "grants" });
  const draw = async () => {
    const { permissions: rows } = await get("/permissions");
    fillRows(list, rows, (row) => permissionRow(row, draw), t("permissions.none"));
  };
  await draw();
  return stack(h("p", { class: "faint" }, t("permissions.about")), list);
}

function permissionRow(row, draw) {
  const outcome = new Outcome();
  const words = escapeText(row.words);
  const facts = [
    [t("permissions.today"), formatNumber(row.uses_today)],
    [t("permissions.all"), formatNumber(row.uses)],
    [t("permissions.last"), row.last_used ? formatMoment(row.last_used) : t("permissions.never")],
    [t("grants.granted"), formatMoment(row.created)],
  ];
  const withdraw = async () => {
    await remove(`/permissions/${encodeURIComponent(row.id)}`);
    announce(t("grants.withdrawn"));
    await draw();
  };
  const label = { class: "danger", "aria-label": t("permissions.withdraw.named", { words }) };
  const off = actionButton(t("grants.withdraw"), outcome, withdraw, label);
  return h("li", { class: "grant" }, h("p", { dir: "auto" }, words), factList(facts), off, outcome.element);
}

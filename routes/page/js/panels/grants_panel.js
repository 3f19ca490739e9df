/** The panel of grants: the calls that the open conversation may run without approval, and buttons to withdraw them. */

import { remove } from "../feed/api.js";
import { renderArguments } from "../approvals/call_description.js";
import { formatMoment, formatTime } from "../dom/clock.js";
import { announce, buttonRow, h, stack } from "../dom/elements.js";
import { exactBlock, escapeLine } from "../text/exact_text.js";
import { actionButton, Outcome, factList, KeyedRows, confirmButton } from "../dom/forms.js";
import { personOf } from "../cards/call_title.js";
import { refresh } from "./grants.js";
import { showPanel } from "./panel.js";
import { t, ts } from "../dom/more_texts.js";

const KINDS = ts("grants.kind", ["exact", "pattern", "hosts"]);

export function toggle(page, opener) {
  if (showPanel(page, "grants", t("grants.title"), (watch) => content(page, watch), opener)) refresh(page);
}

function content(page, watch) {
  const outcome = new Outcome();
  const list = h("ul", { class: "grants" });
  const rows = new KeyedRows(list, (grant) => row(page, grant));
  const none = h("p", {}, t("grants.none"));
  const label = t("grants.withdraw.all");
  const all = confirmButton(label, t("grants.withdraw.all.sure"), label, outcome, () => withdraw(page, null));
  const foot = buttonRow(all);
  watch("grants", (grants) => {
    rows.show(grants, ({ id }) => id);
    list.hidden = !grants.length;
    none.hidden = grants.length > 0;
    foot.hidden = grants.length < 2;
  });
  return stack(none, list, foot, outcome.element);
}

function row(page, grant) {
  const outcome = new Outcome();
  const what = KINDS[grant.kind] ?? grant.kind;
  const label = t("grants.withdraw.named", { tool: escapeLine(grant.tool), kind: what });
  const facts = [
    [t("grants.granted"), t("grants.granted.by", { time: formatTime(grant.created), by: personOf(grant.by) })],
    [t("grants.until"), grant.expires_at ? formatMoment(grant.expires_at) : t("grants.until.deleted")],
  ];
  return h(
    "li",
    { class: "grant" },
    h("h3", {}, h("code", {}, escapeLine(grant.tool)), " ", h("span", { class: "faint" }, what)),
    bounds(grant),
    factList(facts),
    grant.tainted ? h("p", { class: "approval-warning" }, t("grants.tainted")) : null,
    actionButton(t("grants.withdraw"), outcome, () => withdraw(page, grant), { class: "danger", "aria-label": label }),
    outcome.element,
  );
}

/** The calls that a grant covers, in full. */
function bounds({ kind, tool, pattern, hosts, arguments: given }) {
  if (kind === "hosts") return exactBlock(hosts.join("\n"), t("grants.hosts"));
  if (kind === "pattern") return renderArguments({ name: "", arguments: pattern });
  return given ? renderArguments({ name: tool, arguments: given }) : h("p", { class: "faint" }, t("grants.unstored"));
}

async function withdraw(page, grant) {
  const session = encodeURIComponent(page.store.get("session"));
  await remove(`/sessions/${session}/grants${grant ? `/${encodeURIComponent(grant.id)}` : ""}`);
  announce(t(grant ? "grants.withdrawn" : "grants.withdrawn.all"));
  await refresh(page);
}

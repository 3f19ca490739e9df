/** The panel of grants: the calls that the open conversation may run without approval, and buttons to withdraw them. */

import { remove } from "../feed/api.js";
import { renderArguments } from "../approvals/call_description.js";
import { formatTime } from "../dom/clock.js";
import { fill, h, announce } from "../dom/elements.js";
import { exactBlock, escapeLine } from "../text/exact_text.js";
import { actionButton, Outcome, factList, KeyedRows, confirmButton } from "../dom/forms.js";
import { refresh } from "./grants.js";
import { showPanel } from "./panel.js";

const NONE = "No additional calls are allowed: each call that requires approval asks for it.";
const KINDS = {
  exact: "Exactly this call",
  pattern: "Calls that match",
  hosts: "Network access to these hosts, for every command",
};
const TAINTED = "It was granted while the conversation contained untrusted text.";

export function toggle(page, opener) {
  if (showPanel(page, "grants", "Allowed in this conversation", (watch) => content(page, watch), opener)) refresh(page);
}

function content(page, watch) {
  const outcome = new Outcome();
  const list = h("ul", { class: "grants" });
  const rows = new KeyedRows(list, (grant) => row(page, grant));
  const none = h("p", {}, NONE);
  const foot = h("div", { class: "buttons" });
  const all = confirmButton("Withdraw all", "Require approval for all of these again?", "Withdraw all", outcome, () =>
    withdraw(page, null),
  );
  fill(foot, all);
  watch("grants", (grants) => {
    rows.show(grants, ({ id }) => id);
    list.hidden = !grants.length;
    none.hidden = grants.length > 0;
    foot.hidden = grants.length < 2;
  });
  return h("div", { class: "stack" }, none, list, foot, outcome.element);
}

const moment = (at) => new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

function row(page, grant) {
  const outcome = new Outcome();
  const what = KINDS[grant.kind] ?? grant.kind;
  const label = `Withdraw: ${escapeLine(grant.tool)}, ${what}`;
  const facts = [
    ["Granted", `${formatTime(grant.created)} by ${escapeLine(grant.by)}`],
    ["Until", grant.expires_at ? moment(grant.expires_at) : "the conversation is deleted"],
  ];
  return h(
    "li",
    { class: "grant" },
    h("h3", {}, h("code", {}, escapeLine(grant.tool)), " ", h("span", { class: "faint" }, what)),
    bounds(grant),
    factList(facts),
    grant.tainted ? h("p", { class: "approval-warning" }, TAINTED) : null,
    actionButton("Withdraw", outcome, () => withdraw(page, grant), { class: "danger", "aria-label": label }),
    outcome.element,
  );
}

/** The calls that a grant covers, in full. */
function bounds({ kind, tool, pattern, hosts, arguments: given }) {
  if (kind === "hosts") return exactBlock(hosts.join("\n"), "Hosts");
  if (kind === "pattern") return renderArguments({ name: "", arguments: pattern });
  return given
    ? renderArguments({ name: tool, arguments: given })
    : h("p", { class: "faint" }, "Its arguments are not stored.");
}

async function withdraw(page, grant) {
  const session = encodeURIComponent(page.store.get("session"));
  await remove(`/sessions/${session}/grants${grant ? `/${encodeURIComponent(grant.id)}` : ""}`);
  announce(grant ? "Withdrawn. It requires approval again." : "All withdrawn. They require approval again.");
  await refresh(page);
}

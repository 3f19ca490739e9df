/** The settings panel: who one is, how the page looks, what was used; for admins tokens and the audit. */

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { Outcome, action, doing, pairs, field, folded, showPanel } from "./forms.js";
import { prefer, preferred } from "./kept.js";
import { leave, SIGNED_OUT, signedIn } from "./gate.js";
import { notifySwitch } from "./notify.js";
import { monthly } from "./monthly.js";
import { dress, THEME, THEMES } from "./settings.js";
import { tokens } from "./tokens.js";

const AUDITED = 50; // rows

const KEYS = [
  ["Enter", "send the message"],
  ["Shift + Enter", "a new line"],
  ["Alt + A", "to the call that waits for you"],
  ["Y, S, E, N", "there: approve once, for the session, edit, deny"],
  ["Ctrl + K", "search the conversations"],
  ["Ctrl + Shift + O", "a new conversation"],
  ["Escape", "close what is open"],
  ["Escape, twice", "in the message box: stop the run"],
  ["↑", "in an empty message box: your last message again"],
];

/** Opens the panel, or closes it. */
export function toggle(page, button) {
  return showPanel(page, "settings", "Settings", () => content(page), button);
}

function content(page) {
  const { name, role } = page.store.get("me") ?? {};
  const { version } = page.store.get("server") ?? {};
  const admin = role === "admin";
  return h(
    "div",
    { class: "stack" },
    pairs([
      ["You are", name],
      ["Role", ROLES[role] ?? role],
      ["Server", version && `dragoman ${version}`],
    ]),
    signedIn() && h("button", { type: "button", onclick: () => leave(SIGNED_OUT, location.pathname) }, "Sign out"),
    !signedIn() &&
      h("p", { class: "faint" }, "This server has no tokens: who reaches it on this machine is its admin."),
    h("h3", {}, "Look"),
    theme(),
    h("h3", {}, "Notifications"),
    notifySwitch(page),
    later("Used this month", monthly),
    admin && later("Who may come in", tokens),
    admin && later(`The last ${AUDITED} decisions`, audit),
    folded("Keys", () =>
      h(
        "dl",
        { class: "pairs keys" },
        KEYS.map(([keys, does]) => h("div", {}, h("dt", {}, h("kbd", {}, keys)), h("dd", {}, does))),
      ),
    ),
  );
}

const ROLES = { admin: "admin: may do everything", user: "user", guest: "guest: may read and talk" };

function theme() {
  const select = h(
    "select",
    { value: preferred(THEME) ?? "" },
    Object.entries(THEMES).map(([value, name]) => h("option", { value }, name)),
  );
  select.addEventListener("change", () => {
    prefer(THEME, select.value);
    dress(select.value);
  });
  return field("Colours", select);
}

/** A folded part whose content the server is asked for when it is opened. */
function later(title, load) {
  return folded(title, () => {
    const outcome = new Outcome();
    const ask = async () => fill(box, await load());
    const again = action("Try again", outcome, ask);
    const box = h("div", { class: "stack" }, outcome.element, again);
    doing(again, outcome, ask);
    return box;
  });
}

async function audit() {
  const { audit: rows } = await get(`/audit?limit=${AUDITED}`);
  if (!rows.length) return h("p", { class: "faint" }, "Nothing was decided yet.");
  const head = h(
    "tr",
    {},
    ["When", "Who", "What", "Decision", "Why"].map((name) => h("th", { scope: "col" }, name)),
  );
  const cells = ({ at, principal, action: what, decision, why, by }) => [
    new Date(at * 1000).toLocaleString(),
    principal,
    what,
    by && by !== principal ? `${decision} (${by})` : decision,
    why,
  ];
  const body = rows.map((row) =>
    h(
      "tr",
      {},
      cells(row).map((cell) => h("td", { dir: "auto" }, cell)),
    ),
  );
  return h(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": "Decisions" },
    h("table", {}, h("thead", {}, head), h("tbody", {}, body)),
  );
}

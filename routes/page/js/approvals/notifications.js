/** Signals for a hidden page: a number in the title, a dot on the icon and, if enabled, notifications. */

import { get } from "../feed/api.js";
import { announce, button, h } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { t } from "../dom/texts.js";
import { escapeLine } from "../text/exact_text.js";

const KEY = "dragoman.notify";
const LONG_S = 30; // the end of longer runs is notified, and every failure
const WELL = new Set(["answered", "client_tools", "cancelled", "taken_back"]); // states; others are reasons of failures
const ICON = "/page/icon.svg",
  WAITING = "/page/icon-waiting.svg";
const BADGE = /^\(\d+\) /;

let waiting = 0;
const changes = new EventTarget();

/** Watches approvals and runs; `show(approval)` opens one. */
export function startNotifications(page, show, tray) {
  new MutationObserver(badge).observe(document.querySelector("title"), { childList: true });
  page.store.watch("approvals", (rows) => {
    waiting = rows.length;
    badge();
  });
  navigator.serviceWorker?.addEventListener("message", ({ data }) => {
    if (data.call) show({ ...data, notified: true });
    else if (data.session) open(page, data.session);
  });
  notifyApprovals(page, show, tray);
  notifyRuns(page);
}

/** Adds the number of waiting calls to any title. */
function badge() {
  const plain = document.title.replace(BADGE, "");
  const title = waiting ? `(${waiting}) ${plain}` : plain;
  if (document.title !== title) document.title = title;
  const link = document.querySelector('link[rel="icon"]');
  const icon = waiting ? WAITING : ICON;
  if (link && link.getAttribute("href") !== icon) link.setAttribute("href", icon);
}

function notifyApprovals(page, show, tray) {
  let known = null;
  page.store.watch("approvals", (rows) => {
    const fresh = known ? rows.filter((row) => !known.has(keyOf(row))) : [];
    known = new Set(rows.map(keyOf));
    for (const row of fresh) notifyApproval(row, () => show(row), tray);
  });
}

async function notifyApproval(row, onclick, tray) {
  await tray(); // WebKit gives modules that another import still evaluates
  const { summaryOf } = await import("./call_description.js");
  notify(t("notify.waiting", { name: escapeLine(row.name) }), summaryOf(row), keyOf(row), onclick);
}

function notifyRuns(page) {
  let known = new Map();
  page.store.watch("runs", (rows) => {
    const now = new Map(rows.map((row) => [row.id, row]));
    for (const [id, row] of known) {
      if (!now.has(id) && document.hidden && isEnabled()) notifyEnd(page, row);
    }
    known = now;
  });
}

async function notifyEnd(page, { id, session, created }) {
  const isLong = Date.now() / 1000 - created >= LONG_S;
  const { state = "answered" } = await get(`/runs/${id}`).catch(() => ({}));
  const onclick = () => open(page, session);
  if (!WELL.has(state)) notify(t("notify.failed"), t("notify.failed.hint"), id, onclick);
  else if (isLong) notify(t("notify.done"), t("notify.done.hint"), id, onclick);
}

function open(page, session) {
  if (page.store.get("session") !== session) page.conversation.open(session);
}

const keyOf = ({ run, call }) => `${run}/${call}`;

/** `tag`: several tabs with the same notification show it once. */
function notify(title, body, tag, clicked) {
  if (!document.hidden || !isEnabled()) return;
  try {
    const notice = new Notification(title, { body, tag, icon: ICON });
    notice.onclick = () => {
      window.focus();
      notice.close();
      clicked();
    };
  } catch {
    localStorage.removeItem(KEY); // phones support notifications only through service workers
  }
}

/** Why this browser shows none, as far as known without asking; null if it may. */
export function objection() {
  if (!window.isSecureContext) return t("notify.insecure");
  return "Notification" in window ? null : t("notify.unsupported");
}
const isSupported = () => objection() === null;
const isEnabled = () => isSupported() && Notification.permission === "granted" && localStorage.getItem(KEY) === "on";

/** Requests permission after a click. Returns an error message, or null. */
async function enable(on) {
  if (!on) localStorage.removeItem(KEY);
  else if (!isSupported()) return objection();
  else if ((await Notification.requestPermission()) !== "granted") return t("notify.blocked");
  else localStorage.setItem(KEY, "on");
  changes.dispatchEvent(new Event("change"));
  return null;
}

/** The switch in the settings. */
export function notifySwitch() {
  const problem = new Problem();
  const draw = () => (box.checked = isEnabled());
  const onchange = async () => {
    problem.show(await enable(box.checked));
    draw();
  };
  const box = h("input", { type: "checkbox", role: "switch", onchange });
  changes.addEventListener("change", draw);
  draw();
  const label = h("label", {}, box, h("span", {}, t("notify.switch")));
  return h("div", { class: "notify-switch" }, label, problem.element);
}

/** A button in the tray, shown while notifications can be enabled. */
export function notifyButton() {
  const draw = () => (offer.hidden = isEnabled() || !isSupported() || Notification.permission === "denied");
  const accept = async () => {
    const why = await enable(true);
    announce(why ?? t("notify.enabled"));
    if (why) offer.textContent = why;
    draw();
  };
  const offer = button(t("notify.next_time"), accept, { class: "notify-button" });
  changes.addEventListener("change", draw);
  draw();
  return offer;
}

/** The switch for Web Push in this browser, and the list of the principal's browsers. */

import { get, post, remove } from "../feed/api.js";
import { WORKER, register } from "./worker.js";
import { h, stack } from "../dom/elements.js";
import { Outcome, actionButton, fillRows } from "../dom/forms.js";
import { readPreference, writePreference } from "../dom/storage.js";
import { t } from "../dom/more_texts.js";

const OWN = "push"; // the id of this browser at the server

/** Why this browser can get no push messages; null if it may. */
function pushObjection() {
  if (!window.isSecureContext) return t("notify.insecure");
  return "serviceWorker" in navigator && "PushManager" in window ? null : t("push.unsupported");
}

/** The worker, active. */
export async function worker() {
  const registration = await register();
  const starting = registration.installing ?? registration.waiting;
  if (starting && !registration.active) {
    await new Promise((done) => starting.addEventListener("statechange", done, { once: true }));
  }
  return registration;
}

async function subscription() {
  const registration = await navigator.serviceWorker.getRegistration(WORKER);
  return (await registration?.pushManager.getSubscription()) ?? null;
}

async function subscribe(key) {
  if ((await Notification.requestPermission()) !== "granted") throw problem(t("push.blocked"));
  const { pushManager } = await worker();
  await (await pushManager.getSubscription())?.unsubscribe(); // it may be for the key of another server
  const made = await pushManager
    .subscribe({ userVisibleOnly: true, applicationServerKey: key })
    .catch((error) => Promise.reject(problem(t("push.refused", { reason: error.message }))));
  const { endpoint, keys } = made.toJSON();
  const name = navigator.userAgentData?.platform || navigator.platform || "";
  writePreference(OWN, (await post("/push", { endpoint, keys, name })).id);
}

/** Also at the server, which would learn it only from the next message. */
async function unsubscribe() {
  await (await subscription())?.unsubscribe();
  const id = readPreference(OWN);
  writePreference(OWN, null);
  if (id) await removeKnown(id);
}

/** Also one that the server has forgotten: nothing is left to do then. */
async function removeKnown(id) {
  try {
    await remove(`/push/${encodeURIComponent(id)}`);
  } catch (error) {
    if (error.status !== 404) throw error;
  }
}

/** An error that a form shows as what the server refuses. */
const problem = (message) => Object.assign(new Error(message), { status: 0 });

/** The switch, and the browsers that get push messages. Raises Refused. */
export async function pushSection() {
  const outcome = new Outcome();
  const list = h("ul", { class: "tokens" });
  const box = h("input", { type: "checkbox", role: "switch" });
  let key = "";
  const draw = async () => {
    const answer = await get("/push");
    key = answer.key;
    const isKnown = answer.subscriptions.some(({ id }) => id === readPreference(OWN));
    box.checked = !pushObjection() && isKnown && (await subscription()) !== null;
    fillRows(list, answer.subscriptions, (row) => browserRow(row, draw));
  };
  const change = async (on) => {
    const why = on && pushObjection();
    if (why) throw problem(why);
    if (on) await subscribe(key);
    else await unsubscribe();
  };
  box.addEventListener("change", async () => {
    box.disabled = true;
    await change(box.checked).catch((error) => outcome.show(error.message, "problem"));
    await draw().catch((error) => outcome.show(error.message, "problem"));
    box.disabled = false; // not before it shows what the server knows: a press would mean the opposite
  });
  await draw();
  if (pushObjection()) outcome.show(pushObjection());
  const label = h("label", {}, box, h("span", {}, t("push.switch")));
  return stack(h("div", { class: "notify-switch" }, label), outcome.element, list);
}

function browserRow({ id, name, url, state, reason }, draw) {
  const outcome = new Outcome();
  const off = async () => {
    await remove(`/push/${encodeURIComponent(id)}`);
    await draw();
  };
  const test = async () => outcome.show(...resultOf(await post(`/push/${encodeURIComponent(id)}/test`)));
  return h(
    "li",
    {},
    h("span", {}, h("strong", { dir: "auto" }, name), h("span", { class: "faint" }, ` ${new URL(url).host}`)),
    state === "disabled" && h("p", { class: "problem", dir: "auto" }, reason),
    actionButton(t("push.test"), outcome, test, { "aria-label": t("push.test.named", { name }) }),
    actionButton(t("push.remove"), outcome, off, { class: "danger", "aria-label": t("push.remove.named", { name }) }),
    outcome.element,
  );
}

/** The words and the kind of the result of a test. */
export function resultOf({ delivered, status, error, duration_s }) {
  if (!delivered) return [t("push.test.failed", { reason: error }), "problem"];
  return [t("push.test.delivered", { status: String(status), seconds: duration_s }), "good"];
}
